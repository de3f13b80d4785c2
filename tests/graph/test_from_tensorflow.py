"""Import of TensorFlow graphs: shapes, folding, cuts, order, digests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow

import tensoropt
from tensoropt.errors import GraphError
from tensoropt.graph.from_tensorflow import bind_shapes, import_graph, references
from tensoropt.graph.operator import GRADIENT, Graph, Operator, TensorName
from tensoropt.tensor_spec import TensorSpec

tf = tensorflow.compat.v1

tensoropt.enable_graph_mode()


@pytest.fixture(autouse=True)
def script() -> Iterator[tensorflow.Graph]:
    with tensorflow.Graph().as_default() as graph:
        yield graph


def imported(*fetches: Any, shapes: dict[str, tuple[int, ...]] | None = None) -> Graph:
    operations = [
        fetch if isinstance(fetch, tensorflow.Operation) else fetch.op for fetch in fetches
    ]
    return import_graph(operations[0].graph, [op.name for op in operations], shapes)


def values(shape: Sequence[int | None] = (None, 4)) -> Any:
    return tf.placeholder(tf.float32, list(shape), name="values")


def types(graph: Graph) -> dict[str, str]:
    return {operator.name: operator.type for operator in graph}


# Shapes


def test_an_unknown_batch_is_bound_and_carried_through(script: tensorflow.Graph) -> None:
    output = tf.nn.relu(tf.matmul(values(), tf.ones([4, 3])))
    graph = imported(output, shapes={"values": (8, 4)})
    assert [op.outputs[0].shape for op in graph if not op.is_constant] == [(8, 4), (8, 3), (8, 3)]
    bound = bind_shapes(script, [output.op.name], {"values": (8, 4)})
    assert bound.get_tensor_by_name(output.name).shape == [8, 3]
    assert output.shape.as_list() == [None, 3]  # the script's own graph is as it was


def test_only_what_is_needed_is_bound(script: tensorflow.Graph) -> None:
    images = values()
    weights = tf.get_variable("weights", [4, 3])
    loss = tf.reduce_sum(tf.tanh(tf.matmul(images, weights)))
    (gradient,) = tf.gradients(loss, [weights])
    update = tf.assign_sub(weights, gradient)
    beside = tf.nn.relu(tf.nn.relu(images))
    bound = bind_shapes(script, [update.op.name, "nothing"], {"values": (8, 4)})
    names = {operation.name for operation in bound.get_operations()}
    assert loss.op.name in names
    assert beside.op.name not in names
    assert not any(name.endswith("Grad") or "_grad/" in name for name in names)
    assert bound.get_tensor_by_name(gradient.name).shape == [4, 3]
    shapes = [script.get_tensor_by_name(f"{name}:0").shape for name in ("values", loss.op.name)]
    assert [shape.as_list() for shape in shapes] == [[None, 4], []]


def test_of_slices_only_what_is_looked_up_is_bound(script: tensorflow.Graph) -> None:
    table = tf.get_variable("table", [10, 4])
    first = tf.placeholder(tf.int32, [None, 3], name="first")
    second = tf.placeholder(tf.int32, [None], name="second")
    rows = tf.nn.embedding_lookup(table, first), tf.nn.embedding_lookup(table, second)
    loss = tf.reduce_sum(tf.tanh(rows[0])) + tf.reduce_sum(tf.sin(rows[1]))
    (slices,) = tf.gradients(loss, [table])
    fed = {"first": (8, 3), "second": (5,)}
    bound = bind_shapes(script, [slices.values.op.name, slices.indices.op.name], fed)
    assert not {"TanhGrad", "Cos"} & {operation.type for operation in bound.get_operations()}
    assert bound.get_tensor_by_name(slices.values.name).shape == [29, 4]
    assert bound.get_tensor_by_name(slices.indices.name).shape == [29]


def test_slices_of_rows_that_only_their_values_tell_are_bound(script: tensorflow.Graph) -> None:
    images = values((None, 4))

    @tf.custom_gradient
    def added(table: Any) -> Any:
        def gradient(upstream: Any) -> Any:
            rows = tf.reshape(tf.tanh(upstream), [-1, 4])
            return tf.IndexedSlices(rows, tf.range(tf.shape(rows)[0]), tf.constant([10, 4]))

        return images + tf.reduce_sum(table), gradient

    table = tf.get_variable("table", [10, 4])
    (slices,) = tf.gradients(added(table.read_value()), [table])
    bound = bind_shapes(script, [slices.values.op.name], {"values": (8, 4)})
    assert bound.get_tensor_by_name(slices.values.name).shape == [8, 4]


def test_slices_whose_values_the_step_needs_itself_are_bound(script: tensorflow.Graph) -> None:
    images = values((None, 2, 2))
    flat = tf.reshape(tf.exp(images), tf.stack([tf.shape(images)[0], 4]))

    @tf.custom_gradient
    def added(table: Any) -> Any:
        def gradient(_: Any) -> Any:
            return tf.IndexedSlices(flat, tf.range(tf.shape(flat)[0]), tf.constant([10, 4]))

        return tf.reduce_sum(table), gradient

    table = tf.get_variable("table", [10, 4])
    (slices,) = tf.gradients(added(table.read_value()), [table])
    graph = imported(tf.reduce_sum(flat), slices.values, shapes={"values": (8, 2, 2)})
    assert graph[flat.op.name].inputs[0].operator == flat.op.inputs[0].op.name
    assert graph[slices.values.op.name].outputs[0].shape == (8, 4)


def test_a_function_is_bound_with_all_that_it_calls(script: tensorflow.Graph) -> None:
    inner = tensorflow.function(lambda x: x + 1.0, autograph=False)
    outer = tensorflow.function(lambda x: inner(x) * 2.0, autograph=False)
    images = values()
    tensorflow.function(lambda x: x - 1.0, autograph=False)(images)
    output = outer(images)
    bound = bind_shapes(script, [output.op.name], {"values": (8, 4)})
    assert bound.get_tensor_by_name(output.name).shape == [8, 4]
    library = bound.as_graph_def().library.function
    assert len(library) < len(script.as_graph_def().library.function)


def test_results_of_a_loop_have_the_rows_of_its_inputs(script: tensorflow.Graph) -> None:
    """A loop has the shapes it was traced with, here unknown ones. A variable that it changes keeps
    what its body keeps of it, and a list has the shape of what the loop puts in."""

    def loop(x: Any) -> Any:
        def body(i: Any, some: Any, longer: Any, items: Any) -> Any:
            some = tensorflow.tanh(some + x)
            return i + 1, some, tensorflow.concat([longer, x], 0), items.write(i, some)

        items = tensorflow.TensorArray(tf.float32, 3, infer_shape=False)
        shapes = tuple(tensorflow.TensorShape(shape) for shape in ([], [None, 4], [None, 4], None))
        results = tensorflow.while_loop(
            lambda i, *_: i < 3, body, (0, tensorflow.exp(x), x, items), shapes
        )
        return (*results[1:3], results[3].stack())

    spec = tensorflow.TensorSpec([None, 4], tf.float32)
    called = tensorflow.function(loop, autograph=False).get_concrete_function(spec)
    called.add_to_graph(script)
    images = values()
    results = tensorflow.raw_ops.PartitionedCall(args=[images], Tout=[tf.float32] * 3, f=called)
    again = tensorflow.raw_ops.PartitionedCall(args=results[:1], Tout=[tf.float32] * 3, f=called)
    graph = imported(again[2], shapes={"values": (8, 4)})
    calls = [operator for operator in graph if operator.type == "PartitionedCall"]
    for call in calls:
        assert [spec.shape for spec in call.outputs] == [(8, 4), (-1, 4), (-1, 8, 4)]
    assert len(calls) == 2


def test_what_is_not_bound_stays_unknown() -> None:
    graph = imported(tf.nn.relu(values()))
    assert graph["values"].outputs[0].shape == (-1, 4)


def test_an_unknown_rank_is_bound() -> None:
    graph = imported(tf.nn.relu(tf.placeholder(tf.float32, name="any")), shapes={"any": (2, 3)})
    assert graph["Relu"].outputs[0].shape == (2, 3)


def reshaped_by_its_batch(x: Any) -> Any:
    return tf.reshape(x, [tf.shape(x)[0], -1])


def flattened(x: Any) -> Any:
    return tf.reshape(x, tf.stack([tf.shape(x)[0], tf.reduce_prod(tf.shape(x)[1:])]))


def halved(x: Any) -> Any:
    return tf.reshape(x, [2, tf.shape(x)[0] // 2, 12])


def filled(x: Any) -> Any:
    return x + tf.fill(tf.shape(x), tf.cast(tf.size(x), tf.float32))


def by_range(x: Any) -> Any:
    return tf.transpose(x, tf.range(tf.rank(x))[::-1])


@pytest.mark.parametrize(
    ("build", "computes"),
    [
        (reshaped_by_its_batch, ["Placeholder", "Reshape"]),
        (flattened, ["Placeholder", "Reshape"]),
        (halved, ["Placeholder", "Reshape"]),
        (filled, ["Placeholder", "AddV2"]),
        (by_range, ["Placeholder", "Transpose"]),
    ],
)
def test_shape_arithmetic_is_folded(build: Callable[[Any], Any], computes: list[str]) -> None:
    x = values((None, 3, 4))
    output = build(x)
    graph = imported(output, shapes={"values": (6, 3, 4)})
    assert [op.type for op in graph if not op.is_constant] == computes
    data = np.arange(72, dtype=np.float32).reshape(6, 3, 4)
    with tf.Session() as session:
        right = session.run(output, {x: data})
    last = graph[output.op.name]
    assert last.outputs[0].shape == right.shape
    for number, name in enumerate(last.inputs):  # what was folded is what TensorFlow computes
        value = last.input_specs[number].value
        if value is not None:
            with tf.Session() as session:
                np.testing.assert_array_equal(value, session.run(str(name), {x: data}))


def test_a_shape_that_is_asked_for_after_a_check_is_folded_and_waits_for_it() -> None:
    x = values((None, 3))
    check = tf.debugging.Assert(tf.reduce_all(x > 0), [x])
    with tf.control_dependencies([check]):
        rows = tf.shape(x)[0]
    output = tf.reshape(x, [rows * 3])
    graph = imported(output, shapes={"values": (6, 3)})
    shape = graph[graph[output.op.name].inputs[1].operator]
    assert shape.is_constant
    assert shape.control_inputs == (check.name,)


def test_constants_are_values() -> None:
    graph = imported(tf.constant([[1.0, 2.0]]) * 3.0 + values((1, 2)))
    (operator,) = (op for op in graph if op.type == "AddV2")
    value = operator.input_specs[0].value
    assert value is not None
    np.testing.assert_array_equal(value, [[3.0, 6.0]])
    assert graph[operator.inputs[0].operator].is_constant
    assert graph[operator.inputs[0].operator].inputs == ()


def test_text_that_waits_is_compared_by_its_letters() -> None:
    total = tf.reduce_sum(values((2, 3)), name="total")
    with tf.control_dependencies([total]):
        output = tf.compat.v1.summary.scalar("the sum of all", total)
    first, second = imported(output), imported(output)
    (text,) = [op for op in first if op.type == "Const" and op.outputs[0].dtype == "string"]
    assert text.control_inputs == ("total",)
    assert first.digest() == second.digest()


def test_what_draws_or_remembers_is_no_constant() -> None:
    variable = tf.get_variable("variable", [2], use_resource=True)
    graph = imported(tf.random_uniform([2]) + variable + tf.constant(1.0))
    assert {"RandomUniform", "VarHandleOp", "ReadVariableOp"} <= set(types(graph).values())
    assert not any(op.is_constant for op in graph if op.type == "RandomUniform")


def test_large_results_are_not_folded() -> None:
    big = tf.ones([300, 300]) + tf.ones([300, 300])
    assert imported(big)[big.op.name].type == "AddV2"


# The content of a graph


def test_only_what_is_needed_is_imported() -> None:
    x = values()
    wanted, other = tf.nn.relu(x), tf.nn.tanh(x)
    assert list(types(imported(wanted))) == ["values", "Relu"]
    assert set(types(imported(wanted, other))) == {"values", "Relu", "Tanh"}


def test_control_inputs_are_needed_too() -> None:
    x = values()
    before = tf.nn.tanh(x)
    with tf.control_dependencies([before.op]):
        output = tf.nn.relu(x)
    graph = imported(output)
    assert graph["Relu"].control_inputs == ("Tanh",)
    assert list(graph.operators).index("Tanh") < list(graph.operators).index("Relu")


@pytest.mark.parametrize("use_resource", [True, False])
def test_variables_and_what_changes_them(use_resource: bool) -> None:
    variable = tf.get_variable("variable", [4, 3], use_resource=use_resource)
    step = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(values() @ variable))
    graph = imported(step, shapes={"values": (8, 4)})
    (stored,) = (op for op in graph if op.is_variable)
    assert stored.name == "variable"
    assert stored.outputs[0].shape == (4, 3)
    (update,) = (op for op in graph if op.mutates)
    assert update.mutates == (0,)
    assert update.inputs[0].operator == "variable"
    assert update.input_specs[0].shape == (4, 3)


def test_a_gradient_is_one_operator() -> None:
    weights = tf.get_variable("weights", [4, 3], use_resource=True)
    loss = tf.reduce_mean(tf.square(values() @ weights), name="loss")
    (gradient,) = tf.gradients(loss, [weights])
    graph = imported(gradient, shapes={"values": (8, 4)})
    assert not [name for name in types(graph) if name.startswith("gradients/")][:-1]
    operator = graph[gradient.op.name]
    assert operator.type == GRADIENT
    assert operator.gradient is not None
    assert operator.gradient.ys == (TensorName("loss", 0),)
    assert operator.gradient.x == TensorName("weights", 0)
    assert operator.inputs == (TensorName("loss", 0),)
    assert operator.outputs[0].shape == (4, 3)


def test_a_sparse_gradient_is_two_operators() -> None:
    table = tf.get_variable("table", [16, 3], use_resource=True)
    rows = tf.nn.embedding_lookup(table, tf.constant([1, 2, 1]))
    (gradient,) = tf.gradients(tf.reduce_sum(rows * rows), [table])
    graph = imported(gradient.values, gradient.indices)
    parts = {op.gradient.part for op in graph if op.gradient is not None}
    assert parts == {"values", "indices"}


def test_operators_come_after_what_they_read() -> None:
    x = values()
    for number in range(40):  # later operators read earlier ones in no order of their names
        x = tf.add_n([x, tf.nn.relu(x), tf.nn.tanh(x)], name=f"sum{(number * 7) % 40}")
    graph = imported(x, shapes={"values": (8, 4)})
    seen: set[str] = set()
    for operator in graph:
        assert {name.operator for name in operator.inputs} | set(operator.control_inputs) <= seen
        seen.add(operator.name)
    assert len(seen) == len(graph) == 121


def test_a_deep_graph_needs_no_deep_stack() -> None:
    x = values()
    for _ in range(3000):
        x = tf.negative(x)
    assert len(imported(x, shapes={"values": (2, 4)})) == 3001


def test_a_graph_out_of_order_is_refused() -> None:
    spec = TensorSpec((2,), "float32")
    late = Operator("late", "Relu", (TensorName("early", 0),), (spec,), (spec,))
    early = Operator("early", "Placeholder", (), (), (spec,))
    with pytest.raises(GraphError, match="Got 'late' before 'early'"):
        Graph({"late": late, "early": early})


def test_a_root_that_is_not_there(script: tensorflow.Graph) -> None:
    with pytest.raises(GraphError, match="Got 'nothing', which is not"):
        import_graph(script, ["nothing"])


# Digests


def model(rate: float = 0.1, transposed: bool = False, text: str = "a") -> tensorflow.Operation:
    x = tf.placeholder(tf.float32, [8, 4], name="values")
    w = tf.get_variable("w", [4, 4], use_resource=True)
    hidden = tf.matmul(x, w, transpose_b=transposed)
    named = tf.strings.length(tf.strings.join([tf.as_string(hidden), tf.constant(text)]))
    loss = tf.reduce_sum(hidden * hidden) + tf.reduce_sum(tf.cast(named, tf.float32))
    (gradient,) = tf.gradients(loss, [w])
    return tf.train.GradientDescentOptimizer(rate).apply_gradients([(gradient, w)])


PROGRAM = """
import sys
import tensoropt
sys.path.insert(0, {folder!r})
import importlib.util
specification = importlib.util.spec_from_file_location("script", {file!r})
script = importlib.util.module_from_spec(specification)
specification.loader.exec_module(script)
print(script.imported(script.model()).digest())
"""


def test_a_digest_is_the_same_in_every_process(python: Callable[..., Any]) -> None:
    done = python("-c", PROGRAM.format(folder=".", file=__file__))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == imported(model()).digest()


@pytest.mark.parametrize(
    "change",
    [{"rate": 0.2}, {"transposed": True}, {"text": "b"}],
    ids=lambda change: next(iter(change)),
)
def test_a_changed_attribute_or_constant_changes_the_digest(change: dict[str, Any]) -> None:
    original = imported(model())
    with tensorflow.Graph().as_default():
        assert imported(model()).digest() == original.digest()
    with tensorflow.Graph().as_default():
        changed = imported(model(**change))
    assert changed.digest() != original.digest()
    assert len(changed.summaries()) == len(original.summaries())
    differences = [
        pair
        for pair in zip(original.summaries(), changed.summaries(), strict=True)
        if pair[0] != pair[1]
    ]
    assert len(differences) == 1


def test_what_a_gradient_holds_constant_changes_the_digest() -> None:
    def held(name: str) -> str:
        with tensorflow.Graph().as_default():
            x = tf.placeholder(tf.float32, [8, 4], name="x")
            one, two = tf.nn.tanh(x, name="one"), tf.nn.sigmoid(x, name="two")
            loss = tf.reduce_sum(one * two)
            stops = [{"one": one, "two": two}[name]]
            return imported(*tf.gradients(loss, [x], stop_gradients=stops), loss).digest()

    assert held("one") != held("two")


def test_another_batch_is_another_graph() -> None:
    output = tf.nn.relu(values())
    digests = {imported(output, shapes={"values": (n, 4)}).digest() for n in (4, 8)}
    assert len(digests) == 2


# Functions


def test_references_to_functions_come_by_the_attributes_names() -> None:
    """A protobuf's own order is another in each process, and ranks number functions by it."""
    names = [f"branch_{number}" for number in range(10, 30)]
    node = tf.NodeDef()
    for name in reversed(names):
        node.attr[name].func.name = name
    assert [each.name for each in references(node.attr)] == names
