"""Descriptions of TensorFlow's operators, one family a module. Importing registers them."""

from tensoropt.tdl.ops import (
    bias,
    contraction,
    elementwise,
    loss,
    movement,
    reduction,
    state,
)

__all__ = ["bias", "contraction", "elementwise", "loss", "movement", "reduction", "state"]
