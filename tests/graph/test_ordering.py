"""Reads of variables come before changes, readers of statistics last, where nothing orders them."""

from __future__ import annotations

from tensoropt.graph.batch_norm import with_batch_norm
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.graph.ordering import reads_first, statistics_last
from tensoropt.tensor_spec import TensorSpec

HANDLE = TensorSpec((), "resource")
NUMBER = TensorSpec((), "float32")


def operators(*given: Operator) -> Graph:
    return Graph({operator.name: operator for operator in given})


def variable(name: str) -> Operator:
    return Operator(name, "VarHandleOp", (), (), (HANDLE,), {})


def read(name: str, of: str, after: tuple[str, ...] = ()) -> Operator:
    return Operator(
        name, "ReadVariableOp", (TensorName(of, 0),), (HANDLE,), (NUMBER,), {}, control_inputs=after
    )


def change(name: str, of: str, by: str) -> Operator:
    inputs = (TensorName(of, 0), TensorName(by, 0))
    return Operator(name, "AssignAddVariableOp", inputs, (HANDLE, NUMBER), (), {}, mutates=(0,))


def test_an_unordered_read_comes_first() -> None:
    graph = operators(
        variable("v"), read("used", "v"), change("count", "v", "used"), read("fetched", "v")
    )
    ordered = reads_first(graph)
    assert list(ordered.operators) == ["v", "used", "fetched", "count"]
    assert ordered["count"].control_inputs == ("fetched",)
    assert reads_first(ordered) is ordered


def test_what_is_ordered_stays() -> None:
    graph = operators(
        variable("v"),
        read("used", "v"),
        change("count", "v", "used"),
        read("fetched", "v", ("count",)),
    )
    assert reads_first(graph) is graph


def test_a_first_value_comes_before_reads() -> None:
    graph = operators(
        variable("v"), variable("w"), read("one", "w"), change("count", "v", "one"), read("r", "v")
    )
    assert reads_first(graph, frozenset({"v"})) is graph


def test_two_that_wait_for_each_other_are_not_both_ordered() -> None:
    graph = operators(
        variable("v"),
        variable("w"),
        read("one", "v", ()),
        change("count_w", "w", "one"),
        read("late_v", "v", ("count_w",)),
        read("two", "w", ()),
        change("count_v", "v", "two"),
        read("late_w", "w", ("count_v",)),
    )
    names = list(reads_first(graph).operators)
    assert len(names) == len(graph)
    assert names.index("late_v") < names.index("count_v") or names.index("late_w") < names.index(
        "count_w"
    )


def on(name: str, *inputs: str, after: tuple[str, ...] = (), of: str = "AddN") -> Operator:
    """An operator of tensors, ``operator:index`` each, that has three."""
    names = tuple(map(TensorName.parse, inputs))
    return Operator(
        name, of, names, (NUMBER,) * len(names), (NUMBER,) * 3, {}, control_inputs=after
    )


def test_readers_of_local_statistics_come_where_nothing_else_can() -> None:
    graph = operators(
        on("one", of="FusedBatchNormV3"),
        on("mean_of_one", "one:1"),
        on("moved", "mean_of_one"),
        on("two", "one:0", of="FusedBatchNormV3"),
        on("mean_of_two", "two:1"),
        on("after_updates", "two:0", after=("moved",)),
        on("loss", "two:0"),
    )
    assert statistics_last(graph) is graph
    names = list(statistics_last(with_batch_norm(graph, "local")).operators)
    assert names == [
        *("one", "two", "loss"),
        *("mean_of_one", "moved", "mean_of_two", "after_updates"),
    ]
