"""Descriptions of TensorFlow's operators, one family a module. Importing registers them."""

from tensoropt.tdl.ops import random, state
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
