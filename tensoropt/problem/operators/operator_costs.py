"""What an operator costs under each of its configurations, as arrays (equation 1).

Of all configurations with equal local shapes the cost model is asked once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tensoropt.arrays import BoolArray, Int8Array, Int64Array
from tensoropt.cost.memory import Footprint
from tensoropt.cost.model import CostModel
from tensoropt.cost.operator_time import OperatorWork
from tensoropt.errors import LayoutError
from tensoropt.graph.operator import Operator, TensorName
from tensoropt.parallel.assignments import NO_INDEX, index_pieces, splits_of, unlike_rows
from tensoropt.parallel.mesh import Mesh
from tensoropt.problem.operators.inner_collectives import (
    InnerCollective,
    local_collectives,
    only_halos,
)
from tensoropt.problem.operators.local_work import (
    LocalShapes,
    computes,
    family,
    known,
    local_work,
    rows_bytes,
)
from tensoropt.problem.operators.memory import among_kept, memory_amounts
from tensoropt.tdl import Derivation
from tensoropt.tdl.registry import moves_rows

__all__ = ["ConfigurationCosts", "OperatorCosts"]


@dataclass(frozen=True, slots=True, eq=False)
class ConfigurationCosts:
    """What each configuration costs. Compared by identity: operators that are alike share it.

    Attributes:
        memory: int64[K], bytes.
        time: int64[K], nanoseconds.
    """

    memory: Int64Array
    time: Int64Array

    @classmethod
    def sum(cls, parts: Iterable[ConfigurationCosts]) -> ConfigurationCosts:
        """What several things cost together, of which some may be the same; at least one."""
        counts = Counter(parts)
        if counts.total() == 1:
            return next(iter(counts))
        memory = np.sum([count * part.memory for part, count in counts.items()], axis=0)
        time = np.sum([count * part.time for part, count in counts.items()], axis=0)
        return cls(memory, time)


@dataclass(frozen=True, slots=True, eq=False)
class _Alike:
    """The configurations of an iteration space that differ in what costs depend on.

    Costs depend on local shapes, and these on the number of shards of each index, whichever axes
    split it; only collectives inside an operator depend on the axes.

    Attributes:
        assigned: int8[R, axes], the first configuration of each kind.
        pieces: int64[R, indices], the number of shards of each index.
        spelled_out: bool[R], whether an index is split that has a custom lowering.
        of_option: int64[K], the kind of every configuration.
    """

    assigned: Int8Array
    pieces: Int64Array
    spelled_out: BoolArray
    of_option: Int64Array


class OperatorCosts:
    """Costs of operators on one mesh; prices of collectives are cached.

    Args:
        mesh: the devices.
        cost: the prices.
    """

    def __init__(self, mesh: Mesh, cost: CostModel) -> None:
        self._mesh = mesh
        self._cost = cost
        self._alike: dict[Hashable, _Alike] = {}
        self._prices: dict[tuple[str, tuple[int, ...], int], int] = {}

    def of(
        self,
        operator: Operator,
        derivation: Derivation,
        assigned: Int8Array,
        differentiated_inputs: int,
        kept: frozenset[TensorName] = frozenset(),
        carried: Sequence[int] = (),
        ways: Sequence[str] = ("both",),
        only_before: frozenset[TensorName] = frozenset(),
    ) -> ConfigurationCosts:
        """Time and memory of an operator under each configuration.

        Args:
            operator: which.
            derivation: its iteration space.
            assigned: int8[K, axes], as `tensoropt.parallel.choices.options.Follower` has it.
            differentiated_inputs: number of inputs whose gradient is computed.
            kept: tensors that are saved at their producer.
            carried: numbers of inputs that are saved in their layout here, and counted here.
            ways: what may be saved, of `tensoropt.parallel.configuration.KEPT`, by which
                configurations are numbered first.
            only_before: tensors that are saved at their producer if only copies before resharding
                are.
        """
        alike = self._kinds(derivation, assigned, len(assigned) // len(ways))
        shapes = _Shapes(operator, derivation, alike)
        plain = again = np.zeros(len(alike.pieces), np.int64)
        if computes(operator):
            plain = self._times(shapes, differentiated_inputs, once_more=False)
            if "recomputed" in ways:
                again = self._times(shapes, 0, once_more=True)
        times, memories = [], []
        for way in ways:
            recomputed = way == "recomputed"
            here: frozenset[TensorName] = frozenset() if recomputed or way == "after" else kept
            here |= only_before if way == "before" else frozenset()
            time = plain + again if recomputed else plain
            times.append(time[alike.of_option])
            memories.append(self._memory(shapes, here, carried, recomputed)[alike.of_option])
        return ConfigurationCosts(np.concatenate(memories), np.concatenate(times))

    def _kinds(self, derivation: Derivation, assigned: Int8Array, count: int) -> _Alike:
        """The kinds of the first so many configurations."""
        inside = tuple(index.spelled_out for index in derivation.indices)
        shares = tuple(bool(index.partial_inputs) for index in derivation.indices)
        key = assigned.tobytes(), count, inside, shares
        if key not in self._alike:
            assigned = assigned[:count]
            table = np.array([*inside, False])
            pieces = index_pieces(assigned, len(inside), self._mesh)[:, :-1]
            pieces[:, list(shares)] = 1  # they divide no work
            differ = pieces
            if any(inside):
                axes = np.where(table[assigned], assigned, NO_INDEX)
                differ = np.concatenate([pieces, axes], axis=1)
            first, of_option = unlike_rows(differ)
            rows = assigned[first]
            self._alike[key] = _Alike(rows, pieces[first], table[rows].any(axis=1), of_option)
        return self._alike[key]

    def _times(self, shapes: _Shapes, differentiated: int, once_more: bool) -> Int64Array:
        """Nanoseconds of computing, forward and backward; or ``once_more``, forward alone."""
        operator, derivation, alike = shapes.operator, shapes.derivation, shapes.alike

        def priced(work: OperatorWork) -> int:
            time = self._cost.operator_nanoseconds(work)
            return time.forward if once_more else time.total

        if getattr(self._cost, "times_by_amounts", False):
            dtype = operator.outputs[0].dtype if operator.outputs else "float32"
            kind = family(derivation)
            flops = (derivation.flops // count for count in shapes.pieces())
            amounts = list(zip(flops, shapes.moved_bytes(), strict=True))
            known_times = {
                each: priced(OperatorWork(kind, dtype, *each, differentiated))
                for each in dict.fromkeys(amounts)
            }
            times = np.array([known_times[each] for each in amounts], np.int64)
        else:
            cases = zip(shapes.local(), shapes.pieces(), strict=True)
            times = np.array(
                [
                    priced(local_work(operator, derivation, local, count, differentiated))
                    for local, count in cases
                ],
                np.int64,
            )
        rows = np.flatnonzero(alike.spelled_out)
        if rows.size:
            unlike, kinds = self._unlike_inside(shapes, rows)
            inside = [
                sum(
                    (each.forward if once_more else each.times) * self._price(each)
                    for each in local_collectives(operator, derivation, local, differentiated)
                )
                for local in shapes.local(rows[unlike])
            ]
            times[rows] += np.array(inside, np.int64)[kinds]
        return times

    def _unlike_inside(self, shapes: _Shapes, rows: Int64Array) -> tuple[Int64Array, Int64Array]:
        """`unlike_rows` of some configurations, by what moves inside the operator."""
        derivation, alike = shapes.derivation, shapes.alike
        halos = only_halos(shapes.operator, derivation)
        if not halos:  # a rule's own collectives may differ in each
            return np.arange(rows.size), np.arange(rows.size)
        columns = []
        for halo in halos:  # the axes that split its index, and the shape of its input's pieces
            dims = [index for index in derivation.inputs[halo.input] if index is not None]
            columns += [alike.assigned[rows] == halo.index, alike.pieces[rows][:, dims]]
        return unlike_rows(np.concatenate(columns, axis=1).astype(np.int64))

    def _price(self, inner: InnerCollective) -> int:
        key = inner.kind, inner.axes, inner.bytes
        price = self._prices.get(key)
        if price is None:
            price = self._prices[key] = self._cost.collective_nanoseconds(*key)
        return price

    def _memory(
        self, shapes: _Shapes, kept: frozenset[TensorName], carried: Sequence[int], again: bool
    ) -> Int64Array:
        operator = shapes.operator
        amounts = memory_amounts(
            operator,
            shapes.output_bytes(None),
            shapes.output_bytes(among_kept(operator, kept)),
            shapes.input_bytes(carried),
            again,
        )
        rows = list(zip(*(column.tolist() for column in amounts.values()), strict=True))
        found = {
            row: self._cost.operator_memory(Footprint(**dict(zip(amounts, row, strict=True)))).kept
            for row in dict.fromkeys(rows)
        }
        return np.array([found[row] for row in rows], np.int64)


class _Shapes:
    """Local shapes of an operator's tensors, flops and bytes, under several configurations.

    Arrays and lists have an entry for each kind of configuration.
    """

    def __init__(self, operator: Operator, derivation: Derivation, alike: _Alike) -> None:
        self.operator = operator
        self.derivation = derivation
        self.alike = alike

    def pieces(self) -> list[int]:
        """The number of shards of the iteration space."""
        counts: list[int] = self.alike.pieces.prod(axis=1).tolist()
        return counts

    def moved_bytes(self) -> list[int]:
        """Read and written by one device, forward."""
        if moves_rows(self.operator.type):
            return [rows_bytes(self.operator, self.derivation, local) for local in self.local()]
        every = range(len(self.operator.input_specs))
        moved: list[int] = (self.input_bytes(every) + self.output_bytes(None)).tolist()
        return moved

    def input_bytes(self, numbers: Sequence[int]) -> Int64Array:
        """Of some inputs."""
        total = np.zeros(len(self.alike.pieces), np.int64)
        for number in numbers:
            spec = self.operator.input_specs[number]
            if known(spec):
                total += self._elements(self.derivation.inputs[number], spec.shape) * spec.itemsize
        return total

    def output_bytes(self, among: frozenset[TensorName] | None) -> Int64Array:
        """Of all outputs, or of those among some tensors."""
        total = np.zeros(len(self.alike.pieces), np.int64)
        for number, spec in enumerate(self.operator.outputs):
            name = TensorName(self.operator.name, number)
            if known(spec) and (among is None or name in among):
                elements = self._elements(self.derivation.outputs[number], spec.shape)
                total += elements * self.operator.value_spec(number).itemsize
        return total

    def local(self, rows: Int64Array | None = None) -> list[LocalShapes]:
        """The local shapes of all tensors under each configuration, or under some."""
        some = slice(None) if rows is None else rows
        derivation = self.derivation
        tensors = [
            map(tuple, self._local(dims, shape, self.alike.pieces[some]).tolist())
            for dims, shape in zip(
                (*derivation.inputs, *derivation.outputs),
                (*derivation.input_shapes, *derivation.output_shapes),
                strict=True,
            )
        ]
        inputs, indices = len(derivation.inputs), len(derivation.indices)
        return [
            LocalShapes(splits_of(row, indices), tuple(rest[:inputs]), tuple(rest[inputs:]))
            for row, *rest in zip(self.alike.assigned[some].tolist(), *tensors, strict=True)
        ]

    def _elements(self, dims: Sequence[int | None], shape: Sequence[int]) -> Int64Array:
        """How many elements one device has of a tensor."""
        found: Int64Array = self._local(dims, shape, self.alike.pieces).prod(axis=1)
        return found

    def _local(
        self, dims: Sequence[int | None], shape: Sequence[int], pieces: Int64Array
    ) -> Int64Array:
        """int64[R, dimensions], the local shapes of one tensor."""
        local = np.tile(np.array(shape, np.int64), (len(pieces), 1))
        for dim, index in enumerate(dims):
            if index is not None:
                if (shape[dim] % pieces[:, index]).any():
                    raise LayoutError(
                        "a dimension is split only where it divides evenly. Got extent "
                        f"{shape[dim]} in {sorted(set(pieces[:, index].tolist()))} pieces for "
                        f"{self.operator.name!r}."
                    )
                local[:, dim] //= pieces[:, index]
        return local
