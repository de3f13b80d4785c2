"""What the TensorFlow operations check and know when they are built."""

from __future__ import annotations

import pytest
import tensorflow as tf

import collectives
from collectives.transport.single import SingleTransport


class FourTransport(SingleTransport):
    """Position 0 of four; the operations are built and never run."""

    ranks = (0, 1, 2, 3)


@pytest.fixture
def four() -> collectives.Group:
    return collectives.Group(FourTransport())


@pytest.fixture(autouse=True)
def graph() -> object:
    with tf.Graph().as_default() as graph:
        yield graph


def test_static_shapes_are_known(four: collectives.Group) -> None:
    x = tf.zeros([8, 3, 4])
    assert collectives.allreduce(x, four).shape == [8, 3, 4]
    assert collectives.allgather(x, 1, four).shape == [8, 12, 4]
    assert collectives.reduce_scatter(x, -1, four).shape == [8, 3, 1]
    assert collectives.alltoall(x, 0, 1, four).shape == [2, 12, 4]
    assert collectives.alltoall(x, 0, 0, four).shape == [8, 3, 4]
    assert collectives.broadcast(x, 3, four).shape == [8, 3, 4]
    assert collectives.exchange(x, 1, [-1, 2, 5, 8], 5, four).shape == [8, 5, 4]
    assert collectives.exchange_sum(x, -2, [-1, 0, 1, 2], 1, four).shape == [8, 1, 4]


def test_unknown_sizes_stay_unknown(four: collectives.Group) -> None:
    x = tf.compat.v1.placeholder(tf.float32, [None, 4])
    assert collectives.allgather(x, 0, four).shape.as_list() == [None, 4]
    assert collectives.reduce_scatter(x, 0, four).shape.as_list() == [None, 4]
    assert collectives.alltoall(x, 1, 0, four).shape.as_list() == [None, 1]
    unknown = tf.compat.v1.placeholder(tf.float32)
    assert collectives.allgather(unknown, -1, four).shape.rank is None


def test_mistakes_are_found_when_the_graph_is_built(four: collectives.Group) -> None:
    x = tf.zeros([6, 4])
    with pytest.raises(collectives.ShapeError, match="size 6 of dimension 0 for 4 ranks"):
        collectives.reduce_scatter(x, 0, four)
    with pytest.raises(collectives.ShapeError, match="size 6 of dimension 0"):
        collectives.alltoall(x, 0, 1, four)
    with pytest.raises(collectives.ShapeError, match="Got 2"):
        collectives.allgather(x, 2, four)
    with pytest.raises(collectives.ShapeError, match="Got 2 starts for 4 ranks"):
        collectives.exchange(x, 0, [0, 6], 6, four)
    unknown = tf.compat.v1.placeholder(tf.float32, [None, 4])
    with pytest.raises(collectives.ShapeError, match=r"Got dimension 0 .*, 4.*set its shape"):
        collectives.exchange(unknown, 0, [0] * 4, 6, four)
    with pytest.raises(collectives.GroupError, match="Got 4"):
        collectives.broadcast(x, 4, four)
    with pytest.raises(collectives.ReducerError, match="Got 'mean'"):
        collectives.allreduce(x, four, "mean")
    with pytest.raises(collectives.DTypeError, match="fixed size"):
        collectives.allgather(tf.constant(["a"]), 0, four)
    with pytest.raises(collectives.DTypeError, match="sum of object"):
        collectives.allreduce(tf.constant(["a"]), four)


@pytest.mark.parametrize("reducer", ["max", "min", "prod"])
def test_gradients_that_do_not_exist_say_so(four: collectives.Group, reducer: str) -> None:
    x = tf.zeros([8])
    scattered = collectives.reduce_scatter(x, 0, four, reducer)
    with pytest.raises(LookupError, match=f"sum only. Got {reducer}"):
        tf.gradients(scattered, x)


def test_a_product_has_no_gradient(four: collectives.Group) -> None:
    x = tf.zeros([8])
    product = collectives.allreduce(x, four, "prod")
    with pytest.raises(collectives.GradientError, match="Got prod"):
        tf.gradients(product, x)


def test_operations_are_named(four: collectives.Group) -> None:
    with tf.name_scope("layer"), collectives.Sequence() as sequence:
        collectives.allgather(tf.zeros([2]), group=four, name="weights")
        collectives.broadcast(tf.zeros([2]), group=four)
        collectives.exchange(tf.zeros([2]), 0, [-1, 1, 3, 5], 4, four)
    assert sequence.records == (
        "allgather dim 0 float32[2] ranks 0,1,2,3 as layer/weights",
        "broadcast root 0 float32[2] ranks 0,1,2,3 as layer/broadcast",
        "exchange dim 0 pieces of 2 windows of 4 at -1,1,3,5 float32[2] ranks 0,1,2,3 "
        "as layer/exchange",
    )
