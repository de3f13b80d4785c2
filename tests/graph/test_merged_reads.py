"""A variable is read once where nothing changes it in between."""

from __future__ import annotations

import tensorflow as tf

import tensoropt
from tensoropt.graph.from_tensorflow import backward_reads, import_graph
from tensoropt.graph.from_tensorflow.importer import merge_reads
from tensoropt.graph.operator import GRADIENT, GradientTag, Graph, Operator, TensorName
from tensoropt.tensor_spec import TensorSpec

tensoropt.enable_graph_mode()

FLOAT = TensorSpec((4, 4), "float32")
HANDLE = TensorSpec((4, 4), "resource")
v1 = tf.compat.v1


def operator(
    name: str,
    type_: str,
    *inputs: str,
    after: tuple[str, ...] = (),
    gradient: GradientTag | None = None,
    synthetic: bool = False,
) -> Operator:
    names = tuple(TensorName.parse(text) for text in inputs)
    made = HANDLE if type_ == "VarHandleOp" else FLOAT
    return Operator(
        name,
        type_,
        names,
        (FLOAT,) * len(names),
        (made,),
        control_inputs=after,
        gradient=gradient,
        synthetic=synthetic,
    )


def read(name: str, variable: str = "w", *after: str) -> Operator:
    return operator(name, "ReadVariableOp", variable, after=after)


def merged(*operators: Operator, roots: tuple[str, ...] = ()) -> Graph:
    return Graph(merge_reads({each.name: each for each in operators}, roots))


def test_readers_share_the_first_read() -> None:
    found = merged(
        operator("w", "VarHandleOp"),
        read("one"),
        operator("x", "MatMul", "one", "one"),
        read("two"),
        operator("y", "MatMul", "x", "two", after=("two", "one")),
    )
    assert list(found.operators) == ["w", "one", "x", "y"]
    assert found["y"].inputs == (TensorName("x", 0), TensorName("one", 0))
    assert found["y"].control_inputs == ("one",)


def test_a_change_keeps_the_reads_before_it_and_after_it_apart() -> None:
    found = merged(
        operator("w", "VarHandleOp"),
        read("before"),
        operator("change", "AssignVariableOp", "w", "before"),
        read("after", "w", "change"),
        read("also_after", "w", "change"),
        operator("sum", "Add", "after", "also_after"),
    )
    assert list(found.operators) == ["w", "before", "change", "after", "sum"]
    assert found["sum"].inputs == (TensorName("after", 0),) * 2


def test_reads_after_one_read_in_place_of_another_are_one() -> None:
    found = merged(
        *(operator("v", "VarHandleOp"), operator("w", "VarHandleOp")),
        *(read("v1", "v"), read("v2", "v"), read("w1", "w", "v1"), read("w2", "w", "v2")),
        operator("sum", "Add", "w1", "w2"),
    )
    assert list(found.operators) == ["v", "w", "v1", "w1", "sum"]


def test_what_a_script_names_stays() -> None:
    by = GradientTag(0, "dense", (TensorName("y", 0),), TensorName("x", 0), (None,), ())
    operators = (
        *(operator("w", "VarHandleOp"), read("x"), read("other"), read("root"), read("last")),
        operator("y", "MatMul", "x", "other"),
        operator("z", "MatMul", "root", "last"),
        operator("gradient", GRADIENT, "y", gradient=by),
    )
    found = merged(*operators, roots=("root",))
    assert list(found.operators) == ["w", "x", "other", "root", "y", "z", "gradient"]
    assert found["y"].inputs == (TensorName("x", 0), TensorName("other", 0))
    assert found["z"].inputs == (TensorName("root", 0), TensorName("other", 0))


def test_what_the_importer_reads_for_lookups_stays() -> None:
    table = operator("w/table", "ReadVariableOp", "w", synthetic=True)
    found = merged(operator("w", "VarHandleOp"), read("one"), table)
    assert list(found.operators) == ["w", "one", "w/table"]


def test_an_unrolled_layer_reads_its_weights_once() -> None:
    graph = tf.Graph()
    with graph.as_default():
        values = v1.placeholder(tf.float32, [8, 4], name="values")
        weights = v1.get_variable("weights", [4, 4], use_resource=True)
        for _ in range(5):
            values = tf.tanh(tf.matmul(values, weights))
        loss = tf.reduce_mean(values)
        train = v1.train.GradientDescentOptimizer(0.1).minimize(loss)
        with tf.control_dependencies([train]):
            later = tf.reduce_sum(weights.read_value())
    imported = import_graph(graph, [train.name, later.op.name], {"values": (8, 4)})
    reads = [op for op in imported if op.type == "ReadVariableOp"]
    assert [bool(each.control_inputs) for each in reads] == [False, True]
    products = [op for op in imported if op.type == "MatMul"]
    assert {op.inputs[1].operator for op in products} == {reads[0].name}
    # The gradient of each product reads its weights, whichever read the script has there; that of
    # the first has no gradient to make of them.
    found = backward_reads(graph, imported)
    assert [found.inputs[op.name] for op in products] == [(0,)] + [(0, 1)] * 4
