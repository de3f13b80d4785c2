"""Weights that lie as their operator reads them: m_p of an operator's own tensor maps (TensorOpt,
equation 1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tensoropt.arrays import Int8Array
from tensoropt.graph.operator import Graph
from tensoropt.parallel.assignments import NO_INDEX
from tensoropt.tdl import Derivation

__all__ = ["Reading", "layout_as_read", "readings"]


@dataclass(frozen=True, slots=True)
class Reading:
    """Where a weight is read.

    Attributes:
        operator: name of the reader.
        number: of its input.
    """

    operator: str
    number: int


def readings(
    graph: Graph, leader_of: Mapping[str, str], derivations: Mapping[str, Derivation]
) -> dict[str, Reading]:
    """Where each weight is read, by the leader of the operators that are tied to it.

    Of several readers it is the one of most work, of equal ones the first; the others reshard. A
    variable that only its own updates read is not there.

    Args:
        graph: the operators.
        leader_of: `tensoropt.graph.coarsen.leaders` of the graph.
        derivations: of all operators.
    """
    found: dict[str, Reading] = {}
    for operator in graph:
        if operator.gradient is not None or graph[leader_of[operator.name]].is_variable:
            continue
        own = derivations[operator.name]
        for number, tensor in enumerate(operator.inputs):
            leader = leader_of[tensor.operator]
            if not graph[leader].is_variable or graph[tensor.operator].gradient is not None:
                continue
            if own.input_shapes[number] != derivations[leader].output_shapes[0]:
                continue
            known = found.get(leader)
            if known is None or own.flops > derivations[known.operator].flops:
                found[leader] = Reading(operator.name, number)
    return found


def layout_as_read(assigned: Int8Array, reader: Derivation, number: int) -> Int8Array:
    """int8[K, axes]: the dimension of a weight that every axis splits, `NO_INDEX` where none does.

    Args:
        assigned: int8[K, axes], the index of its reader that every axis splits.
        reader: its iteration space.
        number: the input that reads the weight.
    """
    table = np.full(len(reader.indices) + 1, NO_INDEX, np.int8)  # the last is for NO_INDEX
    for dim, index in enumerate(reader.inputs[number]):
        if index is not None:
            table[index] = dim
    found: Int8Array = table[assigned]
    return found
