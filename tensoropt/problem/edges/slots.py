"""The layouts of a graph's tensors at both ends of an edge, under all configurations."""

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
    """The layouts of slots, as numbers (`tensoropt.parallel.assignments.encode`).

    Compared by identity; equal ones of a graph are one.

    Attributes:
        codes: int64[L], the layout of each slot.
        distinct: int64[D], the different ones.
        which: int64[L], which of them each slot has.
    """

    codes: Int64Array
    distinct: Int64Array
    which: Int64Array

    @classmethod
    def of(cls, codes: Int64Array) -> LayoutCodes:
        """Of the layout of each slot."""
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
    """The slots of a graph's tensors, each worked out once.

    Args:
        annotated: the graph.

    Attributes:
        node_of: per operator the number of its group.
        follower: per operator how it is configured.
        alike: per operator of a group a number, equal for those of one kind that have the same
            options and the same layouts under each.
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
        self.alike: dict[str, int] = {}
        numbers: dict[Hashable, int] = {}
        for name, kind in self._kinds.of.items():
            if name in self.node_of:
                key = self._likeness(name, kind)
                self.alike[name] = numbers.setdefault(key, len(numbers))

    def _likeness(self, name: str, kind: int) -> Hashable:
        ways = self._choices[self.node_of[name]].kept(name)
        key = kind, self.follower[name], ways
        tag = self._graph[name].gradient
        if tag is None:
            return key
        # A gradient has the layout of the gradient of its x, which comes before it.
        return key, self.alike.get(tag.x.operator), tag.x.index, tag.part == "dense" or name

    def made(self, tensor: TensorName, carries: bool) -> TensorSlots:
        """The slots of a tensor at its producer; ``carries`` says whether a gradient arrives."""
        tag = self._graph[tensor.operator].gradient
        if tag is not None and tag.part != "dense":
            return self._of_slices(tensor, tag)
        of = tensor if tag is None else tag.x
        follower, number = self.follower[of.operator], self._kinds.derivation_numbers[of.operator]
        key = "made", number, follower, of.index, tag is None, carries
        if key not in self._slots:
            derivation = self._kinds.derivations[of.operator]
            slots = output_codes(derivation, follower.assigned, of.index)
            slots = slots if tag is None else slots.swapped()
            self._slots[key] = self._shared(slots if carries else slots.without_gradient())
        return self._slots[key]

    def read(self, operator: Operator, number: int, carries: bool) -> TensorSlots:
        """The slots of an input at its reader; ``carries`` says whether a gradient leaves."""
        name, follower = operator.name, self.follower[operator.name]
        key = "read", self._kinds.derivation_numbers[name], follower, number, carries
        if key not in self._slots:
            slots = input_codes(self._kinds.derivations[name], follower.assigned, number)
            self._slots[key] = self._shared(slots if carries else slots.without_gradient())
        return self._slots[key]

    def map_of(self, slots: Int64Array) -> SlotMap:
        """The slots of configurations as a map; equal ones are one."""
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
        """The slots of a sparse gradient, which has no gradient of its own."""
        key = "sparse", tensor
        if key not in self._slots:
            dense = self.made(tag.x, carries=True)
            codes = np.zeros(dense.of_option.slots.size, np.int64)
            shapes = self._graph.spec(tensor).shape, self._graph.spec(tag.x).shape
            if tag.part == "values" and len(shapes[0]) == len(shapes[1]):
                axes = self.follower[tag.x.operator].assigned.shape[1]
                codes = codes_of_slices(dense.gradient.codes, axes)[dense.of_option.slots]
            forward, of_option = np.unique(codes, return_inverse=True)
            self._slots[key] = self._shared(SlotCodes(forward, forward, of_option.ravel()))
        return self._slots[key]
