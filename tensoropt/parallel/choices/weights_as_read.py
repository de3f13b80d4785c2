"""Weights stored in the layout in which an operator reads them.

This layout is the tensor map m_p of an operator's parameters in TensorOpt, equation 1.
"""

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
    """The input that reads a weight.

    Attributes:
        operator: name of the reader.
        number: number of the input.
    """

    operator: str
    number: int


def readings(
    graph: Graph, leader_of: Mapping[str, str], derivations: Mapping[str, Derivation]
) -> dict[str, Reading]:
    """Return the input in whose layout each weight is stored, by the weight's leader.

    An operator reads the weight there in the shape in which it is stored. Among several such
    operators it is the one with the most flops, and the first one of equals; the others reshard the
    weight. Variables that only their own updates read have no entry.

    Args:
        graph: the graph.
        leader_of: the leader of each operator; operators that are tied to a weight have one leader.
        derivations: the derivation of each operator, by name.
    """
    readers: dict[str, Reading] = {}
    for operator in graph:
        if operator.gradient is not None or graph[leader_of[operator.name]].is_variable:
            continue
        derivation = derivations[operator.name]
        for number, tensor in enumerate(operator.inputs):
            leader = leader_of[tensor.operator]
            if not graph[leader].is_variable or graph[tensor.operator].gradient is not None:
                continue
            if derivation.input_shapes[number] != derivations[leader].output_shapes[0]:
                continue
            reading = readers.get(leader)
            if reading is None or derivation.flops > derivations[reading.operator].flops:
                readers[leader] = Reading(operator.name, number)
    return readers


def layout_as_read(assigned: Int8Array, reader: Derivation, number: int) -> Int8Array:
    """Return the dimension of a weight that each axis splits, as int8[K, axes].

    Axes that split no dimension of the weight get `NO_INDEX`.

    Args:
        assigned: int8[K, axes], the index of the reader that every axis splits.
        reader: derivation of the reader.
        number: number of the input that reads the weight.
    """
    dim_of_index = np.full(len(reader.indices) + 1, NO_INDEX, np.int8)  # the last is for NO_INDEX
    for dim, index in enumerate(reader.inputs[number]):
        if index is not None:
            dim_of_index[index] = dim
    dims: Int8Array = dim_of_index[assigned]
    return dims
