"""Operators of TensorFlow's in C++, for what its own kernels do in more passes than needed.

`library` has them compiled at their first use, by what compiles the collectives' operator.
"""
