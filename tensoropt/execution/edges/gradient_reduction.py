"""Sums over devices of gradients of weights, one bucket after the other.

While `tf.gradients` computes the gradients of a call, an edge from a variable passes the gradient
of its readers to `GradientReducer`, and none to TensorFlow: every path ends at a variable. The
backward pass computes the gradients of the last layers first. Their collectives have the same
order, on every rank. Gradients by one variable that arrive at several edges, as by a table that is
looked up and also multiplied, are added on each rank first, so that one sum crosses the network.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

import tensorflow as tf

from tensoropt.execution.edges.edge import Collect, dual_reshard
from tensoropt.execution.gradient_functions.custom_gradients import differentiated_as
from tensoropt.execution.world.world import World
from tensoropt.graph.operator import TensorName
from tensoropt.parallel.buckets import Buckets, BucketSizes, Sums, elementwise_sums, vector_steps
from tensoropt.parallel.resharding import ReshardStep, Step

__all__ = ["GradientReducer", "reduced_as_one"]


_End = Callable[[], list[list[tf.Tensor]]]
"""Emits the rest of the sums of some gradients, and returns the sums of each on all ranks."""


@dataclass(frozen=True, slots=True, eq=False)
class _Gradient:
    """A gradient by a variable, before it is summed over devices.

    Attributes:
        variable: the variable.
        shards: one per rank emitted here.
        begin: begins to sum this gradient alone over the devices. The function that it returns
            emits the rest and returns the sums.
    """

    variable: TensorName
    shards: list[tf.Tensor]
    begin: Callable[[], Callable[[], list[tf.Tensor]]]


@dataclass(frozen=True, slots=True, eq=False)
class _AtEdge:
    """A gradient as it arrives at an edge.

    Attributes:
        shards: one per rank emitted here.
        steps: the resharding back to the variable.
        label: names the operations of the resharding.
        reduced: reshards this gradient alone, and may be differentiated.
    """

    shards: list[tf.Tensor]
    steps: tuple[Step, ...]
    label: str
    reduced: Callable[[], list[tf.Tensor]]


class GradientReducer:
    """Collects the gradients of one call at a time.

    The last part of a bucket's sums, within machines, waits until the bucket has crossed the
    network. These parts are emitted after the first parts of all buckets. So no bucket waits for
    another bucket to cross before it is sent.

    Args:
        world: the ranks emitted here.
        sizes: the sizes of buckets.
        differentiated: whether the sums are differentiated again. If not, the memory of a gradient
            is free once the gradient is summed.
        as_bfloat16: whether gradients of float32 that are not differentiated again travel between
            machines as bfloat16.
    """

    def __init__(
        self,
        world: World,
        sizes: BucketSizes,
        differentiated: bool = True,
        as_bfloat16: bool = False,
    ) -> None:
        self._world = world
        self._differentiated = differentiated
        self._as_bfloat16 = as_bfloat16
        self._begun: list[tuple[list[_Gradient], _End]] = []
        self._sizes = sizes
        self._collected: frozenset[TensorName] = frozenset()
        self._constant: frozenset[TensorName] = frozenset()
        self._buckets: Buckets[_Gradient] = Buckets(sizes, self._joins)
        self._reduced: dict[TensorName, list[list[tf.Tensor]]] = {}
        self._edges: Counter[TensorName] = Counter()  # by variable
        self._waiting: dict[TensorName, list[_AtEdge]] = {}

    @contextlib.contextmanager
    def collecting(
        self, variables: frozenset[TensorName], constant: frozenset[TensorName]
    ) -> Iterator[Mapping[TensorName, list[list[tf.Tensor]]]]:
        """Collect the gradients of one call by some variables, while the context lasts.

        Args:
            variables: the variables by which the call differentiates.
            constant: other tensors by which the call differentiates, or at which gradients stop.

        Yields:
            The sums by variable. They are complete once the context is left.
        """
        self._collected, self._constant, self._reduced = variables, constant, {}
        self._buckets, self._waiting = Buckets(self._sizes, self._joins), {}
        try:
            yield self._reduced
            for variable in list(self._waiting):  # some of its edges have no gradient in this call
                self._pass_on(variable)
            self._reduce(self._buckets.rest())
            self._end()
        finally:
            self._collected = self._constant = frozenset()

    def edge(self, path: Sequence[TensorName]) -> Collect:
        """Return the function that collects the gradients at one more edge from a variable.

        Args:
            path: the tensors from the edge's source to its variable.
        """
        self._edges[path[-1]] += 1
        return partial(self._take, path)

    def _take(
        self,
        path: Sequence[TensorName],
        shards: list[tf.Tensor],
        steps: Sequence[Step],
        reduced: Callable[[], list[tf.Tensor]],
    ) -> bool:
        """Collect the gradient at an edge, if it can be. Return whether it is collected."""
        *reads, variable = path
        if variable not in self._collected or not self._constant.isdisjoint(reads):
            return False
        label = f"{path[0].operator}/reshard/gradient"
        waiting = self._waiting.setdefault(variable, [])
        waiting.append(_AtEdge(shards, tuple(steps), label, reduced))
        if self._differentiated or len(waiting) == self._edges[variable]:
            self._pass_on(variable)
        return True

    def _pass_on(self, variable: TensorName) -> None:
        """Put the gradients by a variable into the bucket, those with the same steps as one."""
        alike: dict[tuple[tuple[Step, ...], tf.DType], list[_AtEdge]] = {}
        for each in self._waiting.pop(variable):
            alike.setdefault((each.steps, each.shards[0].dtype), []).append(each)
        for (steps, dtype), gradients in alike.items():
            shards, label = gradients[0].shards, gradients[0].label
            if len(gradients) > 1:
                columns = zip(*(each.shards for each in gradients), strict=True)
                shards = [tf.add_n(column) for column in columns]
            if self._differentiated:
                gradient = _Gradient(variable, shards, partial(_ended, gradients[0].reduced))
            else:
                begin = partial(self._world.begin_reshard, shards, steps, label, self._as_bfloat16)
                gradient = _Gradient(variable, shards, begin)
            size = self._bytes(shards[0], steps[0])
            self._reduce(self._buckets.add(gradient, elementwise_sums(steps), dtype.name, size))

    def _bytes(self, shard: tf.Tensor, step: Step) -> int | None:
        """Return the bytes of the largest shard, before a step; None if its shape is open.

        Every rank gets the same number, so that their buckets are the same.
        """
        if isinstance(step, ReshardStep) and step.shape:
            largest = step.source.local_elements(step.shape, self._world.mesh)
            return int(largest * shard.dtype.size)
        if not shard.shape.is_fully_defined():
            return None
        return int(prod(shard.shape.as_list()) * shard.dtype.size)

    def _joins(self, sums: Sums, dtype: str) -> bool:
        return self._world.joins(vector_steps(sums), tf.as_dtype(dtype))

    def _reduce(self, bucket: Sequence[tuple[Sums | None, list[_Gradient]]]) -> None:
        """Begin to reduce a bucket once all its gradients are computed."""
        inputs = [shard for _, gradients in bucket for each in gradients for shard in each.shards]
        if not inputs:
            return
        with tf.control_dependencies(inputs):
            is_full = tf.no_op("bucket")
        with tf.control_dependencies([is_full]):
            for sums, gradients in bucket:
                if sums is None or len(gradients) == 1:
                    ends = [each.begin() for each in gradients]
                    self._begun.append((gradients, partial(_all_ended, ends)))
                else:
                    self._begun.append((gradients, self._begin_as_one(gradients, sums)))

    def _begin_as_one(self, gradients: list[_Gradient], sums: Sums) -> _End:
        shards = [each.shards for each in gradients]
        label = f"sums_of_{len(gradients)}_gradients"
        if self._differentiated:
            return partial(list, reduced_as_one(self._world, shards, sums, label))
        return _begin_as_one(self._world, shards, sums, label, self._as_bfloat16)

    def _end(self) -> None:
        """Emit the rest of all buckets."""
        for gradients, end in self._begun:
            for gradient, total in zip(gradients, end(), strict=True):
                self._reduced.setdefault(gradient.variable, []).append(total)
        self._begun = []


def reduced_as_one(
    world: World, tensors: Sequence[list[tf.Tensor]], sums: Sums, label: str
) -> list[list[tf.Tensor]]:
    """Sum several tensors over devices, in one collective for each all-reduce.

    If the world can, one operator takes all tensors; otherwise they are copied into a vector. The
    sums may be differentiated.

    Args:
        world: the ranks emitted here.
        tensors: for each tensor the shards of all ranks, of known shapes.
        sums: the all-reduces, the same for all tensors.
        label: names the operations.

    Returns:
        For each tensor the sums on all ranks.
    """
    steps = vector_steps(sums)
    with tf.name_scope(label):
        if not world.joins(steps, tensors[0][0].dtype):
            moved = dual_reshard(world, _packed(world, tensors), steps, (), label, label)
            return _unpacked(moved, tensors)
        together = _reduced_together(world, tensors, steps, label)
    # The gradient by a sum is replicated, and it is the gradient by each term of the sum.
    flat = differentiated_as(_flat(together), _flat(tensors), lambda *upstream: list(upstream))
    width = len(world.ranks)
    return [flat[start : start + width] for start in range(0, len(flat), width)]


def _begin_as_one(
    world: World, tensors: Sequence[list[tf.Tensor]], sums: Sums, label: str, as_bfloat16: bool
) -> _End:
    """Begin what `reduced_as_one` does, without gradients; see `World.begin_reshard`."""
    steps = vector_steps(sums)
    with tf.name_scope(label):
        if world.joins(steps, tensors[0][0].dtype):
            return partial(list, _reduced_together(world, tensors, steps, label, as_bfloat16))
        end = world.begin_reshard(_packed(world, tensors), steps, label, as_bfloat16)

    def ended() -> list[list[tf.Tensor]]:
        with tf.name_scope(label):
            return _unpacked(end(), tensors)

    return ended


def _packed(world: World, tensors: Sequence[list[tf.Tensor]]) -> list[tf.Tensor]:
    """Return for each rank one vector with all tensors."""
    return [
        tf.concat([tf.reshape(shards[position], [-1]) for shards in tensors], 0)
        for position in range(len(world.ranks))
    ]


def _unpacked(
    vectors: Sequence[tf.Tensor], tensors: Sequence[list[tf.Tensor]]
) -> list[list[tf.Tensor]]:
    """Divide vectors into tensors of the shapes of ``tensors``."""
    unpacked = []
    for position, vector in enumerate(vectors):
        shapes = [shards[position].shape.as_list() for shards in tensors]
        parts = tf.split(vector, [prod(shape) for shape in shapes])
        unpacked.append([tf.reshape(*pair) for pair in zip(parts, shapes, strict=True)])
    return [list(shards) for shards in zip(*unpacked, strict=True)]


def _reduced_together(
    world: World,
    tensors: Sequence[list[tf.Tensor]],
    steps: Sequence[ReshardStep],
    label: str,
    as_bfloat16: bool = False,
) -> list[list[tf.Tensor]]:
    moved = list(tensors)
    for step in steps:
        moved = world.reduce_together(moved, step, label, as_bfloat16)
    return moved


def _ended(reduced: Callable[[], list[tf.Tensor]]) -> Callable[[], list[tf.Tensor]]:
    """Begin a resharding whose rest is emitted with its first part."""
    return partial(list, reduced())


def _all_ended(ends: Sequence[Callable[[], list[tf.Tensor]]]) -> list[list[tf.Tensor]]:
    return [end() for end in ends]


def _flat(tensors: Sequence[list[tf.Tensor]]) -> list[tf.Tensor]:
    return [shard for shards in tensors for shard in shards]
