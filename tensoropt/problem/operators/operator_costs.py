"""Costs of an operator under each of its configurations, as arrays (TensorOpt, equation 1).

The cost model is asked once for all configurations with equal local shapes.
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
from tensoropt.parallel.assignments import (
    NO_INDEX,
    configuration_of,
    index_pieces,
    splits_of,
    unlike_rows,
)
from tensoropt.parallel.configuration import largest_share
from tensoropt.parallel.mesh import Mesh
from tensoropt.problem.operators.inner_steps import (
    InnerStep,
    local_inner_steps,
    only_halos,
)
from tensoropt.problem.operators.joined_products import joined_product
from tensoropt.problem.operators.local_work import (
    LocalShapes,
    computes,
    family,
    has_known_shape,
    local_work,
    operator_work,
    rows_bytes,
)
from tensoropt.problem.operators.memory import among_kept, memory_amounts
from tensoropt.tdl import Derivation
from tensoropt.tdl.registry import moves_rows

__all__ = ["ConfigurationCosts", "OperatorCosts"]


@dataclass(frozen=True, slots=True, eq=False)
class ConfigurationCosts:
    """The costs of each configuration.

    They are compared by identity: equal operators share them.

    Attributes:
        memory: int64[K], bytes.
        time: int64[K], nanoseconds.
    """

    memory: Int64Array
    time: Int64Array

    @classmethod
    def sum(cls, parts: Iterable[ConfigurationCosts]) -> ConfigurationCosts:
        """Add up costs, at least one. The same object may occur several times."""
        counts = Counter(parts)
        if counts.total() == 1:
            return next(iter(counts))
        memory = np.sum([count * part.memory for part, count in counts.items()], axis=0)
        time = np.sum([count * part.time for part, count in counts.items()], axis=0)
        return cls(memory, time)


@dataclass(frozen=True, slots=True, eq=False)
class _ConfigurationKinds:
    """Configurations grouped by all that costs depend on.

    Costs depend on local shapes, and so on the number of shards of each index, whichever axes split
    it. Only collectives inside an operator depend on the axes, too.

    Attributes:
        assigned: int8[R, axes], the first configuration of each kind.
        pieces: int64[R, indices], the number of shards of each index.
        spelled_out: bool[R], whether a split index has a lowering rule.
        of_option: int64[K], the kind of every configuration.
    """

    assigned: Int8Array
    pieces: Int64Array
    spelled_out: BoolArray
    of_option: Int64Array


class OperatorCosts:
    """Computes the costs of operators on one mesh. Prices of collectives are cached.

    Args:
        mesh: the devices.
        cost: the cost model.
    """

    def __init__(self, mesh: Mesh, cost: CostModel) -> None:
        self._mesh = mesh
        self._cost = cost
        self._kinds_of: dict[Hashable, _ConfigurationKinds] = {}
        self._prices: dict[tuple[str, tuple[int, ...], int], int] = {}

    def of(
        self,
        operator: Operator,
        derivation: Derivation,
        assigned: Int8Array,
        differentiated_inputs: int,
        kept: frozenset[TensorName] = frozenset(),
        saved_inputs: Sequence[int] = (),
        ways: Sequence[str] = ("both",),
        only_before: frozenset[TensorName] = frozenset(),
        sharing: int = 1,
    ) -> ConfigurationCosts:
        """Return the time and memory of an operator under each configuration.

        Args:
            operator: the operator.
            derivation: its derivation.
            assigned: int8[K, axes], as in `tensoropt.parallel.choices.options.Follower`.
            differentiated_inputs: number of inputs whose gradient is computed.
            kept: tensors that are saved at their producer.
            saved_inputs: numbers of inputs whose saved copy counts at this operator.
            ways: the choices of kept copies (`tensoropt.parallel.configuration.KEPT`). The
                configurations with the first choice come first.
            only_before: tensors that are saved at their producer only under the choice "before".
            sharing: number of products, with this one, that share its matrix; they have the same
                configuration.
        """
        kinds = self._kinds(derivation, assigned, len(assigned) // len(ways))
        shapes = _Shapes(operator, derivation, kinds, self._mesh)
        once = again = np.zeros(len(kinds.pieces), np.int64)
        if computes(operator):
            once = self._times(shapes, differentiated_inputs, recomputing=False)
            if sharing > 1:
                joined = self._times_joined(shapes, sharing)
                apart = self._times(shapes, differentiated_inputs - 1, recomputing=False)
                once = np.where(joined < 0, once, apart + joined)
            if "recomputed" in ways:
                again = self._times(shapes, 0, recomputing=True)
        times, memories = [], []
        for way in ways:
            recomputed = way == "recomputed"
            saved: frozenset[TensorName] = frozenset() if recomputed or way == "after" else kept
            saved |= only_before if way == "before" else frozenset()
            time = once + again if recomputed else once
            times.append(time[kinds.of_option])
            memories.append(self._memory(shapes, saved, saved_inputs, recomputed)[kinds.of_option])
        return ConfigurationCosts(np.concatenate(memories), np.concatenate(times))

    def _kinds(
        self, derivation: Derivation, assigned: Int8Array, count: int
    ) -> _ConfigurationKinds:
        """Return the kinds of the first ``count`` configurations."""
        has_rule = tuple(index.spelled_out for index in derivation.indices)
        of_sums = tuple(bool(index.partial_inputs) for index in derivation.indices)
        key = assigned.tobytes(), count, has_rule, of_sums
        if key not in self._kinds_of:
            assigned = assigned[:count]
            is_split_by_rule = np.array([*has_rule, False])
            pieces = index_pieces(assigned, len(has_rule), self._mesh)[:, :-1]
            pieces[:, list(of_sums)] = 1  # a split into shares of a sum divides no work
            rows: Int8Array | Int64Array = pieces
            if self._mesh.shares is not None:  # a device's pieces depend on the axes
                rows = assigned
            elif any(has_rule):
                axes = np.where(is_split_by_rule[assigned], assigned, NO_INDEX)
                rows = np.concatenate([pieces, axes], axis=1)
            first, of_option = unlike_rows(rows)
            assigned = assigned[first]
            self._kinds_of[key] = _ConfigurationKinds(
                assigned, pieces[first], is_split_by_rule[assigned].any(axis=1), of_option
            )
        return self._kinds_of[key]

    def _times(self, shapes: _Shapes, differentiated: int, recomputing: bool) -> Int64Array:
        """Return the nanoseconds of computing, forward and backward, or forward if recomputing."""
        operator, derivation, kinds = shapes.operator, shapes.derivation, shapes.kinds

        def priced(work: OperatorWork | None) -> int:
            assert work is not None, "the operator takes time"
            time = self._cost.operator_nanoseconds(work)
            return time.forward if recomputing else time.total

        if self._mesh.shares is not None:
            indices = len(derivation.indices)
            times = np.array(
                [
                    priced(operator_work(operator, derivation, each, self._mesh, differentiated))
                    for each in (configuration_of(row, indices) for row in kinds.assigned)
                ],
                np.int64,
            )
        elif self._cost.times_by_amounts:
            dtype = operator.outputs[0].dtype if operator.outputs else "float32"
            kind = family(derivation)
            amounts = list(zip(shapes.flops(), shapes.moved_bytes(), strict=True))
            known_times = {
                amount: priced(OperatorWork(kind, dtype, *amount, differentiated))
                for amount in dict.fromkeys(amounts)
            }
            times = np.array([known_times[amount] for amount in amounts], np.int64)
        else:
            cases = zip(shapes.local(), shapes.flops(), strict=True)
            times = np.array(
                [
                    priced(local_work(operator, derivation, local, flops, differentiated))
                    for local, flops in cases
                ],
                np.int64,
            )
        rows = np.flatnonzero(kinds.spelled_out)
        if rows.size:
            distinct, kind_of_row = self._distinct_inside(shapes, rows)
            inside = [
                sum(
                    (each.forward if recomputing else each.times) * self._price(each)
                    for each in local_inner_steps(operator, derivation, local, differentiated)
                )
                for local in shapes.local(rows[distinct])
            ]
            times[rows] += np.array(inside, np.int64)[kind_of_row]
        return times

    def _times_joined(self, shapes: _Shapes, sharing: int) -> Int64Array:
        """Return a product's share of the joined product for the gradient by a shared matrix.

        It is in nanoseconds, -1 where products are not joined.
        """
        operator, derivation, kinds = shapes.operator, shapes.derivation, shapes.kinds
        times = np.full(len(kinds.pieces), -1, np.int64)
        for number, row in enumerate(kinds.assigned):
            configuration = configuration_of(row, len(derivation.indices))
            joined = joined_product(operator, derivation, configuration, self._mesh, sharing)
            if joined is not None:
                time = self._cost.operator_nanoseconds(joined.product.work).forward
                time += self._cost.collective_nanoseconds("slice", (), joined.copied_bytes)
                times[number] = round(time / sharing)
        return times

    def _distinct_inside(self, shapes: _Shapes, rows: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return `unlike_rows` of some configurations, compared by collectives inside the
        operator."""
        derivation, kinds = shapes.derivation, shapes.kinds
        halos = only_halos(shapes.operator, derivation)
        if not halos:  # the collectives of a rule may differ in all configurations
            return np.arange(rows.size), np.arange(rows.size)
        columns = []
        for halo in halos:  # the axes that split its index, and the shape of the input's pieces
            dims = [index for index in derivation.inputs[halo.input] if index is not None]
            columns += [kinds.assigned[rows] == halo.index, kinds.pieces[rows][:, dims]]
        return unlike_rows(np.concatenate(columns, axis=1).astype(np.int64))

    def _price(self, inner: InnerStep) -> int:
        key = inner.kind, inner.axes, inner.bytes
        price = self._prices.get(key)
        if price is None:
            price = self._prices[key] = self._cost.collective_nanoseconds(*key)
        return price

    def _memory(
        self, shapes: _Shapes, kept: frozenset[TensorName], saved_inputs: Sequence[int], again: bool
    ) -> Int64Array:
        """Return the bytes of an operator under each kind of configuration."""
        operator = shapes.operator
        amounts = memory_amounts(
            operator,
            shapes.output_bytes(None),
            shapes.output_bytes(among_kept(operator, kept)),
            shapes.input_bytes(saved_inputs),
            again,
        )
        rows = list(zip(*(column.tolist() for column in amounts.values()), strict=True))
        bytes_of = {
            row: self._cost.operator_memory(Footprint(**dict(zip(amounts, row, strict=True))))
            for row in dict.fromkeys(rows)
        }
        return np.array([bytes_of[row] for row in rows], np.int64)


class _Shapes:
    """Local shapes, flops and bytes of an operator's tensors under several configurations.

    Arrays and lists have an entry for each kind of configuration.
    """

    def __init__(
        self,
        operator: Operator,
        derivation: Derivation,
        kinds: _ConfigurationKinds,
        mesh: Mesh,
    ) -> None:
        self._mesh = mesh
        self.operator = operator
        self.derivation = derivation
        self.kinds = kinds

    def flops(self) -> list[int]:
        """Return the operations of the device with the largest pieces, forward."""
        whole, pieces = self.derivation.flops, self.kinds.pieces
        blocks = [self._mesh.blocks(index.extent) for index in self.derivation.indices]
        extents = np.array(blocks, np.int64)
        uneven = ((extents % pieces != 0) & (pieces > 1)).any(axis=1)
        flops: list[int] = (whole // pieces.prod(axis=1)).tolist()
        for row in np.flatnonzero(uneven).tolist():
            share = largest_share(self.derivation, pieces[row].tolist(), self._mesh)
            flops[row] = int(whole * share)
        return flops

    def moved_bytes(self) -> list[int]:
        """Return the bytes that one device reads and writes, forward."""
        if moves_rows(self.operator.type):
            return [rows_bytes(self.operator, self.derivation, local) for local in self.local()]
        numbers = range(len(self.operator.input_specs))
        moved: list[int] = (self.input_bytes(numbers) + self.output_bytes(None)).tolist()
        return moved

    def input_bytes(self, numbers: Sequence[int]) -> Int64Array:
        """Return the bytes of some inputs on one device."""
        total = np.zeros(len(self.kinds.pieces), np.int64)
        for number in numbers:
            spec = self.operator.input_specs[number]
            if has_known_shape(spec):
                total += self._elements(self.derivation.inputs[number], spec.shape) * spec.itemsize
        return total

    def output_bytes(self, among: frozenset[TensorName] | None) -> Int64Array:
        """Return the bytes of the outputs on one device; with ``among``, only of outputs in it."""
        total = np.zeros(len(self.kinds.pieces), np.int64)
        for number, spec in enumerate(self.operator.outputs):
            name = TensorName(self.operator.name, number)
            if has_known_shape(spec) and (among is None or name in among):
                elements = self._elements(self.derivation.outputs[number], spec.shape)
                total += elements * self.operator.value_spec(number).itemsize
        return total

    def local(self, rows: Int64Array | None = None) -> list[LocalShapes]:
        """Return the local shapes of all tensors, under each configuration or those in ``rows``."""
        some = np.arange(len(self.kinds.pieces)) if rows is None else rows
        derivation = self.derivation
        tensors = [
            map(tuple, self._local(dims, shape, some).tolist())
            for dims, shape in zip(
                (*derivation.inputs, *derivation.outputs),
                (*derivation.input_shapes, *derivation.output_shapes),
                strict=True,
            )
        ]
        inputs, indices = len(derivation.inputs), len(derivation.indices)
        return [
            LocalShapes(splits_of(row, indices), tuple(rest[:inputs]), tuple(rest[inputs:]))
            for row, *rest in zip(self.kinds.assigned[some].tolist(), *tensors, strict=True)
        ]

    def _elements(self, dims: Sequence[int | None], shape: Sequence[int]) -> Int64Array:
        """Return the number of elements of a tensor on one device."""
        elements: Int64Array = self._local(dims, shape).prod(axis=1)
        return elements

    def _local(
        self, dims: Sequence[int | None], shape: Sequence[int], rows: Int64Array | None = None
    ) -> Int64Array:
        """Return the shapes of the largest pieces of one tensor, as int64[R, dimensions]."""
        pieces, assigned = self.kinds.pieces, self.kinds.assigned
        if rows is not None:
            pieces, assigned = pieces[rows], assigned[rows]
        local = np.tile(np.array(shape, np.int64), (len(pieces), 1))
        for dim, index in enumerate(dims):
            if index is not None and self._mesh.is_shared(shape[dim]):
                splits = [tuple(np.flatnonzero(row == index).tolist()) for row in assigned]
                local[:, dim] = [self._mesh.largest(shape[dim], axes) for axes in splits]
            elif index is not None:
                blocks = self._mesh.blocks(shape[dim])
                if ((blocks % pieces[:, index] != 0) & (blocks < pieces[:, index])).any():
                    raise LayoutError(
                        "a dimension has an element for each device that splits it. Got extent "
                        f"{shape[dim]} in {sorted(set(pieces[:, index].tolist()))} pieces for "
                        f"{self.operator.name!r}."
                    )
                local[:, dim] = -(-blocks // pieces[:, index]) * self._mesh.unit(shape[dim])
        return local
