"""The layouts of a graph's tensors at both ends of an edge, under every configuration."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.graph.operator import GradientTag, Operator, TensorName
from tensoropt.parallel.assignments import (
    SlotCodes,
    codes_of_slices,
    input_codes,
    output_codes,
)
from tensoropt.parallel.choices.options import Follower
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.model import SlotMap

__all__ = ["GraphSlots", "LayoutCodes", "TensorSlots"]


@dataclass(frozen=True, slots=True, eq=False)
class LayoutCodes:
    """The layouts of slots, as codes (`tensoropt.parallel.assignments.encode`).

    They are compared by identity: within a graph, equal ones share one object.

    Attributes:
        codes: int64[L], the layout of each slot.
        distinct: int64[D], the distinct layouts.
        which: int64[L], the position in ``distinct`` of each slot's layout.
    """

    codes: Int64Array
    distinct: Int64Array
    which: Int64Array

    @classmethod
    def of(cls, codes: Int64Array) -> LayoutCodes:
        """Find the distinct layouts of slots."""
        distinct, which = np.unique(codes, return_inverse=True)
        return cls(codes, distinct, which.ravel())


@dataclass(frozen=True, slots=True)
class TensorSlots:
    """The slots of a tensor at one operator.

    Attributes:
        forward, gradient: the layouts of the tensor and of its gradient in each slot.
        of_option: the slot of each configuration.
    """

    forward: LayoutCodes
    gradient: LayoutCodes
    of_option: SlotMap


class GraphSlots:
    """The slots of a graph's tensors, each computed once.

    Args:
        annotated: the graph.

    Attributes:
        node_of: for each operator the number of its group.
        follower: for each operator its configurations.
        signature: a number for each operator of a group. It is equal for operators of one kind that
            have the same options and the same layouts under each.
    """

    def __init__(self, annotated: AnnotatedGraph) -> None:
        self._graph = annotated.graph
        self._kinds = annotated.kinds
        self._choices = annotated.choices
        self.node_of: dict[str, int] = {}
        self.follower: dict[str, Follower] = {}
        for number, group in enumerate(self._choices):
            for name, follower in zip(group.members, group.options.followers, strict=True):
                self.node_of[name] = number
                self.follower[name] = follower
        self._slots: dict[Hashable, TensorSlots] = {}
        self._codes: dict[bytes, LayoutCodes] = {}
        self._maps: dict[bytes, SlotMap] = {}
        self.signature: dict[str, int] = {}
        numbers: dict[Hashable, int] = {}
        for name, kind in self._kinds.of.items():
            if name in self.node_of:
                key = self._signature_key(name, kind)
                self.signature[name] = numbers.setdefault(key, len(numbers))

    def _signature_key(self, name: str, kind: int) -> Hashable:
        kept = self._choices[self.node_of[name]].kept(name)
        key = kind, self.follower[name], kept
        tag = self._graph[name].gradient
        if tag is None:
            return key
        # A gradient has the layout of x's gradient. x comes before it.
        return key, self.signature.get(tag.x.operator), tag.x.index, tag.part == "dense" or name

    def at_producer(self, tensor: TensorName, carries: bool) -> TensorSlots:
        """Return the slots of a tensor at its producer.

        ``carries`` says whether a gradient of the tensor is sent back.
        """
        tag = self._graph[tensor.operator].gradient
        if tag is not None and tag.part != "dense":
            return self._of_slices(tensor, tag)
        x = tensor if tag is None else tag.x
        follower, number = self.follower[x.operator], self._kinds.derivation_numbers[x.operator]
        key = "made", number, follower, x.index, tag is None, carries
        if key not in self._slots:
            derivation = self._kinds.derivations[x.operator]
            slots = output_codes(derivation, follower.assigned, x.index)
            slots = slots if tag is None else slots.swapped()
            self._slots[key] = self._shared(slots if carries else slots.without_gradient())
        return self._slots[key]

    def at_reader(self, operator: Operator, number: int, carries: bool) -> TensorSlots:
        """Return the slots of an input at its reader.

        ``carries`` says whether a gradient of the input is sent back.
        """
        name, follower = operator.name, self.follower[operator.name]
        key = "read", self._kinds.derivation_numbers[name], follower, number, carries
        if key not in self._slots:
            slots = input_codes(self._kinds.derivations[name], follower.assigned, number)
            self._slots[key] = self._shared(slots if carries else slots.without_gradient())
        return self._slots[key]

    def map_of(self, slots: Int64Array) -> SlotMap:
        """Return the slots of configurations as a map. Equal slots share one map."""
        key = slots.tobytes()
        if key not in self._maps:
            self._maps[key] = SlotMap(slots)
        return self._maps[key]

    def _shared(self, slots: SlotCodes) -> TensorSlots:
        return TensorSlots(
            self._codes_of(slots.forward),
            self._codes_of(slots.gradient),
            self.map_of(slots.of_option),
        )

    def _codes_of(self, codes: Int64Array) -> LayoutCodes:
        key = codes.tobytes()
        if key not in self._codes:
            self._codes[key] = LayoutCodes.of(codes)
        return self._codes[key]

    def _of_slices(self, tensor: TensorName, tag: GradientTag) -> TensorSlots:
        """Return the slots of a sparse gradient, which is not differentiated itself."""
        key = "sparse", tensor
        if key not in self._slots:
            dense = self.at_producer(tag.x, carries=True)
            codes = np.zeros(dense.of_option.slots.size, np.int64)
            shapes = self._graph.spec(tensor).shape, self._graph.spec(tag.x).shape
            if tag.part == "values" and len(shapes[0]) == len(shapes[1]):
                axes = self.follower[tag.x.operator].assigned.shape[1]
                codes = codes_of_slices(dense.gradient.codes, axes)[dense.of_option.slots]
            forward, of_option = np.unique(codes, return_inverse=True)
            self._slots[key] = self._shared(SlotCodes(forward, forward, of_option.ravel()))
        return self._slots[key]
