"""Random operators that draw each element from a counter.

Philox is counter-based: the numbers of an element follow from its place. A device can draw its
piece of the tensor alone, with the values that the whole draw has there.
"""

from __future__ import annotations

from typing import Any, cast

from tensoropt.tdl.any_size import along_known
from tensoropt.tdl.description import SpelledOut, output_shape
from tensoropt.tdl.expression import Expression, Operand, elementwise
from tensoropt.tdl.operator_type import OperatorType
from tensoropt.tdl.registry import describe, record
from tensoropt.tensor_spec import TensorSpec

__all__ = ["DRAWN", "DRAWN_WHOLE", "RANDOM_TYPES", "SEEDED", "STATEFUL"]

# Ten rounds of Philox give four numbers; each then becomes a value.
draw = elementwise("draw", operations=12)

STATEFUL = {
    "RandomStandardNormal": "StatelessRandomNormalV2",
    "RandomUniform": "StatelessRandomUniformV2",
    "RandomUniformInt": "StatelessRandomUniformIntV2",
    "TruncatedNormal": "StatelessTruncatedNormalV2",
}
"""Per type with a counter of its own, the stateless type that draws the same numbers."""

SEEDED = {
    "StatelessRandomNormal": "StatelessRandomNormalV2",
    "StatelessRandomUniform": "StatelessRandomUniformV2",
    "StatelessRandomUniformFullInt": "StatelessRandomUniformFullIntV2",
    "StatelessRandomUniformInt": "StatelessRandomUniformIntV2",
    "StatelessTruncatedNormal": "StatelessTruncatedNormalV2",
}
"""Per type with a seed operand, the type with key and counter that draws the same numbers."""

DRAWN = (*STATEFUL, *SEEDED, *SEEDED.values())
"""The described types. A rule of the execution splits them."""

_NO_START = "no kernel draws the same values from a given element on"
_SHUFFLED = "an element may come from every other device"

DRAWN_WHOLE = {
    "Multinomial": _NO_START,
    "ParameterizedTruncatedNormal": _NO_START,
    "RandomGamma": _NO_START,
    "RandomPoisson": _NO_START,
    "RandomPoissonV2": _NO_START,
    "RandomShuffle": _SHUFFLED,
    "StatelessMultinomial": _NO_START,
    "StatelessParameterizedTruncatedNormal": _NO_START,
    "StatelessRandomGammaV2": _NO_START,
    "StatelessRandomGammaV3": _NO_START,
    "StatelessRandomPoisson": _NO_START,
    "StatelessShuffle": _SHUFFLED,
}
"""Random operators that every device draws whole, and why."""
RANDOM_TYPES = frozenset({*DRAWN, *DRAWN_WHOLE})
"""All types that draw numbers. Each run draws other ones; their shape follows from no input."""


def _every_dimension(attributes: Any) -> SpelledOut:
    (output,) = cast("tuple[TensorSpec]", attributes["outputs"])
    return tuple(range(len(output.shape)))


@describe(*DRAWN, spelled_out=_every_dimension, local=output_shape(0), any_size=along_known)
def drawn(_shape: Operand, *_: Operand, outputs: tuple[TensorSpec, ...]) -> Any:
    """Every device has the seeds, keys, counters and bounds of the whole tensor."""
    if -1 in outputs[0].shape:
        return None  # where a piece starts follows from the whole shape

    def element(*i: Expression) -> Expression:
        del i
        return draw()

    return element


record(*DRAWN, facts=OperatorType(uneven_rule=True))
