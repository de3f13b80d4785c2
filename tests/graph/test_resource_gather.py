"""A gather from a resource variable is imported as a read and a gather."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tensoropt.graph.from_tensorflow import import_graph
from tensoropt.graph.operator import Graph
from tensoropt.graph.tied_operators import leaders

v1 = tf.compat.v1


def imported(build: Any) -> Graph:
    graph = tf.Graph()
    with graph.as_default(), v1.variable_scope("", use_resource=True):
        table = v1.get_variable("table", [8, 4])
        ids = v1.placeholder(tf.int32, [6], name="ids")
        roots = build(table, ids)
    return import_graph(graph, [root.op.name for root in roots])


def lookup(table: Any, ids: Any, name: str) -> Any:
    handle = table.handle
    return tf.raw_ops.ResourceGather(resource=handle, indices=ids, dtype=tf.float32, name=name)


def test_two_lookups_share_a_read_that_waits_for_nothing() -> None:
    graph = imported(lambda table, ids: [lookup(table, ids, "a"), lookup(table, ids, "b")])
    assert "ResourceGather" not in {operator.type for operator in graph}
    for name in ("a", "b"):
        gather = graph[name]
        assert (gather.type, gather.synthetic) == ("GatherV2", True)
        assert [str(tensor) for tensor in gather.inputs[:2]] == ["table/table:0", "ids:0"]
        assert int(gather.input_specs[2].value) == 0
        assert gather.input_specs[0].shape == (8, 4)
    assert graph["table/table"].type == "ReadVariableOp"


def test_the_read_is_stored_as_the_variable_and_the_lookup_is_free() -> None:
    graph = imported(lambda table, ids: [lookup(table, ids, "a")])
    tied = leaders(graph)
    assert tied["table/table"] == "table"
    assert tied["a"] == "a"


def test_a_lookup_after_an_update_has_a_read_of_its_own_that_waits_too() -> None:
    def build(table: Any, ids: Any) -> list[Any]:
        before = lookup(table, ids, "before")
        update = tf.raw_ops.AssignVariableOp(resource=table.handle, value=tf.ones([8, 4]))
        with tf.control_dependencies([update]):
            after = lookup(table, ids, "after")
            implied = lookup(table, ids[::-1], "implied")  # TensorFlow has only its indices wait
        return [before, after, implied]

    graph = imported(build)
    assert graph["before"].inputs[0].operator == "table/table"
    assert graph["table/table"].control_inputs == ()
    for name in ("after", "implied"):
        read = graph[graph[name].inputs[0].operator]
        assert read.name == f"{name}/table"
        assert graph[name].inputs[1].operator in read.control_inputs
    assert graph["after/table"].control_inputs[0] == graph["after"].control_inputs[0]


def test_names_of_the_script_are_left_to_it() -> None:
    def build(table: Any, ids: Any) -> list[Any]:
        return [tf.identity(lookup(table, ids, "a"), name="table/table")]

    graph = imported(build)
    assert graph["table/table"].type == "Identity"
    assert graph["a"].inputs[0].operator == "table/table_"


def test_gathers_of_elements_are_read_and_gathered() -> None:
    def build(table: Any, ids: Any) -> list[Any]:
        places = tf.stack([ids, ids % 4], axis=1)
        handle = table.handle
        return [
            tf.raw_ops.ResourceGatherNd(
                resource=handle, indices=places, dtype=tf.float32, name="elements"
            )
        ]

    graph = imported(build)
    assert graph["elements"].type == "GatherNd"
    assert len(graph["elements"].inputs) == 2
