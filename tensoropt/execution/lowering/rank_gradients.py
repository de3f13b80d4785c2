"""Gradients of a script's recorded calls: TensorFlow differentiates the emitted operators."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from tensoropt.errors import GraphError
from tensoropt.execution.edges.edge import moved_slices
from tensoropt.execution.edges.gradient_reduction import GradientReducer
from tensoropt.execution.edges.program_context import ProgramContext
from tensoropt.execution.gradient_functions.matrix_products import summed_as_one
from tensoropt.execution.world.slices import SlicesEdge
from tensoropt.graph.differentiation import sparse_tensors
from tensoropt.graph.operator import GradientTag, Operator, TensorName
from tensoropt.parallel.layout import Layout
from tensoropt.tensorflow_private import unrecorded_gradients
from tensoropt.transformations.microbatches.step_graph import BOUNDARY
from tensoropt.transformations.staged.stage_graph import TRANSFER

__all__ = ["RankGradients"]


class RankGradients:
    """Differentiates a program while it is emitted, once for all gradients of a recorded call.

    Args:
        context: the program.
        sums: collects the gradients by variables.
        before_call: called before each call's gradients are made.
    """

    def __init__(
        self, context: ProgramContext, sums: GradientReducer, before_call: Callable[[], None]
    ) -> None:
        self._graph = context.graph
        self._strategy = context.strategy
        self._world = context.world
        self._emitted = context.emitted
        self._plan_steps = context.plan_steps
        self._target = context.target
        self._sums = sums
        self._before_call = before_call
        self._sparse = sparse_tensors(context.graph)
        self._updates_wait = context.updates_wait
        self._now_sparse: frozenset[TensorName] = frozenset()
        self._gradients: dict[tuple[int, TensorName], list[Any]] = {}  # by call and x

    def is_now_sparse(self, tensor: TensorName) -> bool:
        """Whether the script's gradient of a tensor in the current call is sparse."""
        return tensor in self._now_sparse

    def shards(self, operator: Operator) -> list[tf.Tensor]:
        """Return the shards of a gradient (or of its rows, or their numbers), one per rank.

        Raises:
            GraphError: if the script has this gradient but the ranks have none.
        """
        tag = operator.gradient
        assert tag is not None, "a recorded gradient"
        if (tag.call, tag.x) not in self._gradients:
            self._differentiate(tag)
        gradients = self._gradients[(tag.call, tag.x)]
        dtype = operator.outputs[0].dtype
        return [_part(gradient, tag.part, dtype, operator.name) for gradient in gradients]

    def _differentiate(self, tag: GradientTag) -> None:
        """Differentiate the emitted graph by all x of one call that this program needs."""
        xs = list(
            dict.fromkeys(
                other.gradient.x
                for other in self._graph
                if other.gradient is not None
                and other.gradient.call == tag.call
                and other.gradient.x.operator in self._emitted
            )
        )
        shards = self._emitted.shards
        ys = _flat(shards(y) for y in tag.ys)
        upstream: list[tf.Tensor] = []
        for y, grad_y in zip(tag.ys, tag.grad_ys, strict=True):
            upstream += self._upstream(y, grad_y)
        after = [
            operation
            for name in tag.after
            for operation in (*self._emitted.operations(name), *self._emitted.sent.get(name, ()))
        ]
        self._now_sparse = self._sparse[tag.call]
        self._before_call()
        variables = frozenset(x for x in xs if self._graph[x.operator].is_variable)
        constant = frozenset({*xs, *tag.stop_gradients} - variables)
        with (
            self._target.control_dependencies(after),
            self._sums.collecting(variables, constant) as reduced,
        ):
            gradients = unrecorded_gradients(
                ys,
                _flat(shards(x) for x in xs),
                grad_ys=upstream,
                stop_gradients=_flat(shards(t) for t in tag.stop_gradients),
                gate_gradients=self._updates_wait,
                name=f"gradients_{tag.call}",
            )
        width = len(self._world.ranks)
        for number, x in enumerate(xs):
            of_ranks = [
                summed_as_one(gradient)
                for gradient in gradients[number * width : (number + 1) * width]
            ]
            of_ranks = _added(of_ranks, reduced.get(x, ()))
            if self._graph[x.operator].type in (BOUNDARY, TRANSFER):
                # The script's gradient may leave out some of the paths to this tensor.
                of_ranks = [
                    tf.zeros_like(shard) if gradient is None else gradient
                    for gradient, shard in zip(of_ranks, shards(x), strict=True)
                ]
            if x in self._now_sparse:
                of_ranks = self._whole_slices(x, of_ranks)
            self._gradients[(tag.call, x)] = of_ranks

    def _upstream(self, y: TensorName, grad_y: TensorName | None) -> list[tf.Tensor]:
        """Return the gradient that arrives at y, in the gradient layout of y's producer.

        It is the script's ``grad_y``, or ones.
        """
        shards = self._emitted.shards(y)
        target = self._strategy.output_slot(y).gradient
        if grad_y is None:
            upstream, source = [tf.ones_like(shard) for shard in shards], Layout(target.dims)
        else:
            upstream = self._emitted.shards(grad_y)
            source = self._strategy.output_slot(grad_y).forward
        shape, dtype = self._graph.spec(y).shape, shards[0].dtype.base_dtype.name
        steps = self._plan_steps(shape, dtype, source, target)
        return self._world.reshard(upstream, steps, f"{y.operator}/upstream")

    def _whole_slices(self, x: TensorName, gradients: list[Any]) -> list[Any]:
        """Reshard a sparse gradient: all slices on every rank, their columns in the layout of x."""
        source = self._strategy.output_slot(x).gradient
        target = Layout(((), *source.dims[1:]))
        shape, label = self._graph.spec(x).shape, f"{x.operator}/slices"
        if all(isinstance(gradient, tf.IndexedSlices) for gradient in gradients):
            if not source.partial:
                return gradients
            move = functools.partial(moved_slices, self._world)
            edge = SlicesEdge(self._world, shape, source, target, self._plan_steps, label, move)
            return edge.collected(gradients)
        if any(gradient is None for gradient in gradients):
            return gradients
        # A rule may give a dense gradient although the script's is sparse.
        steps = self._plan_steps(shape, gradients[0].dtype.name, source, target)
        wholes = self._world.reshard(gradients, steps, label)
        return [tf.IndexedSlices(whole, tf.range(tf.shape(whole)[0])) for whole in wholes]


def _flat(groups: Iterable[list[tf.Tensor]]) -> list[tf.Tensor]:
    return [tensor for group in groups for tensor in group]


def _added(gradients: list[Any], more: Sequence[list[tf.Tensor]]) -> list[Any]:
    """Add gradients of ranks, one per rank, to others of the same tensor."""
    if not more:
        return gradients
    parts = [*([] if all(gradient is None for gradient in gradients) else [gradients]), *more]
    if len(parts) == 1:
        return parts[0]
    columns = zip(*parts, strict=True)
    return [tf.add_n([tf.convert_to_tensor(part) for part in column]) for column in columns]


def _part(gradient: Any, part: str, dtype: str, name: str) -> tf.Tensor:
    if gradient is None:
        raise GraphError(
            f"a gradient that TensorFlow found in the script's graph exists on every rank. Got "
            f"none for {name!r}."
        )
    if part == "dense":
        return tf.convert_to_tensor(gradient)
    return gradient.values if part == "values" else tf.cast(gradient.indices, dtype)
