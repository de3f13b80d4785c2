"""Where the tensors of a graph lie at both ends of an edge, under all configurations."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.graph.operator import GradientTag, Graph, Operator, TensorName
from tensoropt.parallel.assignments import SlotCodes, codes_of_slices, input_codes, output_codes
from tensoropt.parallel.choices import Choices
from tensoropt.parallel.kinds import Kinds
from tensoropt.parallel.options import Follower
from tensoropt.problem.model import SlotMap

__all__ = ["GraphSlots"]


class GraphSlots:
    """The groups of a graph's operators, and the slots of their tensors, each worked out once.

    Args:
        graph: the operators.
        kinds: of all of them.
        choices: per group its options.

    Attributes:
        node_of: per operator the number of its group.
        follower: per operator how it is configured.
        alike: per operator of a group a number, equal for those of one kind that have the same
            options and lie alike under each.
    """

    def __init__(self, graph: Graph, kinds: Kinds, choices: Sequence[Choices]) -> None:
        self._graph = graph
        self._derivations = kinds.derivations
        self._numbers = kinds.derivation_numbers
        self._choices = choices
        self.node_of: dict[str, int] = {}
        self.follower: dict[str, Follower] = {}
        for number, group in enumerate(choices):
            for name, follower in zip(group.members, group.options.followers, strict=True):
                self.node_of[name] = number
                self.follower[name] = follower
        self._slots: dict[Hashable, SlotCodes] = {}
        self._arrays: dict[tuple[bytes, int], Int64Array] = {}
        self._maps: dict[bytes, SlotMap] = {}
        self.alike: dict[str, int] = {}
        numbers: dict[Hashable, int] = {}
        for name, kind in kinds.of.items():
            if name in self.node_of:
                key = self._likeness(name, kind)
                self.alike[name] = numbers.setdefault(key, len(numbers))

    def _likeness(self, name: str, kind: int) -> Hashable:
        ways = self._choices[self.node_of[name]].options.kept
        key = kind, id(self.follower[name].assigned), ways
        tag = self._graph[name].gradient
        if tag is None:
            return key
        # A gradient lies as that of its x does, which comes before it.
        return key, self.alike.get(tag.x.operator), tag.x.index, tag.part == "dense" or name

    def made(self, tensor: TensorName, carries: bool) -> SlotCodes:
        """The slots of a tensor where it is made; ``carries`` says whether a gradient arrives."""
        tag = self._graph[tensor.operator].gradient
        if tag is not None and tag.part != "dense":
            return self._of_slices(tensor, tag)
        of = tensor if tag is None else tag.x
        assigned = self.follower[of.operator].assigned
        key = "made", self._numbers[of.operator], id(assigned), of.index, tag is None, carries
        if key not in self._slots:
            slots = output_codes(self._derivations[of.operator], assigned, of.index)
            slots = slots if tag is None else slots.swapped()
            self._slots[key] = self._shared(slots if carries else slots.without_gradient())
        return self._slots[key]

    def read(self, operator: Operator, number: int, carries: bool) -> SlotCodes:
        """The slots of a tensor where it is read; ``carries`` says whether a gradient leaves."""
        assigned = self.follower[operator.name].assigned
        key = "read", self._numbers[operator.name], id(assigned), number, carries
        if key not in self._slots:
            slots = input_codes(self._derivations[operator.name], assigned, number)
            self._slots[key] = self._shared(slots if carries else slots.without_gradient())
        return self._slots[key]

    def same(self, array: Int64Array) -> Int64Array:
        """The first of all arrays that are equal to this."""
        return self._arrays.setdefault((array.tobytes(), array.size), array)

    def map_of(self, slots: Int64Array) -> SlotMap:
        """The slots of a node's configurations; equal ones are one map."""
        slots = self.same(slots)
        key = slots.tobytes()
        if key not in self._maps:
            self._maps[key] = SlotMap(slots)
        return self._maps[key]

    def _shared(self, slots: SlotCodes) -> SlotCodes:
        return SlotCodes(*map(self.same, (slots.forward, slots.gradient, slots.of_option)))

    def _of_slices(self, tensor: TensorName, tag: GradientTag) -> SlotCodes:
        """The slots of a sparse gradient, which no gradient comes back to."""
        key = "sparse", tensor
        if key not in self._slots:
            dense = self.made(tag.x, carries=True)
            codes = np.zeros(dense.of_option.size, np.int64)
            shapes = self._graph.spec(tensor).shape, self._graph.spec(tag.x).shape
            if tag.part == "values" and len(shapes[0]) == len(shapes[1]):
                axes = self.follower[tag.x.operator].assigned.shape[1]
                codes = codes_of_slices(dense.gradient, axes)[dense.of_option]
            forward, of_option = np.unique(codes, return_inverse=True)
            self._slots[key] = self._shared(SlotCodes(forward, forward, of_option.ravel()))
        return self._slots[key]
