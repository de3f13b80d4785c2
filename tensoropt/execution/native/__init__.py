"""TensorFlow operators in C++, which pass over memory less often than TensorFlow's kernels.

`library` compiles them when they are first used, as the operator for collectives is compiled.
"""
