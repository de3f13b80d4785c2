"""The records of TensorFlow's operator types, one family a module. Importing fills the registry."""

# ruff: noqa: F401
from tensoropt.tdl.ops import graph_types, random, state
from tensoropt.tdl.ops.algebra import contraction, elementwise, matrix, reduction
from tensoropt.tdl.ops.neural import bias, convolution, loss, normalisation, pooling, recurrent
from tensoropt.tdl.ops.tensors import gathering, image, joining, movement, scattering, slicing

__all__: list[str] = []
