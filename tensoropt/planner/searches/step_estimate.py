"""What a step takes at least, work and communication, in milliseconds a graph.

The search adds up the times of operators and of edges. One pass over the graph, in topological
order, bounds that sum from below. An operator v has for each configuration c

    least(v, c) = time(v, c) + sum over its inputs u of
                  min over configurations d of u: least(u, d) / readers(u) + edge(d, c)

Where an operator has several readers, each of them gets an equal share of it. The bound is the sum
of the minima of operators that nothing reads. It is exact for a chain. Elsewhere each share is at
most what a strategy pays for it: readers may ask for different configurations of one operator.

On a mesh that takes axes of the devices together, it is an estimate: the finer mesh has strategies
that this one lacks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tensoropt.arrays import Int8Array, Int64Array
from tensoropt.cost.model import ClusterCostModel
from tensoropt.graph.coarsen import READS
from tensoropt.graph.differentiation import differentiated_inputs, sparse_tensors
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.graph.unrolled import same_in_every_step
from tensoropt.parallel.any_size import SHAPE_TYPES
from tensoropt.parallel.assignments import SlotCodes, assignments, input_codes, output_codes
from tensoropt.parallel.strategy import derivation_of
from tensoropt.problem.edges.edge_costs import EdgeCosts, TensorOnEdge
from tensoropt.problem.edges.slots import LayoutCodes, TensorSlots
from tensoropt.problem.edges.sparse_gradients import looked_up
from tensoropt.problem.model import SlotMap
from tensoropt.problem.operators.gradient_sums import gradient_sums, sum_operator
from tensoropt.problem.operators.local_work import attributes_that_matter
from tensoropt.problem.operators.operator_costs import OperatorCosts
from tensoropt.tdl import Derivation
from tensoropt.tdl.registry import moves_rows
from tensoropt.tensor_spec import TensorSpec

__all__ = ["StepEstimate"]

_Times = npt.NDArray[np.float64]

_MOST_REMEMBERED = 50_000
"""Operators in their places, of all graphs: each takes some kilobytes."""


@dataclass(slots=True, eq=False)
class _Kind:
    """What operators of one kind have in common. Compared by identity.

    Attributes:
        operator: one of them.
        derivation: its iteration space.
        assigned: its configurations.
        adds_up: whether its outputs may be partial sums.
        times: by number of inputs with a gradient, nanoseconds under each configuration.
        slots: of its tensors, by whether they are made or read, number, and whether a gradient
            comes back.
        on_shares: the kind that may read partial sums, by sets of inputs.
    """

    operator: Operator
    derivation: Derivation
    assigned: Int8Array
    adds_up: bool
    times: dict[int, _Times] = field(default_factory=dict)
    slots: dict[tuple[bool, int, bool], TensorSlots] = field(default_factory=dict)
    on_shares: dict[tuple[tuple[int, ...], ...], _Kind] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class _Share:
    """What each reader of an operator gets of it. Compared by identity.

    Attributes:
        kind: of the operator.
        times: nanoseconds under each configuration, of the operator and all before it.
    """

    kind: _Kind
    times: _Times


class StepEstimate:
    """Estimates of steps on one mesh. Graphs that have operators in common share their prices.

    Args:
        cost: prices, and the mesh.
    """

    def __init__(self, cost: ClusterCostModel) -> None:
        self._cost = cost
        self._operators = OperatorCosts(cost.mesh, cost)
        self._edges = EdgeCosts(cost.mesh, cost)
        # By identity, as graphs share operators. The operator is kept, too, so that no other one
        # gets its number.
        self._kind_of: dict[int, tuple[Operator, _Kind]] = {}
        self._kinds: dict[Hashable, _Kind] = {}
        self._shares: dict[Hashable, _Share] = {}
        self._is_recurrent: bool | None = None
        self._codes: dict[bytes, LayoutCodes] = {}

    def __call__(self, graph: Graph) -> int:
        """Nanoseconds of a step."""
        if len(self._shares) > _MOST_REMEMBERED:
            self._shares.clear()
        is_sparse = frozenset[TensorName]().union(*sparse_tensors(graph).values()).__contains__
        differentiated = differentiated_inputs(graph)
        readers = _readers(graph)
        uses = Counter([tensor for operator in graph for tensor in operator.inputs])
        partial: set[TensorName] = set()
        shares: dict[str, _Share] = {}
        read: set[Hashable] = set()
        total = float(self._cost.step_nanoseconds())
        for name, operator in graph.operators.items():
            if _is_source(graph, operator):
                continue
            edges: list[_Edge] = []
            kind, numbers = self.kind(operator), differentiated.get(name, ())
            kind = self._on_shares(kind, operator, partial, uses)
            if kind.adds_up:
                partial.update(TensorName(name, n) for n in range(len(operator.outputs)))
            for number, tensor in enumerate(operator.inputs):
                if not _is_edge(operator, number):
                    continue
                share, carries = shares.get(tensor.operator), number in numbers
                source = share or self.kind(graph[tensor.operator])
                if self._is_read_again(graph, read, (tensor, number, kind)):
                    total += 0.0 if share is None else float(share.times.min())
                elif share is not None or carries:
                    edges.append((number, source, tensor.index, carries, is_sparse(tensor)))
            share = self._share(kind, len(numbers), edges, max(1, readers[name]))
            if readers[name]:
                shares[name] = share
            else:
                total += float(share.times.min())
        for tensor, count in gradient_sums(graph, differentiated).items():
            total += self._of_sum(graph.spec(tensor), count)
        return int(total)

    def _is_read_again(self, graph: Graph, read: set[Hashable], use: Hashable) -> bool:
        """Whether operators alike have read a tensor, where these may be steps of a recurrence:
        then all of them are one node of the search, which moves the tensor once."""
        if self._is_recurrent is None:  # asked of the script's graph first
            first = same_in_every_step(graph, lambda name: self.kind(graph[name]))
            self._is_recurrent = any(name != other for name, other in first.items())
        again = self._is_recurrent and use in read
        read.add(use)
        return again

    def _share(self, kind: _Kind, gradients: int, edges: list[_Edge], readers: int) -> _Share:
        """What each reader gets of an operator, of which so many inputs have a gradient."""
        key = kind, gradients, readers, tuple(edges)
        if key not in self._shares:
            self._shares[key] = _Share(kind, self._least(kind, gradients, edges) / readers)
        return self._shares[key]

    def kind(self, operator: Operator) -> _Kind:
        """The kind of an operator, one object for all that compute the same of like inputs."""
        known = self._kind_of.get(id(operator))
        if known is None:
            key = (
                operator.type,
                tuple([(spec.shape, spec.dtype, _value(spec)) for spec in operator.input_specs]),
                tuple([(spec.shape, spec.dtype) for spec in operator.outputs]),
                attributes_that_matter(operator),
            )
            if key not in self._kinds:
                self._kinds[key] = self._new(operator, derivation_of(operator))
            known = self._kind_of[id(operator)] = operator, self._kinds[key]
        return known[1]

    def _new(self, operator: Operator, derivation: Derivation) -> _Kind:
        assigned = assignments(derivation, self._cost.mesh)
        adds_up = any(each.splittable and each.reducer == "sum" for each in derivation.indices)
        return _Kind(operator, derivation, assigned, adds_up)

    def _on_shares(
        self,
        kind: _Kind,
        operator: Operator,
        partial: set[TensorName],
        uses: Mapping[TensorName, int],
    ) -> _Kind:
        """The kind of an operator that may read partial sums, where nothing else reads them: at
        least where `tensoropt.parallel.choices.partial_operands` offers that."""
        inputs = operator.inputs
        if moves_rows(operator.type) or partial.isdisjoint(inputs):
            return kind
        sets = tuple(
            each
            for each in kind.derivation.linear
            if all(inputs[n] in partial and uses[inputs[n]] == 1 for n in each)
        )
        if sets and sets not in kind.on_shares:
            kind.on_shares[sets] = self._new(operator, kind.derivation.on_shares(sets))
        return kind.on_shares[sets] if sets else kind

    def _least(self, kind: _Kind, differentiated: int, edges: list[_Edge]) -> _Times:
        """Nanoseconds under each configuration, of an operator and what its inputs give it."""
        if differentiated not in kind.times:
            costs = self._operators.of(
                kind.operator, kind.derivation, kind.assigned, differentiated
            )
            kind.times[differentiated] = costs.time.astype(np.float64)
        found = kind.times[differentiated]
        for number, source, index, carries, stays in edges:
            read = self._slots_of(kind, False, number, carries)
            maker = source.kind if isinstance(source, _Share) else source
            made = self._slots_of(maker, True, index, carries)
            times = self._table(kind, number, made, read, carries, stays)
            if isinstance(source, _Share):
                least = np.full(len(times), np.inf)
                np.minimum.at(least, made.of_option.slots, source.times)
                of_slot = (least[:, None] + times).min(axis=0)
            else:  # a weight, which may lie in any way
                of_slot = times.min(axis=0)
            found = found + of_slot[read.of_option.slots]
        return found

    def _table(
        self,
        kind: _Kind,
        number: int,
        made: TensorSlots,
        read: TensorSlots,
        carries: bool,
        stays: bool,
    ) -> Int64Array:
        """Nanoseconds of an edge, by the slots at its two ends."""
        operator = kind.operator
        spec, tensor = operator.input_specs[number], operator.inputs[number]
        sparse = frozenset({tensor}) if stays else frozenset[TensorName]()
        slices = looked_up(operator, number, sparse) if carries else None
        use = TensorOnEdge(spec.shape, spec.itemsize, carries, slices=slices)
        return self._edges.of(use, made, read).time

    def _slots_of(self, kind: _Kind, is_made: bool, number: int, carries: bool) -> TensorSlots:
        key = is_made, number, carries
        if key not in kind.slots:
            codes_of = output_codes if is_made else input_codes
            codes = codes_of(kind.derivation, kind.assigned, number)
            kind.slots[key] = self._shared(codes if carries else codes.without_gradient())
        return kind.slots[key]

    def _shared(self, slots: SlotCodes) -> TensorSlots:
        """Slots whose equal layouts are one object, as `EdgeCosts` compares them."""
        forward, gradient = (
            self._codes.setdefault(codes.tobytes(), LayoutCodes.of(codes))
            for codes in (slots.forward, slots.gradient)
        )
        return TensorSlots(forward, gradient, SlotMap(slots.of_option))

    def _of_sum(self, spec: TensorSpec, count: int) -> float:
        """The least that a sum of gradients takes."""
        kind = self.kind(sum_operator(spec.shape, spec.dtype, count))
        return float(self._least(kind, 0, []).min())


_Edge = tuple[int, _Share | _Kind, int, bool, bool]
"""Number of the input, where it comes from, which output of it, whether a gradient comes back, and
whether that is sparse at its end."""


def _readers(graph: Graph) -> Mapping[str, int]:
    """How many edges leave each operator."""
    return Counter(
        tensor.operator
        for operator in graph
        if not _is_source(graph, operator)
        for number, tensor in enumerate(operator.inputs)
        if _is_edge(operator, number)
    )


def _is_source(graph: Graph, operator: Operator) -> bool:
    """Whether an operator only names a value that lies in any way for nothing: a variable's, what
    is fed, a gradient."""
    if operator.gradient is not None or operator.is_variable or not operator.inputs:
        return True
    first = operator.inputs[0].operator
    return operator.type in READS and (
        graph[first].is_variable
        or (operator.type == "Identity" and _is_source(graph, graph[first]))
    )


def _is_edge(operator: Operator, number: int) -> bool:
    """Whether something may be moved for an input."""
    spec = operator.input_specs[number]
    return (
        spec.value is None
        and operator.type not in SHAPE_TYPES
        and spec.dtype != "resource"
        and not spec.dtype.endswith("_ref")
    )


def _value(spec: TensorSpec) -> bytes | None:
    """A small constant's value: which dimension is joined, split or summed over."""
    return None if spec.value is None or spec.value.nbytes > 64 else spec.value.tobytes()
