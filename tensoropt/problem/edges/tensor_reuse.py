"""Which tensors are saved for the backward pass, and which reuse of them is offered to the search.

TensorOpt, section 4.2: a tensor that is resharded for its reader may be saved before resharding,
after it, or both; or it is recomputed. A tensor has one of four roles: it is ``always`` there
(variables and what is fed); it is saved as ``made``, at its producer, whose gradient reads it, or
several readers do; its copies are counted on the ``edge`` to its one reader; or at that ``reader``
alone, where nothing is offered. Views share memory and role of their tensor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import numpy as np

from tensoropt.arrays import BoolArray, Int64Array
from tensoropt.errors import OptionError
from tensoropt.graph.backward_reads import VIEWS, BackwardReads
from tensoropt.graph.coarsen import leaders
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.parallel.keeping import differentiates_gradients, has_plain_inputs, recomputable
from tensoropt.tdl import Derivation

__all__ = ["FRUGAL", "PAPER", "PLAIN", "SavedOnEdge", "SavedTensors", "Space"]

# A weight of less than one in so many bytes of all variables is small.
_SMALL_WEIGHT = 256


@dataclass(frozen=True, slots=True)
class Space:
    """Which strategies are searched, beside those that differ in splits.

    Attributes:
        reuse: whether a tensor may be saved only before, or only after resharding (section 4.2).
        recompute: whether operators other than contractions may be recomputed.
        sharded_storage: whether a weight may be stored otherwise than its operator reads it, so
            that it can be stored in pieces and gathered (ZeRO). Else it lies as it is read, once:
            equation 1's m_p is of an operator's own tensor maps.
        partial_operands: whether linear operators may read partial sums.
        smallest_share: a tensor gets choices if it has at least this share of all bytes that the
            backward pass reads, an activation of those of activations; of smaller ones all copies
            are saved. What an unrolled layer makes in its steps counts together.
    """

    reuse: bool = False
    recompute: bool = False
    sharded_storage: bool = True
    partial_operands: bool = True
    smallest_share: float = 1 / 256

    def __post_init__(self) -> None:
        if not 0 <= self.smallest_share <= 1:
            raise OptionError(f"a share is between 0 and 1. Got {self.smallest_share}.")


PLAIN = Space()
"""Splits alone: every copy that the backward pass reads is saved."""
FRUGAL = Space(reuse=True, recompute=True)
"""Whatever may be kept or not."""
WHOLE_OPERANDS = Space(partial_operands=False)
"""Splits alone, and no operator reads partial sums, as in the papers."""
PAPER = Space(sharded_storage=False, partial_operands=False)
"""The paper's: splits alone, and weights lie as they are read."""


class SavedTensors:
    """The roles of a graph's tensors, and what is offered for each operator.

    Args:
        graph: the graph.
        derivations: of its operators.
        reads: what the backward pass reads.
        space: what is searched.
        devices: how many there are; on one nothing is resharded.
        same: per operator the first one that does the same in a step of an unrolled layer, where
            steps count together.
        only: names of the operators that may be offered something; None for all.

    Attributes:
        made: the tensors that are saved at their producers.
        carried: per operator the inputs whose memory is counted at it, their reader.
        offered: per operator its choices of `tensoropt.parallel.configuration.KEPT`, where there
            are several.
        is_plain: whether nothing is read and nothing is offered: then all roles are empty.
    """

    def __init__(
        self,
        graph: Graph,
        derivations: Mapping[str, Derivation],
        reads: BackwardReads,
        space: Space,
        devices: int,
        same: Mapping[str, str] = MappingProxyType({}),
        only: Collection[str] | None = None,
    ) -> None:
        self._graph = graph
        self._same = same
        self._derivations = derivations
        self._reads = reads
        self._space = space
        self._only = only
        self._readers: dict[TensorName, list[tuple[Operator, int]]] = {}
        for operator in graph:
            for number in reads.inputs.get(operator.name, ()):
                root = self.root(operator.inputs[number])
                self._readers.setdefault(root, []).append((operator, number))
        self._own = {
            self.root(TensorName(name, number))
            for name, numbers in reads.outputs.items()
            for number in numbers
        }
        self._leads = self._leading_views()
        choosing = space.reuse or space.recompute  # else consumers are not asked for
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
        root = self.root(tensor)
        if self._is_always(root):
            return "always"
        return self._roles.get(root, "")

    def is_large_weight(self, tensor: TensorName) -> bool:
        """Whether a tensor is the value of a variable that has a share of all of them that counts;
        biases and their like have not."""
        root = self.root(tensor)
        if not self._graph[root.operator].is_variable:
            return False
        return self._bytes(root) * _SMALL_WEIGHT >= self._variable_bytes

    @cached_property
    def _variable_bytes(self) -> int:
        return sum(self._bytes(TensorName(op.name, 0)) for op in self._graph if op.is_variable)

    def reads(self, operator: Operator, number: int) -> bool:
        """Whether the backward pass reads an input in the layout that it has at an operator."""
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
        """The readers of a tensor that may need it only to be recomputed."""
        return [
            operator
            for operator, number in self._all_consumers(root)
            if "recomputed" in self.offered.get(operator.name, ())
            and not self.reads(operator, number)
        ]

    def _all_consumers(self, root: TensorName) -> list[tuple[Operator, int]]:
        """The readers of a tensor and of its views, and the numbers of their inputs."""
        found: list[tuple[Operator, int]] = []
        for operator, number in self._consumers.get(root, ()):
            if operator.type in VIEWS and number == 0:
                found += self._all_consumers(TensorName(operator.name, 0))
            else:
                found.append((operator, number))
        return found

    def root(self, tensor: TensorName) -> TensorName:
        """The tensor that one is a view of; itself if it is none."""
        operator = self._graph[tensor.operator]
        while operator.type in VIEWS and not operator.is_constant:
            tensor = operator.inputs[0]
            operator = self._graph[tensor.operator]
        return tensor

    def _leading_views(self) -> frozenset[str]:
        """The views between tensors and the operators that the backward pass reads them at."""
        found = set()
        for readers in self._readers.values():
            for reader, number in readers:
                operator = self._graph[reader.inputs[number].operator]
                while operator.type in VIEWS and not operator.is_constant:
                    found.add(operator.name)
                    operator = self._graph[operator.inputs[0].operator]
        return frozenset(found)

    def _offer(self, devices: int) -> None:
        """Fill in `offered`, last operators first: what is recomputed needs its inputs."""
        found, space = self.offered, self._space
        if not (space.reuse or space.recompute) or differentiates_gradients(self._graph):
            return
        reuse = space.reuse and devices > 1
        large = self._large()
        variable_of = leaders(self._graph)
        for operator in reversed(tuple(self._graph)):
            if self._only is not None and operator.name not in self._only:
                continue
            ways = self._ways(operator, reuse, large)
            if len(ways) == 1:
                continue
            found[operator.name] = ways
            if operator.is_variable:
                for name, leader in variable_of.items():
                    if leader == operator.name:
                        found[name] = ways

    def _large(self) -> frozenset[TensorName]:
        """The tensors that have a share that counts."""
        classes: Counter[bool] = Counter()
        for root in {*self._readers, *self._own}:
            classes[self._layer(root)[0]] += self._bytes(root)
        share = self._space.smallest_share
        least = {True: share * classes.total(), False: share * classes[False]}
        tensors = [
            TensorName(operator.name, number)
            for operator in self._graph
            for number in range(len(operator.outputs))
        ]
        layers: Counter[tuple[bool, str, int]] = Counter()
        for tensor in tensors:
            layers[self._layer(tensor)] += self._bytes(tensor)
        large = {
            layer
            for layer, size in layers.items()
            if size >= max(least[layer[0]], 1)
            # A weight that lies as it is read is not resharded.
            and (self._space.sharded_storage or not layer[0])
        }
        return frozenset(tensor for tensor in tensors if self._layer(tensor) in large)

    def _layer(self, root: TensorName) -> tuple[bool, str, int]:
        """Whether a tensor is a weight, and which output of which layer it is."""
        name = root.operator
        return self._graph[name].is_variable, self._same.get(name, name), root.index

    def _ways(
        self, operator: Operator, reuse: bool, counted: frozenset[TensorName]
    ) -> tuple[str, ...]:
        outputs = [TensorName(operator.name, number) for number in range(len(operator.outputs))]
        if operator.is_constant or operator.type in VIEWS or operator.gradient is not None:
            return ("both",)
        large = [root for root in outputs if root in counted]
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
        """Whether recomputing an operator is worth offering: it is no contraction."""
        if not recomputable(operator) or not has_plain_inputs(operator):
            return False
        derivation = self._derivations[operator.name]
        return not any(
            index.reducer == "sum" and sum(number in dims for dims in derivation.inputs) > 1
            for number, index in enumerate(derivation.indices)
        )

    def _returns(self, operator: Operator, large: list[TensorName]) -> bool:
        """Whether an output that its own gradient reads can be resharded back from its one copy."""
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
class SavedOnEdge:
    """What saving a tensor costs on an edge, for every pair of slots.

    Attributes:
        moved: bool[L, R], whether the tensor is resharded.
        before, after: bytes of the tensor as made, [L, 1], and as read, [1, R].
        forward, back: int64[L, R], nanoseconds of resharding once more, and in reverse.
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
            way: what is saved, of `tensoropt.parallel.configuration.KEPT`.
            read: whether the backward pass reads the tensor in the layout at the reader.
            again: whether the reader is recomputed, for which it reads all its inputs.
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
        # A tensor without a role is saved for the recomputed reader alone.
        kept = nothing if self.role else nothing + self.before
        if way == "before":
            return kept, resharded
        return (copy if self.role else nothing + self.after), nothing
