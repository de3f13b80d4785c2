"""Memory of an operator on one device, by the purpose of its tensors (equations 1 and 2)."""

from __future__ import annotations

from typing import TypeVar

from tensoropt.arrays import Int64Array
from tensoropt.graph.backward_reads import VIEWS
from tensoropt.graph.operator import Operator, TensorName
from tensoropt.tdl import types_with

__all__ = ["among_kept", "memory_amounts"]

Amount = TypeVar("Amount", int, Int64Array)

_MAKES_NOTHING = VIEWS | types_with(role="names") | types_with(role="constant")
_ADDS_BIAS = frozenset({"BiasAdd", "BiasAddV1"})


def memory_amounts(
    operator: Operator, made: Amount, kept: Amount, inputs: Amount, recomputed: bool
) -> dict[str, Amount]:
    """Return the arguments of a `Footprint` of an operator.

    The amounts are bytes on one device, or arrays of bytes for several configurations.

    Args:
        operator: the operator.
        made: bytes of its outputs.
        kept: bytes of the outputs that the backward pass reads.
        inputs: bytes of the inputs that count at this operator.
        recomputed: whether the operator is recomputed, so that no output is saved.
    """
    if operator.is_variable:
        return {"variable_bytes": made}
    if operator.gradient is not None:
        return {"gradient_bytes": made}
    if recomputed or operator.mutates or operator.type in _MAKES_NOTHING:
        return {"moved_bytes": inputs}
    added = {"added_bytes": made} if operator.type in _ADDS_BIAS else {}
    return {"output_bytes": made, **added, "kept_bytes": kept, "moved_bytes": inputs}


def among_kept(operator: Operator, kept: frozenset[TensorName]) -> frozenset[TensorName] | None:
    """Return the tensors to which the kept outputs of an operator are limited.

    None stands for no limit: all outputs of a placeholder are kept.
    """
    return None if operator.is_placeholder else kept
