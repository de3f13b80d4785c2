"""The records of TensorFlow's operator types, one family a module. Importing fills the registry."""

from tensoropt.tdl.ops import graph_types, random, state
from tensoropt.tdl.ops.algebra import (
    contraction,
    einsum,
    elementwise,
    matrix,
    quantisation,
    reduction,
    spectral,
)
from tensoropt.tdl.ops.neural import bias, convolution, loss, normalisation, pooling, recurrent
from tensoropt.tdl.ops.tensors import (
    gathering,
    image,
    joining,
    movement,
    rearranging,
    scattering,
    slicing,
)

__all__ = [
    "bias",
    "contraction",
    "convolution",
    "einsum",
    "elementwise",
    "gathering",
    "graph_types",
    "image",
    "joining",
    "loss",
    "matrix",
    "movement",
    "normalisation",
    "pooling",
    "quantisation",
    "random",
    "rearranging",
    "recurrent",
    "reduction",
    "scattering",
    "slicing",
    "spectral",
    "state",
]
