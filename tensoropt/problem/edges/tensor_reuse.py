"""What the backward pass reads of each tensor, and so which choices of what to keep are offered.

A tensor has one of four roles: ``always`` there (variables and what is fed), kept ``made`` (where
it is made: its producer's gradient reads it, or several readers do), kept on the ``edge`` to its
one reader, or counted at that ``reader`` alone. Views share their tensor's memory and role.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tensoropt.arrays import BoolArray, Int64Array
from tensoropt.errors import OptionError
from tensoropt.graph.backward_reads import VIEWS, BackwardReads
from tensoropt.graph.coarsen import leaders
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.parallel.keeping import differentiates_gradients, has_plain_inputs, recomputable
from tensoropt.tdl import Derivation

__all__ = ["PLAIN", "KeptOnEdge", "KeptTensors", "Space"]


@dataclass(frozen=True, slots=True)
class Space:
    """Which strategies are searched, beside those that differ in splits.

    Attributes:
        reuse: whether a tensor may be kept before or after resharding only (section 4.2).
        recompute: whether operators that are no contractions may be computed again.
        smallest_share: of all that the backward pass reads, the share from which on a tensor is
            worth a choice; for smaller ones all copies are kept.
    """

    reuse: bool = False
    recompute: bool = False
    smallest_share: float = 1 / 256

    def __post_init__(self) -> None:
        if not 0 <= self.smallest_share <= 1:
            raise OptionError(f"a share is between 0 and 1. Got {self.smallest_share}.")


PLAIN = Space()
"""Splits alone: every copy that the backward pass reads is kept."""


class KeptTensors:
    """The roles of a graph's tensors, and what is offered for each operator.

    Args:
        graph: the graph.
        derivations: of its operators.
        reads: what the backward pass reads.
        space: what is searched.
        devices: how many there are; on one nothing is resharded.

    Attributes:
        made: the tensors kept where they are made.
        carried: per operator the inputs that are counted at their reader, it.
        offered: per operator its choices of `tensoropt.parallel.configuration.KEPT`, where there
            are several.
        is_plain: whether nothing is read and nothing offered: then no role makes a difference.
    """

    def __init__(
        self,
        graph: Graph,
        derivations: Mapping[str, Derivation],
        reads: BackwardReads,
        space: Space,
        devices: int,
    ) -> None:
        self._graph = graph
        self._derivations = derivations
        self._reads = reads
        self._space = space
        self._readers: dict[TensorName, list[tuple[Operator, int]]] = {}
        for operator in graph:
            for number in reads.inputs.get(operator.name, ()):
                root = self._root(operator.inputs[number])
                self._readers.setdefault(root, []).append((operator, number))
        self._own = {
            self._root(TensorName(name, number))
            for name, numbers in reads.outputs.items()
            for number in numbers
        }
        self._leads = self._leading_views()
        choosing = space.reuse or space.recompute  # else nobody asks who reads a tensor
        self._consumers = graph.consumers() if choosing else {}
        self.offered: dict[str, tuple[str, ...]] = {}
        self._offer(devices)
        self._roles = {root: self._role_of(root) for root in {*self._readers, *self._own}}
        self.made = frozenset(root for root, role in self._roles.items() if role == "made")
        carried: dict[str, list[int]] = {}
        for root, role in self._roles.items():
            if role == "reader":
                ((operator, number),) = self._readers[root]
                carried.setdefault(operator.name, []).append(number)
        self.carried = {name: tuple(numbers) for name, numbers in carried.items()}
        self.is_plain = not (self._roles or self._leads or self.offered)

    def role(self, tensor: TensorName) -> str:
        """always, made, edge or reader; empty where the backward pass does not read a tensor."""
        root = self._root(tensor)
        if self._is_always(root):
            return "always"
        return self._roles.get(root, "")

    def reads(self, operator: Operator, number: int) -> bool:
        """Whether the backward pass reads an input as it lies at an operator."""
        if operator.type in VIEWS:
            return number == 0 and operator.name in self._leads
        return number in self._reads.inputs.get(operator.name, ())

    def _role_of(self, root: TensorName) -> str:
        if self._is_always(root):
            return "always"
        readers = self._readers.get(root, [])
        if root in self._own or len(readers) != 1 or self._recomputing(root):
            return "made"
        ((reader, number),) = readers
        if root.operator not in self.offered:
            return "reader"
        return "edge" if reader.inputs[number] == root else "made"

    def _is_always(self, root: TensorName) -> bool:
        operator = self._graph[root.operator]
        return operator.is_variable or operator.is_placeholder or operator.is_constant

    def _recomputing(self, root: TensorName) -> list[Operator]:
        """What may read a tensor only to be computed again."""
        return [
            operator
            for operator, number in self._all_consumers(root)
            if "recomputed" in self.offered.get(operator.name, ())
            and not self.reads(operator, number)
        ]

    def _all_consumers(self, root: TensorName) -> list[tuple[Operator, int]]:
        """Who reads a tensor, itself or a view of it."""
        found: list[tuple[Operator, int]] = []
        for operator, number in self._consumers.get(root, ()):
            if operator.type in VIEWS and number == 0:
                found += self._all_consumers(TensorName(operator.name, 0))
            else:
                found.append((operator, number))
        return found

    def _root(self, tensor: TensorName) -> TensorName:
        operator = self._graph[tensor.operator]
        while operator.type in VIEWS and not operator.is_constant:
            tensor = operator.inputs[0]
            operator = self._graph[tensor.operator]
        return tensor

    def _leading_views(self) -> frozenset[str]:
        """The views on the way from a tensor to what reads it."""
        found = set()
        for readers in self._readers.values():
            for reader, number in readers:
                operator = self._graph[reader.inputs[number].operator]
                while operator.type in VIEWS and not operator.is_constant:
                    found.add(operator.name)
                    operator = self._graph[operator.inputs[0].operator]
        return frozenset(found)

    # What is offered

    def _offer(self, devices: int) -> None:
        """Fill in `offered` from the outputs on: what is computed again needs its inputs."""
        found, space = self.offered, self._space
        if not (space.reuse or space.recompute) or differentiates_gradients(self._graph):
            return
        reuse = space.reuse and devices > 1
        roots = {*self._readers, *self._own}
        least = space.smallest_share * sum(self._bytes(root) for root in roots)
        variable_of = leaders(self._graph)
        for operator in reversed(tuple(self._graph)):
            ways = self._ways(operator, reuse, least)
            if len(ways) == 1:
                continue
            found[operator.name] = ways
            if operator.is_variable:
                for name, leader in variable_of.items():
                    if leader == operator.name:
                        found[name] = ways

    def _ways(self, operator: Operator, reuse: bool, least: float) -> tuple[str, ...]:
        outputs = [TensorName(operator.name, number) for number in range(len(operator.outputs))]
        if operator.is_constant or operator.type in VIEWS or operator.gradient is not None:
            return ("both",)
        large = [root for root in outputs if self._bytes(root) >= max(least, 1)]
        readers = [each for root in large for each in self._readers.get(root, ())]
        if not large or not all(has_plain_inputs(reader) for reader, _ in readers):
            return ("both",)
        ways = ["both"]
        own = any(root in self._own for root in large)
        if reuse and readers:
            ways.append("before")
            if own and self._returns(operator, large):
                ways.append("after")
        needed = readers or own or any(self._recomputing(root) for root in large)
        if self._space.recompute and needed and self._is_cheap(operator):
            ways.append("recomputed")
        return tuple(ways)

    def _is_cheap(self, operator: Operator) -> bool:
        """Whether computing an operator again is worth a thought: it sums no products."""
        if not recomputable(operator) or not has_plain_inputs(operator):
            return False
        derivation = self._derivations[operator.name]
        return not any(
            index.reducer == "sum" and sum(number in dims for dims in derivation.inputs) > 1
            for number, index in enumerate(derivation.indices)
        )

    def _returns(self, operator: Operator, large: list[TensorName]) -> bool:
        """Whether an output that its own gradient reads may come back from its one copy."""
        derivation = self._derivations[operator.name]
        if len(operator.outputs) != 1 or operator.is_variable or operator.is_placeholder:
            return False
        if any(index.spelled_out or index.reducer for index in derivation.indices):
            return False  # a rule has a gradient of its own
        consumers = self._consumers.get(large[0], ())
        return len(consumers) == 1 and self._readers.get(large[0], []) == list(consumers)

    def _bytes(self, root: TensorName) -> int:
        operator = self._graph[root.operator]
        spec = operator.value_spec(root.index)
        return 0 if operator.is_constant or -1 in spec.shape else spec.bytes


@dataclass(frozen=True, slots=True, eq=False)
class KeptOnEdge:
    """What keeping costs on an edge, for every pair of slots.

    Attributes:
        moved: bool[L, R], whether the tensor is resharded.
        before, after: bytes of the tensor as made, [L, 1], and as read, [1, R].
        forward, back: int64[L, R], nanoseconds of resharding once more, and of the way back.
        role: of the tensor.
    """

    moved: BoolArray
    before: Int64Array
    after: Int64Array
    forward: Int64Array
    back: Int64Array
    role: str

    def costs(self, way: str, read: bool, again: bool) -> tuple[Int64Array, Int64Array]:
        """Bytes and nanoseconds, both int64[L, R].

        Args:
            way: what is kept, of `tensoropt.parallel.configuration.KEPT`.
            read: whether the backward pass reads the tensor as it lies at the reader.
            again: whether the reader is computed again, for which it reads all its inputs.
        """
        nothing = np.zeros_like(self.forward)
        resharded = np.where(self.moved, self.forward, 0)
        copy = np.where(self.moved, self.after, 0)
        if not read and not again:
            return nothing, nothing
        if way == "recomputed":
            return nothing, resharded
        if read and self.role == "reader":  # counted there
            return nothing, nothing
        if read and self.role == "edge":
            return (nothing, resharded) if way == "before" else (nothing + self.after, nothing)
        if read and way == "after":
            return nothing + self.after, np.where(self.moved, self.back, 0)
        # Nothing else keeps it for a reader that only computing again gives one.
        kept = nothing if self.role else nothing + self.before
        if way == "before":
            return kept, resharded
        return (copy if self.role else nothing + self.after), nothing
