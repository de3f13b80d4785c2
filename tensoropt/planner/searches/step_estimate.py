"""A lower bound of a step's time, with communication, that takes some milliseconds to compute.

The search adds up the times of operators and of edges. One pass over the graph, in topological
order, bounds that sum from below. An operator v has for each configuration c

    least(v, c) = time(v, c) + sum over its inputs u of
                  min over configurations d of u: least(u, d) / readers(u) + edge(d, c)

An operator with several readers is shared equally among them. The bound is the sum of the minima of
all operators without readers. For a chain it is exact. For other graphs it is a lower bound, since
each reader may choose another configuration of the operator that it reads.

The shares of an operator's readers add up to its whole time, so its least time over all
configurations is added to the bound at once, and readers get the differences from it. Rewritten
graphs have most operators in common. Where a change leaves the differences as they are, nothing
behind it is computed again.

On a mesh with fewer axes than the devices have, the result is an estimate and no bound: the finer
mesh has strategies that this mesh does not have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tensoropt.arrays import Int8Array, Int64Array
from tensoropt.cost.model import ClusterCostModel
from tensoropt.graph.differentiation import differentiated_inputs, sparse_tensors
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.graph.tied_operators import READS
from tensoropt.graph.unrolled import same_in_every_step
from tensoropt.parallel.any_size import SHAPE_TYPES
from tensoropt.parallel.assignments import SlotCodes, assignments, input_codes, output_codes
from tensoropt.parallel.strategy import derivation_of
from tensoropt.problem.edges.edge_costs import EdgeCosts, TensorOnEdge
from tensoropt.problem.edges.slots import LayoutCodes, TensorSlots
from tensoropt.problem.edges.sparse_gradients import looked_up
from tensoropt.problem.model import SlotMap
from tensoropt.problem.operators.joined_products import (
    added_gradients,
    number_sharing,
    sharing_products,
)
from tensoropt.problem.operators.local_work import attributes_that_matter
from tensoropt.problem.operators.operator_costs import OperatorCosts
from tensoropt.problem.operators.reader_gradient_sums import sum_operator
from tensoropt.tdl import Derivation
from tensoropt.tdl.registry import moves_rows
from tensoropt.tensor_spec import TensorSpec

__all__ = ["StepEstimate"]

_Times = npt.NDArray[np.float64]

_MOST_REMEMBERED = 50_000
"""The most stored results, one for each operator with its inputs; each takes some kilobytes."""


@dataclass(slots=True, eq=False)
class _Kind:
    """Operators with equal costs. Kinds are compared by identity.

    Attributes:
        operator: one of the operators.
        derivation: its iteration space.
        assigned: its configurations.
        adds_up: whether its outputs may be partial sums.
        times: nanoseconds under each configuration, by `_Gradients`.
        slots: the slots of its tensors. A key has: whether the tensor is an output, its number, and
            whether it has a gradient.
        on_shares: the same kind with inputs that may be partial sums, by the sets of these inputs.
    """

    operator: Operator
    derivation: Derivation
    assigned: Int8Array
    adds_up: bool
    times: dict[_Gradients, _Times] = field(default_factory=dict)
    slots: dict[tuple[bool, int, bool], TensorSlots] = field(default_factory=dict)
    on_shares: dict[tuple[tuple[int, ...], ...], _Kind] = field(default_factory=dict)


class _Known(NamedTuple):
    """The kind of an operator.

    Attributes:
        operator: the operator. While it is stored, Python gives its identity to no other object.
        kind: its kind.
        edges: the numbers of the inputs that may have to be moved.
    """

    operator: Operator
    kind: _Kind
    edges: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Share:
    """The share of an operator that each of its readers counts. Shares are compared by identity.

    Attributes:
        kind: the kind of the operator.
        times: nanoseconds under each configuration, for the operator and all operators before it,
            above those under the best configuration.
    """

    kind: _Kind
    times: _Times


class StepEstimate:
    """Estimates the time of steps on one mesh. Graphs with common operators share their costs.

    Args:
        cost: the cost model, with the mesh.
    """

    def __init__(self, cost: ClusterCostModel) -> None:
        self._cost = cost
        self._operators = OperatorCosts(cost.mesh, cost)
        self._edges = EdgeCosts(cost.mesh, cost)
        # By the operator's identity, since graphs share operators.
        self._known: dict[int, _Known] = {}
        self._kinds: dict[Hashable, _Kind] = {}
        self._shares: dict[Hashable, tuple[float, _Share]] = {}
        self._equal_shares: dict[tuple[_Kind, bytes], _Share] = {}
        self._is_recurrent: bool | None = None
        self._codes: dict[bytes, LayoutCodes] = {}

    def __call__(self, graph: Graph) -> int:
        """Return the nanoseconds of a step."""
        if len(self._shares) > _MOST_REMEMBERED:
            self._shares.clear()
            self._equal_shares.clear()
        is_sparse = frozenset[TensorName]().union(*sparse_tensors(graph).values()).__contains__
        differentiated = differentiated_inputs(graph)
        shared = sharing_products(graph, differentiated)
        sharing = number_sharing(shared)
        sources = _sources(graph)
        readers = self._readers(graph, sources)
        is_read_once = _read_once(graph)
        partial: set[TensorName] = set()
        shares: dict[str, _Share] = {}
        read: set[Hashable] = set()
        total = float(self._cost.step_nanoseconds())
        for name, operator in graph.operators.items():
            if name in sources:
                continue
            edges: list[_Edge] = []
            known, numbers = self._of(operator), differentiated.get(name, ())
            kind = self._on_shares(known.kind, operator, partial, is_read_once)
            if kind.adds_up:
                partial.update(TensorName(name, n) for n in range(len(operator.outputs)))
            for number in known.edges:
                tensor = operator.inputs[number]
                share, carries = shares.get(tensor.operator), number in numbers
                source = share or self.kind(graph[tensor.operator])
                is_read_again = self._is_read_again(graph, read, (tensor, number, kind))
                if not is_read_again and (share is not None or carries):
                    edges.append((number, source, tensor.index, carries, is_sparse(tensor)))
            gradients = len(numbers), sharing.get(name, 1)
            least, shares[name] = self._share(kind, gradients, edges, max(1, readers[name]))
            total += least
        sums = added_gradients(graph, differentiated, shared, self._cost.mesh)
        for tensor, count in sums.items():
            total += self._of_sum(graph.spec(tensor), count)
        return round(total)

    def _is_read_again(self, graph: Graph, read: set[Hashable], use: Hashable) -> bool:
        """Whether an equal operator has read the same tensor, in a graph with a recurrence.

        The steps of a recurrence are one node of the search, which moves the tensor once.
        """
        if self._is_recurrent is None:  # the first graph is the script's
            first = same_in_every_step(graph, lambda name: self.kind(graph[name]))
            self._is_recurrent = any(name != first_name for name, first_name in first.items())
        again = self._is_recurrent and use in read
        read.add(use)
        return again

    def _share(
        self, kind: _Kind, gradients: _Gradients, edges: list[_Edge], readers: int
    ) -> tuple[float, _Share]:
        """Return the least nanoseconds of an operator with its inputs' shares, and the share that
        each reader counts of what is above them."""
        key = kind, gradients, readers, tuple(edges)
        if key not in self._shares:
            times = self._least(kind, gradients, edges)
            least = times.min()
            times = (times - least) / readers
            share = self._equal_shares.setdefault((kind, times.tobytes()), _Share(kind, times))
            self._shares[key] = float(least), share
        return self._shares[key]

    def _readers(self, graph: Graph, sources: Collection[str]) -> Mapping[str, int]:
        """Return the number of edges that leave each operator."""
        readers: Counter[str] = Counter()
        for name, operator in graph.operators.items():
            if name not in sources:
                inputs = operator.inputs
                for number in self._of(operator).edges:
                    readers[inputs[number].operator] += 1
        return readers

    def kind(self, operator: Operator) -> _Kind:
        """Return the kind of an operator, the same object for all operators with equal costs."""
        return self._of(operator).kind

    def _of(self, operator: Operator) -> _Known:
        known = self._known.get(id(operator))
        if known is None:
            key = (
                operator.type,
                tuple([(spec.shape, spec.dtype, _value(spec)) for spec in operator.input_specs]),
                tuple([(spec.shape, spec.dtype) for spec in operator.outputs]),
                attributes_that_matter(operator),
            )
            if key not in self._kinds:
                self._kinds[key] = self._new(operator, derivation_of(operator))
            edges = tuple(n for n in range(len(operator.inputs)) if _is_edge(operator, n))
            known = self._known[id(operator)] = _Known(operator, self._kinds[key], edges)
        return known

    def _new(self, operator: Operator, derivation: Derivation) -> _Kind:
        assigned = assignments(derivation, self._cost.mesh)
        adds_up = any(each.splittable and each.reducer == "sum" for each in derivation.indices)
        return _Kind(operator, derivation, assigned, adds_up)

    def _on_shares(
        self,
        kind: _Kind,
        operator: Operator,
        partial: set[TensorName],
        is_read_once: Callable[[TensorName], bool],
    ) -> _Kind:
        """Return the kind of an operator whose inputs may be partial sums.

        An input may be one if the operator is its only reader. Among these inputs are all that
        `tensoropt.parallel.choices.partial_operands` allows.
        """
        inputs = operator.inputs
        if moves_rows(operator.type) or partial.isdisjoint(inputs):
            return kind
        sets = tuple(
            numbers
            for numbers in kind.derivation.linear
            if all(inputs[n] in partial and is_read_once(inputs[n]) for n in numbers)
        )
        if sets and sets not in kind.on_shares:
            kind.on_shares[sets] = self._new(operator, kind.derivation.on_shares(sets))
        return kind.on_shares[sets] if sets else kind

    def _least(self, kind: _Kind, gradients: _Gradients, edges: list[_Edge]) -> _Times:
        """Return nanoseconds under each configuration, for an operator with its inputs' shares."""
        if gradients not in kind.times:
            differentiated, sharing = gradients
            costs = self._operators.of(
                kind.operator, kind.derivation, kind.assigned, differentiated, sharing=sharing
            )
            kind.times[gradients] = costs.time.astype(np.float64)
        total = kind.times[gradients]
        for number, source, index, carries, is_sparse in edges:
            read = self._slots_of(kind, False, number, carries)
            maker = source.kind if isinstance(source, _Share) else source
            made = self._slots_of(maker, True, index, carries)
            times = self._table(kind, number, made, read, carries, is_sparse)
            if isinstance(source, _Share):
                least = np.full(len(times), np.inf)
                np.minimum.at(least, made.of_option.slots, source.times)
                of_slot = (least[:, None] + times).min(axis=0)
            else:  # a weight, which may have any layout
                of_slot = times.min(axis=0)
            total = total + of_slot[read.of_option.slots]
        return total

    def _table(
        self,
        kind: _Kind,
        number: int,
        made: TensorSlots,
        read: TensorSlots,
        carries: bool,
        is_sparse: bool,
    ) -> Int64Array:
        """Return the nanoseconds of an edge, by the slots at its two ends."""
        operator = kind.operator
        spec, tensor = operator.input_specs[number], operator.inputs[number]
        sparse = frozenset({tensor}) if is_sparse else frozenset[TensorName]()
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
        """Return slots in which equal layouts are one object, since `EdgeCosts` compares these."""
        forward, gradient = (
            self._codes.setdefault(codes.tobytes(), LayoutCodes.of(codes))
            for codes in (slots.forward, slots.gradient)
        )
        return TensorSlots(forward, gradient, SlotMap(slots.of_option))

    def _of_sum(self, spec: TensorSpec, count: int) -> float:
        """Return the least time of a sum of gradients."""
        kind = self.kind(sum_operator(spec.shape, spec.dtype, count))
        return float(self._least(kind, (0, 1), []).min())


_Gradients = tuple[int, int]
"""The number of inputs with a gradient, and that of products that share the operator's matrix."""

_Edge = tuple[int, _Share | _Kind, int, bool, bool]
"""The number of the input, the operator that makes it, the number of the output there, whether it
has a gradient, and whether this gradient is sparse at the maker."""


def _read_once(graph: Graph) -> Callable[[TensorName], bool]:
    """Return a function that tells whether a tensor that is read has one reader.

    Names of operators are counted first, since this is much faster than to count tensors.
    """
    reads = Counter(chain.from_iterable([operator.predecessors for operator in graph]))

    @cache
    def uses() -> Mapping[TensorName, int]:
        return Counter(chain.from_iterable([operator.inputs for operator in graph]))

    return lambda tensor: reads[tensor.operator] == 1 or uses()[tensor] == 1


def _sources(graph: Graph) -> frozenset[str]:
    """Return the operators that name a value which has any layout at no cost.

    They are variables, placeholders, gradients, and reads of one of them.
    """
    sources: set[str] = set()
    for name, operator in graph.operators.items():
        if operator.gradient is not None or not operator.inputs or operator.is_variable:
            sources.add(name)
        elif operator.type in READS:
            first = operator.inputs[0].operator
            if graph[first].is_variable or (operator.type == "Identity" and first in sources):
                sources.add(name)
    return frozenset(sources)


def _is_edge(operator: Operator, number: int) -> bool:
    """Whether a tensor may have to be moved for an input."""
    spec = operator.input_specs[number]
    return (
        spec.value is None
        and operator.type not in SHAPE_TYPES
        and spec.dtype != "resource"
        and not spec.dtype.endswith("_ref")
    )


def _value(spec: TensorSpec) -> bytes | None:
    """Return the value of a small constant, which may name a dimension; None for other tensors."""
    return None if spec.value is None or spec.value.nbytes > 64 else spec.value.tobytes()
