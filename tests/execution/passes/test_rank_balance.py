"""Each operator runs between the same collectives on all ranks."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tensoropt.execution.passes.rank_balance import balance_ranks

v1 = tf.compat.v1
MUCH = 1 << 30


class Step:
    """A graph in which an operator that negates stands for a collective."""

    def __init__(self) -> None:
        self.graph = tf.Graph()
        self.collectives: list[tf.Operation] = []
        self.waits: list[tf.Operation] = []

    def collective(self, value: tf.Tensor) -> tf.Tensor:
        """Add a collective that waits for the previous one."""
        with tf.control_dependencies(self.collectives[-1:]):
            made = tf.raw_ops.Neg(x=value)
        self.collectives.append(made.op)
        return made

    def across_machines(self, value: tf.Tensor) -> tf.Tensor:
        """Add an operator that waits for a collective across machines."""
        made = tf.raw_ops.Neg(x=value)
        self.waits.append(made.op)
        return made

    def balanced(self, *run: tf.Tensor, full_bytes: int = MUCH) -> None:
        """Order the operations that some tensors need."""
        needed = [tensor.op for tensor in run]
        operations = self.graph.get_operations()
        balance_ranks(operations, needed, self.collectives, full_bytes, self.waits)

    def is_before(self, one: tf.Tensor, other: tf.Tensor) -> bool:
        """Whether an operator has run whenever another one does."""
        waiting, seen = [other.op], {other.op}
        while waiting:
            operation = waiting.pop()
            for each in [*(given.op for given in operation.inputs), *operation.control_inputs]:
                if each is one.op:
                    return True
                if each not in seen:
                    seen.add(each)
                    waiting.append(each)
        return False

    def run(self, *fetched: tf.Tensor) -> None:
        """Run tensors, which shows that no operations wait for each other in a circle."""
        config = v1.ConfigProto()
        config.graph_options.rewrite_options.disable_meta_optimizer = True  # as sessions of ranks
        with v1.Session(graph=self.graph, config=config) as session:
            session.run(fetched)


def test_what_is_made_between_two_collectives_runs_between_them() -> None:
    step = Step()
    with step.graph.as_default():
        x = tf.random.normal([4])
        metric = tf.exp(x)
        before = tf.exp(x)
        first = step.collective(tf.sin(x))
        made_of_it = tf.sin(first)
        between = tf.exp(tf.random.normal([4]))
        second = step.collective(made_of_it)
        after = tf.exp(tf.random.normal([4]))
        last = step.collective(tf.sin(second) + before + between + after)
        run = metric, last
        step.balanced(*run)
        assert step.is_before(before, first)
        assert step.is_before(first, between)
        assert step.is_before(made_of_it, between)  # in the order in which they were made
        assert step.is_before(between, second)
        assert step.is_before(second, after)
        assert not step.is_before(metric, last)
        step.run(*run)


def test_sums_of_gradients_and_updates_run_where_their_gradients_are_made() -> None:
    step = Step()
    with step.graph.as_default():
        weights = v1.Variable(tf.zeros([4]), use_resource=True)
        first = step.collective(tf.random.normal([4]))
        one, other = tf.sin(first), tf.cos(first)
        second = step.collective(tf.exp(first))
        gradient = tf.identity(tf.add_n([one, other]))  # made after the next collective
        last = step.collective(tf.exp(second))
        update = tf.raw_ops.ResourceApplyGradientDescent(
            var=weights.handle, alpha=0.1, delta=gradient
        )
        operations = step.graph.get_operations()
        balance_ranks(operations, [last.op, update], step.collectives, MUCH)
    assert update in second.op.control_inputs


def test_what_is_not_run_is_not_waited_for() -> None:
    step = Step()
    with step.graph.as_default():
        unused = tf.exp(tf.random.normal([4]))
        made = step.collective(tf.random.normal([4]))
        step.balanced(made)
    assert not step.is_before(unused, made)


def test_gradients_for_updates_alone_are_sent_late_unless_they_are_many() -> None:
    for full_bytes in (MUCH, 16):
        step = Step()
        with step.graph.as_default():
            rows = step.collective(tf.random.normal([4]))  # 16 bytes
            update = tf.exp(rows)
            rest = tf.exp(tf.random.normal([4]))  # of the backward pass
            weights = step.collective(tf.sin(rest))
            run = update, weights
            step.balanced(*run, full_bytes=full_bytes)
            assert step.is_before(rest, rows) == (full_bytes == MUCH)
            assert step.is_before(rows, rest) == (full_bytes == 16)
            assert step.is_before(rest, weights)
            assert step.is_before(update, weights)
            step.run(*run)


def test_computation_does_not_wait_for_the_network() -> None:
    step = Step()
    with step.graph.as_default():
        crossed, bias, computed = [], [], []
        for _ in range(2):  # two layers: a slice of the weights' gradient, and the bias's gradient
            computed.append(tf.exp(tf.random.normal([4])))
            bias.append(step.across_machines(computed[-1]))
            crossed.append(step.across_machines(step.collective(computed[-1])))
        whole = [step.collective(each) for each in crossed]
        updates = [tf.exp(each) for each in (*whole, *bias)]
        step.balanced(*updates)
        sent = [each.op.inputs[0] for each in crossed]
        assert step.is_before(computed[0], sent[0])
        assert step.is_before(sent[0], computed[1])
        for waits in (crossed[0], bias[0], bias[1]):
            assert not step.is_before(waits, computed[1])
            assert not step.is_before(waits, sent[1])
        assert not step.is_before(bias[1], whole[0])
        assert step.is_before(updates[0], whole[1])
        step.run(*updates)


def test_a_bucket_starts_before_the_operators_that_are_made_after_it() -> None:
    step = Step()
    with step.graph.as_default():
        made, waits = tf.random.normal([4]), []
        for _ in range(2):  # two layers: the gradient by the weights, then that by the input
            started = step.collective(tf.sin(made))
            waits.append(step.across_machines(started))
            made = tf.exp(made)
        updates = [tf.exp(each) for each in waits]
        step.balanced(*updates, full_bytes=16)
        first, second = (each.op.inputs[0] for each in waits)
        backward = second.op.inputs[0].op.inputs[0]
        assert step.is_before(first, backward)
        assert not step.is_before(waits[0], second)
        step.run(*updates)


def test_an_operator_that_a_collective_needs_is_kept_after_its_wait() -> None:
    step = Step()
    with step.graph.as_default():
        activations = step.across_machines(tf.random.normal([4]))
        product = tf.exp(activations)
        unneeded = tf.exp(tf.random.normal([4]))
        first = step.collective(tf.random.normal([4]))
        second = step.collective(product)
        last = step.collective(tf.sin(first) + second)
        step.balanced(last, unneeded)
        assert not step.is_before(activations, first)
        assert step.is_before(first, product)
        step.run(last)


def test_updates_come_as_soon_as_they_can() -> None:
    step = Step()
    with step.graph.as_default():
        variable = v1.get_variable("v", initializer=np.zeros(4, np.float32), use_resource=True)
        one = step.collective(tf.random.normal([4]))
        other = step.collective(tf.random.normal([4]))
        update = variable.assign_add(one, read_value=False)
        with tf.control_dependencies([update]):
            done = tf.exp(one)
        step.balanced(done, other)
    assert step.is_before(done, other)


def test_a_program_without_collectives_stays() -> None:
    step = Step()
    with step.graph.as_default():
        made = tf.exp(tf.random.normal([4]))
        step.balanced(made)
    assert not made.op.control_inputs


def test_what_is_made_between_two_that_are_merged_waits_for_neither() -> None:
    step = Step()
    with step.graph.as_default():
        images = step.collective(tf.random.normal([2, 4, 4, 8]))
        product = tf.nn.conv2d(images, tf.random.normal([3, 3, 8, 8]), 1, "SAME")
        bias = tf.exp(tf.random.normal([8]))
        made = tf.nn.bias_add(product, bias)
        last = step.collective(made)
        step.balanced(last)
        assert step.is_before(images, bias)
        assert not step.is_before(product, bias)
        step.run(last)


def test_what_is_merged_is_between_the_same_collectives() -> None:
    """oneDNN has one kernel for a convolution and its bias, and one for their gradients: a
    collective that is between two of them would wait for what waits for it."""
    step = Step()
    with step.graph.as_default():
        images, weights = tf.random.normal([2, 4, 4, 8]), tf.random.normal([3, 3, 8, 8])
        padded = tf.pad(images, [[0, 0], [1, 1], [1, 1], [0, 0]])
        product = tf.nn.conv2d(padded, step.collective(weights), 1, "VALID")
        made = tf.nn.bias_add(product, step.collective(tf.random.normal([8])))
        by_bias = step.collective(tf.raw_ops.BiasAddGrad(out_backprop=made))
        by_weights = tf.raw_ops.Conv2DBackpropFilter(
            input=padded,
            filter_sizes=[3, 3, 8, 8],
            out_backprop=made,
            strides=[1, 1, 1, 1],
            padding="VALID",
        )
        last = step.collective(tf.reduce_sum(by_weights) + tf.reduce_sum(by_bias))
        step.balanced(last)
        assert step.is_before(padded, weights_of(product))
        step.run(last)


def weights_of(product: tf.Tensor) -> tf.Tensor:
    return product.op.inputs[1]
