"""The inputs of emitted operators: shards, resharded to the slots of the operators."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from math import prod

import tensorflow as tf

from tensoropt.execution.edges.edge import reshard_edge
from tensoropt.execution.edges.gradient_reduction import GradientReducer
from tensoropt.execution.edges.program_context import ProgramContext
from tensoropt.execution.edges.statistic_sums import StatisticSums
from tensoropt.execution.world.slices import Numbers
from tensoropt.graph.differentiation import differentiated_inputs
from tensoropt.graph.operator import Operator, TensorName
from tensoropt.parallel.buckets import path_to_variable
from tensoropt.parallel.layout import Slot
from tensoropt.parallel.sparse import known_shape, looks_up_rows

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
        self._lookups = Counter(op.inputs[0] for op in context.graph if looks_up_rows(op, 0))
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
            path = () if looked_up else path_to_variable(self._strategy, tensor)
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
                functools.partial(self._sums.take, path) if path else None,
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
