"""Memory of an operator on one device, by what its tensors are for (equations 1 and 2)."""

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
    """The `Footprint` of an operator, from bytes: of one device, or arrays of many cases.

    Args:
        operator: which.
        made: of its outputs.
        kept: of those of them that the backward pass reads.
        inputs: of its inputs that are counted here.
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
    """Of which tensors an operator's outputs stay: of all (None) where they are fed."""
    return None if operator.is_placeholder else kept
