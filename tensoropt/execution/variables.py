"""The variables of a job: each rank's shards, shared by all programs."""

from __future__ import annotations

import tensorflow as tf

from tensoropt.execution.world import World
from tensoropt.graph.operator import Operator, TensorName
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.strategy import Strategy

__all__ = ["VariableStore"]


class VariableStore:
    """Creates each variable once, at the shape of the shard that a rank stores."""

    def __init__(self) -> None:
        self._shards: dict[str, list[tf.Tensor]] = {}
        self.layouts: dict[str, Layout] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._shards

    def __getitem__(self, name: str) -> list[tf.Tensor]:
        return self._shards[name]

    def get(
        self, script: tf.Graph, operator: Operator, strategy: Strategy, world: World
    ) -> list[tf.Tensor]:
        """The variable's reference or handle on every rank emitted here."""
        if operator.name not in self._shards:
            layout = strategy.output_slot(TensorName(operator.name, 0)).forward
            shape = layout.local_shape(operator.outputs[0].shape, world.mesh)
            self.layouts[operator.name] = layout
            self._shards[operator.name] = [
                _create(script, operator, shape, rank) for rank in world.ranks
            ]
        return self._shards[operator.name]


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
