"""The variables of a job: each rank's shards, shared by all programs."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tensoropt.execution.world.variable_access import free, read, write
from tensoropt.execution.world.world import World
from tensoropt.graph.operator import Operator, TensorName
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.strategy import Strategy

__all__ = ["VariableStore"]


class VariableStore:
    """Creates each variable once, at the shape of the shard that a rank stores.

    Attributes:
        layouts: by variable its layout.
        worlds: by variable the ranks that have it.
    """

    def __init__(self) -> None:
        self._shards: dict[str, list[tf.Tensor]] = {}
        self.layouts: dict[str, Layout] = {}
        self.worlds: dict[str, World] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._shards

    def __getitem__(self, name: str) -> list[tf.Tensor]:
        return self._shards[name]

    def has(self, name: str, rank: int) -> bool:
        """Whether a rank of the job that is emitted here has a shard of a variable."""
        world = self.worlds[name]
        return rank - world.first in world.ranks

    def on(self, name: str, rank: int) -> tf.Tensor:
        """A variable's reference or handle on one rank of the job that is emitted here."""
        world = self.worlds[name]
        return self._shards[name][world.ranks.index(rank - world.first)]

    def region(self, name: str, shape: Sequence[int], rank: int) -> tuple[slice, ...]:
        """The region of a variable that a rank of the job stores."""
        world = self.worlds[name]
        return self.layouts[name].region(shape, world.mesh, rank - world.first)

    def get(
        self, script: tf.Graph, operator: Operator, strategy: Strategy, world: World
    ) -> list[tf.Tensor]:
        """The variable's reference or handle on every rank emitted here."""
        if operator.name not in self._shards:
            layout = strategy.output_slot(TensorName(operator.name, 0)).forward
            shape = operator.outputs[0].shape
            self.layouts[operator.name] = layout
            self.worlds[operator.name] = world
            self._shards[operator.name] = [
                _create(script, operator, layout.shape_on(shape, world.mesh, rank), rank)
                for rank in world.ranks
            ]
        return self._shards[operator.name]

    def moved(self, source: tf.compat.v1.Session, target: tf.compat.v1.Session) -> VariableStore:
        """The same variables, with their values, in another session's graph.

        One shard after the other is freed where it was, so that hardly more memory is needed.
        """
        store = VariableStore()
        store.layouts, store.worlds = dict(self.layouts), dict(self.worlds)
        parts = [(name, shard) for name, shards in self._shards.items() for shard in shards]
        with source.graph.as_default():
            reads = [read(shard) for _, shard in parts]
            frees = [free(shard) for _, shard in parts]
            filled = [_is_filled(shard) for _, shard in parts]
        with target.graph.as_default():
            for name, shard in parts:
                store._shards.setdefault(name, []).append(_copy(shard.op))
            there = [shard for shards in store._shards.values() for shard in shards]
            values = [tf.compat.v1.placeholder(read.dtype) for read in reads]
            writes = [write(shard, value) for shard, value in zip(there, values, strict=True)]
        for number, is_filled in enumerate(source.run(filled)):
            if is_filled:
                value = source.run(reads[number])
                source.run(frees[number])
                target.run(writes[number], {values[number]: value})
        return store


def _is_filled(shard: tf.Tensor) -> tf.Tensor:
    if shard.dtype == tf.resource:
        return tf.raw_ops.VarIsInitializedOp(resource=shard)
    return tf.raw_ops.IsVariableInitialized(ref=shard)


def _copy(variable: tf.Operation) -> tf.Tensor:
    graph = tf.compat.v1.get_default_graph()
    dtypes = [tensor.dtype for tensor in variable.outputs]
    attributes = dict(variable.node_def.attr)
    copied = graph.create_op(variable.type, [], dtypes, attrs=attributes, name=variable.name)
    return copied.outputs[0]


def _create(script: tf.Graph, operator: Operator, shape: tuple[int, ...], rank: int) -> tf.Tensor:
    original = script.get_operation_by_name(operator.name)
    attributes = {
        name: value for name, value in original.node_def.attr.items() if not name.startswith("_")
    }
    local = tf.compat.v1.AttrValue()
    local.shape.CopyFrom(tf.TensorShape(shape).as_proto())
    attributes["shape"] = local
    # Ranks that live in one process must not share a variable through its name.
    attributes["shared_name"] = tf.compat.v1.AttrValue(s=f"{operator.name}@{rank}".encode())
    graph = tf.compat.v1.get_default_graph()
    with graph.control_dependencies(None):
        operation = graph.create_op(
            operator.type,
            [],
            dtypes=[original.outputs[0].dtype],
            attrs=attributes,
            name=operator.name,
        )
    return operation.outputs[0]
