"""Code in C++ that passes over memory less often than TensorFlow's kernels.

`library` compiles it at its first use, as the operator for collectives is compiled.
"""
