"""The tensors that are saved for the backward pass, and the choices of saving that are searched.

TensorOpt, section 4.2: a tensor that is resharded for its reader may be saved before resharding,
after it, or both; or it is recomputed. Each tensor that the backward pass reads has one of four
roles:

- ``always``: it is kept anyway (variables, constants and placeholders).
- ``made``: its copy at the producer counts, because the producer's gradient or several readers read
  it.
- ``edge``: its copies count on the edge to its only reader.
- ``reader``: its copy counts at its only reader, and the search has no choice.

Views share the memory and the role of their tensor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import numpy as np

from tensoropt.arrays import BoolArray, Int64Array
from tensoropt.converters import Number
from tensoropt.errors import OptionError
from tensoropt.graph.backward_reads import VIEWS, BackwardReads
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.graph.tied_operators import leaders
from tensoropt.parallel.keeping import differentiates_gradients, has_plain_inputs, recomputable
from tensoropt.tdl import Derivation

__all__ = ["FRUGAL", "PAPER", "PLAIN", "SavedOnEdge", "SavedTensors", "Space"]

_SMALL_WEIGHT = 256
"""A weight is small if it has less than 1/256 of the bytes of all variables."""


@dataclass(frozen=True, slots=True)
class Space:
    """The strategies that are searched, besides those that differ in splits.

    Attributes:
        reuse: whether a tensor may be saved only before or only after resharding (section 4.2).
        recompute: whether operators other than contractions may be recomputed.
        sharded_storage: whether a weight may be stored in another layout than its reader's, so that
            it can be stored in pieces and gathered (ZeRO). If not, it is stored as it is read,
            since m_p of equation 1 is one of the operator's own tensor maps.
        partial_operands: whether linear operators may read partial sums.
        smallest_share: a tensor has choices if it has at least this share of the bytes that the
            backward pass reads; an activation, if it has this share of the activations' bytes. All
            copies of smaller tensors are saved. The copies of a tensor in the steps of an unrolled
            layer count together.
    """

    reuse: bool = False
    recompute: bool = False
    sharded_storage: bool = True
    partial_operands: bool = True
    smallest_share: Number = 1 / 256

    def __post_init__(self) -> None:
        if not 0 <= self.smallest_share <= 1:
            raise OptionError(f"a share is between 0 and 1. Got {self.smallest_share}.")


PLAIN = Space()
"""Only splits. Every copy that the backward pass reads is saved."""
FRUGAL = Space(reuse=True, recompute=True)
"""Splits, and every choice of kept copies."""
WHOLE_OPERANDS = Space(partial_operands=False)
"""Only splits, and no operator reads partial sums, as in the papers."""
PAPER = Space(sharded_storage=False, partial_operands=False)
"""The paper's space: only splits, and weights are stored as they are read."""


class SavedTensors:
    """The roles of a graph's tensors, and the choices of each operator.

    Args:
        graph: the graph.
        derivations: derivations of its operators.
        reads: the tensors that the backward pass reads.
        space: the choices that are searched.
        devices: number of devices. On one device nothing is resharded.
        same: for each operator its copy in the first step of an unrolled layer.
        only: names of the operators that may have choices; None for all.

    Attributes:
        made: the tensors with role ``made``.
        saved_inputs: for each operator the inputs whose saved copies count at it (role ``reader``).
        kept_choices: the choices (`tensoropt.parallel.configuration.KEPT`) of each operator that
            has several.
        is_plain: whether there are no roles and no choices.
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
        self._read_outputs = {
            self.root(TensorName(name, number))
            for name, numbers in reads.outputs.items()
            for number in numbers
        }
        self._leading_views = self._find_leading_views()
        has_choices = space.reuse or space.recompute  # otherwise consumers are not needed
        self._consumers = graph.consumers() if has_choices else {}
        self.kept_choices: dict[str, tuple[str, ...]] = {}
        self._find_kept_choices(devices)
        self._roles = {root: self._role_of(root) for root in {*self._readers, *self._read_outputs}}
        self.made = frozenset(root for root, role in self._roles.items() if role == "made")
        saved_inputs: dict[str, list[int]] = {}
        for root, role in self._roles.items():
            if role == "reader":
                ((operator, number),) = self._readers[root]
                saved_inputs.setdefault(operator.name, []).append(number)
        self.saved_inputs = {name: tuple(numbers) for name, numbers in saved_inputs.items()}
        self.is_plain = not (self._roles or self._leading_views or self.kept_choices)

    def role(self, tensor: TensorName) -> str:
        """Return the role of a tensor, empty if the backward pass does not read it."""
        root = self.root(tensor)
        if self._is_always(root):
            return "always"
        return self._roles.get(root, "")

    def is_large_weight(self, tensor: TensorName) -> bool:
        """Whether a tensor is the value of a variable large enough for its memory to count.

        Biases, for example, are not.
        """
        root = self.root(tensor)
        if not self._graph[root.operator].is_variable:
            return False
        return self._bytes(root) * _SMALL_WEIGHT >= self._variable_bytes

    @cached_property
    def _variable_bytes(self) -> int:
        return sum(self._bytes(TensorName(op.name, 0)) for op in self._graph if op.is_variable)

    def reads(self, operator: Operator, number: int) -> bool:
        """Whether the backward pass reads an input in the layout in which the operator reads it."""
        if operator.type in VIEWS:
            return number == 0 and operator.name in self._leading_views
        return number in self._reads.inputs.get(operator.name, ())

    def _role_of(self, root: TensorName) -> str:
        if self._is_always(root):
            return "always"
        readers = self._readers.get(root, [])
        if root in self._read_outputs or len(readers) != 1 or self._recomputing(root):
            return "made"
        ((reader, number),) = readers
        if root.operator not in self.kept_choices:
            return "reader"
        return "edge" if reader.inputs[number] == root else "made"

    def _is_always(self, root: TensorName) -> bool:
        operator = self._graph[root.operator]
        return operator.is_variable or operator.is_placeholder or operator.is_constant

    def _recomputing(self, root: TensorName) -> list[Operator]:
        """Return the readers that need a tensor only if they are recomputed."""
        return [
            operator
            for operator, number in self._all_consumers(root)
            if "recomputed" in self.kept_choices.get(operator.name, ())
            and not self.reads(operator, number)
        ]

    def _all_consumers(self, root: TensorName) -> list[tuple[Operator, int]]:
        """Return the readers of a tensor and of its views, with the numbers of their inputs."""
        consumers: list[tuple[Operator, int]] = []
        for operator, number in self._consumers.get(root, ()):
            if operator.type in VIEWS and number == 0:
                consumers += self._all_consumers(TensorName(operator.name, 0))
            else:
                consumers.append((operator, number))
        return consumers

    def root(self, tensor: TensorName) -> TensorName:
        """Return the tensor behind a view, or the tensor itself if it is no view."""
        operator = self._graph[tensor.operator]
        while operator.type in VIEWS and not operator.is_constant:
            tensor = operator.inputs[0]
            operator = self._graph[tensor.operator]
        return tensor

    def _find_leading_views(self) -> frozenset[str]:
        """Return the views between a tensor and an operator where the backward pass reads it."""
        views = set()
        for readers in self._readers.values():
            for reader, number in readers:
                operator = self._graph[reader.inputs[number].operator]
                while operator.type in VIEWS and not operator.is_constant:
                    views.add(operator.name)
                    operator = self._graph[operator.inputs[0].operator]
        return frozenset(views)

    def _find_kept_choices(self, devices: int) -> None:
        """Fill in `kept_choices`. Last operators come first, since recomputing needs an operator's
        inputs."""
        space = self._space
        if not (space.reuse or space.recompute) or differentiates_gradients(self._graph):
            return
        reuse = space.reuse and devices > 1
        large = self._large()
        variable_of = leaders(self._graph)
        for operator in reversed(tuple(self._graph)):
            if self._only is not None and operator.name not in self._only:
                continue
            choices = self._choices_of(operator, reuse, large)
            if len(choices) == 1:
                continue
            self.kept_choices[operator.name] = choices
            if operator.is_variable:
                for name, leader in variable_of.items():
                    if leader == operator.name:
                        self.kept_choices[name] = choices

    def _large(self) -> frozenset[TensorName]:
        """Return the tensors large enough to have choices."""
        bytes_of: Counter[bool] = Counter()
        for root in {*self._readers, *self._read_outputs}:
            bytes_of[self._layer(root)[0]] += self._bytes(root)
        share = self._space.smallest_share
        smallest = {True: share * bytes_of.total(), False: share * bytes_of[False]}
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
            if size >= max(smallest[layer[0]], 1)
            # A weight that is stored as it is read is not resharded.
            and (self._space.sharded_storage or not layer[0])
        }
        return frozenset(tensor for tensor in tensors if self._layer(tensor) in large)

    def _layer(self, root: TensorName) -> tuple[bool, str, int]:
        """Return whether a tensor is a weight, its operator in the first step, and its output
        number."""
        name = root.operator
        return self._graph[name].is_variable, self._same.get(name, name), root.index

    def _choices_of(
        self, operator: Operator, reuse: bool, has_choices: frozenset[TensorName]
    ) -> tuple[str, ...]:
        """Return the choices of kept copies of an operator's outputs."""
        outputs = [TensorName(operator.name, number) for number in range(len(operator.outputs))]
        if operator.is_constant or operator.type in VIEWS or operator.gradient is not None:
            return ("both",)
        large = [root for root in outputs if root in has_choices]
        readers = [each for root in large for each in self._readers.get(root, ())]
        if not large or not all(has_plain_inputs(reader) for reader, _ in readers):
            return ("both",)
        choices = ["both"]
        read_by_gradient = any(root in self._read_outputs for root in large)
        if reuse and readers:
            choices.append("before")
            if read_by_gradient and self._returns(operator, large):
                choices.append("after")
        needed = readers or read_by_gradient or any(self._recomputing(root) for root in large)
        if self._space.recompute and needed and self._is_cheap(operator):
            choices.append("recomputed")
        return tuple(choices)

    def _is_cheap(self, operator: Operator) -> bool:
        """Whether recomputing an operator is cheap: it is no contraction, and may be recomputed."""
        if not recomputable(operator) or not has_plain_inputs(operator):
            return False
        derivation = self._derivations[operator.name]
        return not any(
            index.reducer == "sum" and sum(number in dims for dims in derivation.inputs) > 1
            for number, index in enumerate(derivation.indices)
        )

    def _returns(self, operator: Operator, large: list[TensorName]) -> bool:
        """Whether an output that its own gradient reads can be resharded back from its only
        copy."""
        derivation = self._derivations[operator.name]
        if len(operator.outputs) != 1 or operator.is_variable or operator.is_placeholder:
            return False
        if any(index.spelled_out or index.reducer for index in derivation.indices):
            return False  # its rule computes the gradient
        consumers = self._consumers.get(large[0], ())
        return len(consumers) == 1 and self._readers.get(large[0], []) == list(consumers)

    def _bytes(self, root: TensorName) -> int:
        operator = self._graph[root.operator]
        spec = operator.value_spec(root.index)
        return 0 if operator.is_constant or -1 in spec.shape else spec.bytes


@dataclass(frozen=True, slots=True, eq=False)
class SavedOnEdge:
    """The costs of saving a tensor on an edge, for every pair of slots.

    Attributes:
        moved: bool[L, R], whether the tensor is resharded.
        before, after: bytes of the tensor at the producer, [L, 1], and at the reader, [1, R].
        forward, back: int64[L, R], nanoseconds of resharding to the reader, and back.
        role: the role of the tensor.
    """

    moved: BoolArray
    before: Int64Array
    after: Int64Array
    forward: Int64Array
    back: Int64Array
    role: str

    def costs(self, way: str, read: bool, again: bool) -> tuple[Int64Array, Int64Array]:
        """Return bytes and nanoseconds, both int64[L, R].

        Args:
            way: the kept copies of the tensor, one of `tensoropt.parallel.configuration.KEPT`.
            read: whether the backward pass reads the tensor in the layout at the reader.
            again: whether the reader is recomputed, which reads all its inputs.
        """
        zero = np.zeros_like(self.forward)
        resharded = np.where(self.moved, self.forward, 0)
        copy = np.where(self.moved, self.after, 0)
        if not read and not again:
            return zero, zero
        if way == "recomputed":
            return zero, resharded
        if read and self.role == "reader":  # counts at the reader
            return zero, zero
        if read and self.role == "edge":
            return (zero, resharded) if way == "before" else (zero + self.after, zero)
        if read and way == "after":
            return zero + self.after, np.where(self.moved, self.back, 0)
        # A tensor without a role is saved only for the reader that is recomputed.
        kept = zero if self.role else zero + self.before
        if way == "before":
            return kept, resharded
        return (copy if self.role else zero + self.after), zero
