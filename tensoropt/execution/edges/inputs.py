"""The inputs of emitted operators: shards, resharded to the slots of the operators."""

from __future__ import annotations

import functools
from collections.abc import Callable
from math import prod

import tensorflow as tf

from tensoropt.execution.edges.edge import reshard_edge
from tensoropt.execution.edges.gradient_reduction import GradientReducer, reduced_as_one
from tensoropt.execution.edges.program_context import ProgramContext
from tensoropt.execution.world.slices import Numbers
from tensoropt.graph.differentiation import differentiated_inputs
from tensoropt.graph.operator import Operator, TensorName
from tensoropt.parallel.buckets import Sums, elementwise_sums, path_of_gradient
from tensoropt.parallel.layout import Layout, Slot
from tensoropt.parallel.sparse import known_shape, looks_up_rows, lookups_of_tables

__all__ = ["Inputs"]


class Inputs:
    """Emits the edges of a program, each when it is first read.

    Consumers that read a tensor in the same slot share an edge.

    Args:
        context: the program.
        is_now_sparse: whether the script's gradient of a tensor in the current call is sparse.
        sums: collects the gradients of variables.
    """

    def __init__(
        self,
        context: ProgramContext,
        is_now_sparse: Callable[[TensorName], bool],
        sums: GradientReducer,
    ) -> None:
        self._graph = context.graph
        self._strategy = context.strategy
        self._world = context.world
        self._emitted = context.emitted
        self._plan_steps = context.plan_steps
        self._sizes = context.sizes
        self._is_now_sparse = is_now_sparse
        self._sums = sums
        self._statistics = StatisticSums(context)
        self._differentiated = differentiated_inputs(context.graph)
        self._lookups = lookups_of_tables(context.graph)
        self._edges: dict[tuple[TensorName, Slot, bool, str], list[tf.Tensor]] = {}

    def of(self, operator: Operator) -> list[list[tf.Tensor]]:
        """Return the shards of each input of an operator, one per rank, in the input's slot.

        A variable that the operator changes is returned in its stored layout.
        """
        return [self.shards(operator, number) for number in range(len(operator.inputs))]

    def shards(self, operator: Operator, number: int) -> list[tf.Tensor]:
        """Return the shards of one input, one per rank."""
        tensor = operator.inputs[number]
        spec = operator.input_specs[number]
        if self._emitted.is_cut_where_read(self._graph[tensor.operator]):
            return self._emitted.cut(tensor, self._strategy.input_slot(operator, number).forward)
        shards = self._emitted.shards(tensor)
        if number in operator.mutates or spec.dtype == "resource":
            return shards
        source = self._strategy.output_slot(tensor)
        target = self._strategy.input_slot(operator, number)
        differentiated = number in self._differentiated.get(operator.name, ())
        looked_up = looks_up_rows(operator, number)
        # Lookups share an edge if their table is resharded. Otherwise each lookup has an edge of
        # its own, which gets its slices in order.
        stays = source.forward == target.forward
        alone = looked_up and (
            stays or self._lookups[tensor] == 1 or self._has_uneven_numbers(operator)
        )
        key = (tensor, target, differentiated, operator.name if alone else str(looked_up))
        averaged = None if differentiated else self._statistics.read(tensor, target.forward)
        if averaged is not None:
            return averaged
        if key not in self._edges:
            numbers = None
            path = path_of_gradient(self._strategy, operator, number, self._lookups)
            if alone:
                shards = (self._handles(tensor) if stays else None) or shards
                layout = self._strategy.input_slot(operator, 1).forward
                shape = operator.input_specs[1].shape
                expected = prod(known_shape(self._sizes.get(shape, shape)))
                numbers = Numbers(shape, layout, expected)
            self._edges[key] = reshard_edge(
                self._world,
                shards,
                spec.shape,
                source,
                target,
                self._plan_steps,
                f"{tensor.operator}/reshard",
                differentiated,
                lambda: self._is_now_sparse(tensor),
                looked_up,
                numbers,
                functools.partial(self._sums.edge, path) if path else None,
            )
        return self._edges[key]

    def _has_uneven_numbers(self, operator: Operator) -> bool:
        """Whether ranks look up different numbers of rows."""
        shape, layout = (
            operator.input_specs[1].shape,
            self._strategy.input_slot(operator, 1).forward,
        )
        return -1 not in shape and bool(layout.uneven_dims(shape, self._world.mesh))

    def _handles(self, tensor: TensorName) -> list[tf.Tensor] | None:
        """Return the handles of a variable that a gather reads; None if the tensor is no such read.

        The gather then looks up rows of the variable itself. TensorFlow would copy the whole
        variable to read it, since it is also updated by rows.
        """
        read = self._graph[tensor.operator]
        if not (read.synthetic and read.type == "ReadVariableOp"):
            return None
        return self._emitted.shards(read.inputs[0])


_Read = tuple[TensorName, Layout]


class StatisticSums:
    """Adds up statistics over devices when the first statistic is read.

    One collective adds up all statistics that are emitted by then and are read in the same layout.
    Readers are emitted after all statistics (`tensoropt.graph.ordering.statistics_last`). If the
    script differentiates a statistic, the statistic has an edge of its own.
    """

    def __init__(self, context: ProgramContext) -> None:
        self._context = context
        graph, strategy = context.graph, context.strategy
        differentiated = differentiated_inputs(graph)
        self._reads: dict[_Read, Sums] = {}
        for operator in graph:
            for number, tensor in enumerate(operator.inputs):
                if number in differentiated.get(operator.name, ()):
                    continue
                if strategy.derivations[tensor.operator].is_averaged(tensor.index):
                    target = strategy.input_slot(operator, number).forward
                    sums = self._sums(tensor, target)
                    if sums is not None:
                        self._reads[tensor, target] = sums
        self._added: dict[_Read, list[tf.Tensor]] = {}

    def read(self, tensor: TensorName, target: Layout) -> list[tf.Tensor] | None:
        """Return a statistic's shards in a layout, one per rank; None for all other tensors."""
        sums = self._reads.get((tensor, target))
        if sums is not None and (tensor, target) not in self._added:
            self._add(sums)
        return self._added.get((tensor, target))

    def _sums(self, tensor: TensorName, target: Layout) -> Sums | None:
        spec = self._context.graph.spec(tensor)
        source = self._context.strategy.output_slot(tensor).forward
        return elementwise_sums(self._context.plan_steps(spec.shape, spec.dtype, source, target))

    def _add(self, sums: Sums) -> None:
        """Add up all emitted statistics. The kernel's dtype is float32, so theirs is too."""
        emitted = self._context.emitted
        reads = [
            (tensor, target)
            for (tensor, target), of_read in self._reads.items()
            if of_read == sums
            and tensor.operator in emitted
            and (tensor, target) not in self._added
        ]
        shards = [emitted.shards(tensor) for tensor, _ in reads]
        label = f"sums_of_{len(reads)}_statistics"
        added = reduced_as_one(self._context.world, shards, sums, label)
        self._added.update(zip(reads, added, strict=True))
