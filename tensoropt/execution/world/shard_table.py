"""The emitted shards and operations of a program's operators, rank by rank."""

from __future__ import annotations

import tensorflow as tf

from tensoropt.execution.world.world import World
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.parallel.layout import Layout

__all__ = ["LARGE", "ShardTable"]

LARGE = 1 << 12  # elements of a constant that is too large for each device to hold whole


class ShardTable:
    """A table of emitted operators. Constants are emitted when they are first looked up.

    A large constant is emitted only in the shards that are read (`cut`), and whole if it is looked
    up by name.

    Args:
        graph: the operators to emit.
        world: the ranks emitted here.
        target: the TensorFlow graph to emit into.

    Attributes:
        sent: by operator the operations that send its outputs to other stages.
    """

    def __init__(self, graph: Graph, world: World, target: tf.Graph) -> None:
        self._graph = graph
        self._world = world
        self._target = target
        self._differentiated_by = {op.gradient.x.operator for op in graph if op.gradient}
        self._outputs: dict[str, list[list[tf.Tensor]]] = {}
        self._operations: dict[str, list[tf.Operation]] = {}
        self.sent: dict[str, list[tf.Operation]] = {}
        self._cut: dict[tuple[str, tuple[tuple[int, int], ...]], tf.Tensor] = {}

    def __contains__(self, name: str) -> bool:
        """Whether an operator is recorded."""
        return name in self._outputs

    def record(
        self,
        operator: Operator,
        outputs: list[list[tf.Tensor]],
        operations: list[tf.Operation] | None = None,
    ) -> None:
        """Record an emitted operator.

        Args:
            operator: an operator of the graph.
            outputs: per rank the shards of its outputs.
            operations: per rank the operation to run for it; by default the one that makes its
                first output.
        """
        self._outputs[operator.name] = outputs
        if operations is not None:
            self._operations[operator.name] = operations
        elif outputs and outputs[0]:
            self._operations[operator.name] = [tensors[0].op for tensors in outputs]

    def operations(self, name: str) -> list[tf.Operation]:
        """The emitted operations of an operator, one per rank."""
        if name not in self._operations:
            self.shards(TensorName(name, 0))
        return self._operations[name]

    def shards(self, tensor: TensorName) -> list[tf.Tensor]:
        """A tensor's shards in its producer's layout, one per rank."""
        if tensor.operator not in self._outputs:
            with self._target.control_dependencies(None):
                self.record_constant(self._graph[tensor.operator])
        return [outputs[tensor.index] for outputs in self._outputs[tensor.operator]]

    def before(self, operator: Operator, position: int) -> list[tf.Operation]:
        """The control inputs of an operator on one rank."""
        return [
            self._operations[name][position]
            for name in operator.control_inputs
            if name in self._operations
        ]

    def before_on_all(self, operator: Operator) -> list[tf.Operation]:
        """The control inputs of an operator on all ranks emitted here."""
        ranks = range(len(self._world.ranks))
        return [operation for position in ranks for operation in self.before(operator, position)]

    def record_constant(self, operator: Operator) -> None:
        """Make a constant whole on every rank."""
        self.record(operator, [[shard] for shard in self._constant(operator)])

    def is_cut_where_read(self, operator: Operator) -> bool:
        """Whether a constant is large, so that it is emitted only in the shards that are read."""
        if not operator.is_constant or operator.outputs[0].elements <= LARGE:
            return False
        return not operator.control_inputs and operator.name not in self._differentiated_by

    def cut(self, tensor: TensorName, layout: Layout) -> list[tf.Tensor]:
        """A constant's shards in a layout, one per rank; equal regions are made once."""
        value = self._graph.spec(tensor).value
        assert value is not None, "a constant has a value"
        shards = []
        for rank in self._world.ranks:
            region = layout.region(value.shape, self._world.mesh, rank)
            key = (tensor.operator, tuple((part.start, part.stop) for part in region))
            if key not in self._cut:
                with self._target.control_dependencies(None):
                    self._cut[key] = tf.constant(value[region], name=tensor.operator)
            shards.append(self._cut[key])
        return shards

    def _constant(self, operator: Operator) -> list[tf.Tensor]:
        value = operator.outputs[0].value
        if not operator.control_inputs and operator.name not in self._differentiated_by:
            return [tf.constant(value, name=operator.name)] * len(self._world.ranks)
        shards = []
        for position in range(len(self._world.ranks)):
            with self._target.control_dependencies(self.before(operator, position)):
                shards.append(tf.constant(value, name=operator.name))
        return shards
