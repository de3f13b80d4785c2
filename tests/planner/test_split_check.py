"""The preflight check: what cannot be split, the reasons, and the sums."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest

from tensoropt.cost.cluster import load_cluster
from tensoropt.cost.model import ClusterCostModel
from tensoropt.errors import OptionError
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.planner.choose import choose
from tensoropt.planner.request import Request
from tensoropt.planner.split_check import Check, OperatorCheck, check, check_graph
from tensoropt.report.split_check_table import check_table
from tensoropt.tensor_spec import TensorSpec

CLUSTER = load_cluster("2x8-v100")
FLOAT = "float32"


def operator(
    name: str,
    type_: str,
    inputs: Sequence[Operator],
    shape: Sequence[int],
    element: str = FLOAT,
    **attributes: object,
) -> Operator:
    """One with the first output of each input."""
    return Operator(
        name=name,
        type=type_,
        inputs=tuple(TensorName(each.name, 0) for each in inputs),
        input_specs=tuple(each.outputs[0] for each in inputs),
        outputs=(TensorSpec(tuple(shape), element),),
        attributes=attributes,
    )


def graph(*operators: Operator) -> Graph:
    return Graph({each.name: each for each in operators})


def checked(of: Graph, devices: int = 4) -> dict[str, OperatorCheck]:
    mesh = CLUSTER.mesh(devices)
    found = check_graph(of, mesh, ClusterCostModel(CLUSTER, mesh), frozenset({"x"}))
    assert all(
        before.time_nanoseconds >= after.time_nanoseconds for before, after in pairwise(found)
    )
    for each in found:
        assert (
            each.can_split == (each.pieces > 1) == (not each.reasons) == (each.configurations > 1)
        )
        assert all(each.reasons)
    return {each.name: each for each in found}


def a_step(batch: int = 64) -> Graph:
    """A product, and a matrix inverse that takes no part in its gradient."""
    x = operator("x", "Placeholder", [], [batch, 256])
    w = operator("w", "VariableV2", [], [256, 256], f"{FLOAT}_ref", dtype=FLOAT)
    read = operator("w/read", "Identity", [w], [256, 256])
    product = operator("product", "MatMul", [x, read], [batch, 256])
    inverse = operator("inverse", "MysteryInverse", [read], [256, 256])
    step = Operator("step", "NoOp", (), (), (), control_inputs=("product", "inverse"))
    return graph(x, w, read, product, inverse, step)


def test_only_what_computes_is_listed() -> None:
    assert set(checked(a_step())) == {"product", "inverse"}


def test_a_random_operator_that_is_drawn_whole_says_why() -> None:
    x = operator("x", "Placeholder", [], [64, 8])
    shuffled = operator("shuffled", "RandomShuffle", [x], [64, 8])
    (reason,) = checked(graph(x, shuffled))["shuffled"].reasons
    assert reason == "random: an element may come from every other device"


def test_an_operator_without_description_is_not_split() -> None:
    found = checked(a_step())
    assert found["product"].can_split
    assert found["product"].pieces == 4
    assert found["inverse"].reasons == ("no description",)
    assert found["inverse"].configurations == 1
    assert found["inverse"].output_bytes == 256 * 256 * 4


def test_times_are_those_of_a_plan_on_one_device() -> None:
    step = a_step()
    request = Request(
        graph=step,
        cluster_at=lambda devices: CLUSTER,
        devices=1,
        roots=("step",),
        shapes={"x": (64, 256)},
        batch_placeholders=frozenset({"x"}),
    )
    planned = {each.name: each.time_nanoseconds for each in choose(request, "mini_time").operators}
    for each in checked(step).values():
        assert each.time_nanoseconds == planned[each.name]


def test_extents_must_divide() -> None:
    one = operator("x", "Placeholder", [], [1, 7, 9])
    other = operator("y", "Relu", [one], [1, 7, 9])
    found = checked(graph(one, other))["y"]
    assert len(found.reasons) == 3
    assert found.reasons[1].endswith(": extent 7 does not divide by 2")
    assert found.reasons[2].endswith(": extent 9 does not divide by 2")
    (three,) = {each.pieces for each in checked(graph(one, other), devices=3).values()}
    assert three == 3


def test_a_batch_need_not_divide() -> None:
    one = operator("x", "Placeholder", [], [7, 9])
    other = operator("y", "Relu", [one], [7, 9])
    assert checked(graph(one, other))["y"].pieces == 4


def test_an_index_says_why_it_cannot_be_split() -> None:
    one = operator("x", "Placeholder", [], [1, 7, 8, 8])
    factor = operator("y", "Cholesky", [one], [1, 7, 8, 8])
    _, batch, matrix = checked(graph(one, factor))["y"].reasons
    assert batch.endswith(": extent 7 does not divide by 2")
    assert matrix.endswith(": read whole by opaque Cholesky")
    assert matrix.count(",") == 1  # of both its indices


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ((), "makes a scalar, without a reduction"),
        ((-1, 8), "a dimension is not known before it runs"),
    ],
)
def test_what_has_no_index(shape: tuple[int, ...], reason: str) -> None:
    one = operator("x", "Placeholder", [], shape)
    other = operator("y", "Relu", [one], shape)
    assert checked(graph(one, other))["y"].reasons == (reason,)


def test_a_value_that_is_not_known() -> None:
    one = operator("x", "Placeholder", [], [8, 8])
    order = operator("order", "Placeholder", [], [2], "int32")
    other = operator("y", "Transpose", [one, order], [8, 8])
    found = checked(graph(one, order, other))["y"]
    assert found.reasons == ("the value of input 1 is not known before it runs",)


def test_what_changes_a_variable_lies_as_it_does() -> None:
    w = operator("w", "VariableV2", [], [8, 8], f"{FLOAT}_ref", dtype=FLOAT)
    value = operator("v", "Placeholder", [], [8, 8])
    assigned = Operator(
        "assign",
        "Assign",
        (TensorName("w", 0), TensorName("v", 0)),
        (w.outputs[0], value.outputs[0]),
        (w.outputs[0],),
        mutates=(0,),
    )
    assert checked(graph(w, value, assigned))["assign"].can_split
    mystery = Operator(
        "mystery", "MysteryUpdate", (TensorName("w", 0),), (w.outputs[0],), (), mutates=(0,)
    )
    found = checked(graph(w, value, assigned, mystery))
    assert found["mystery"].reasons == ("no description",)
    assert found["assign"].reasons == (
        "has the layout of 'w', and no split fits MysteryUpdate 'mystery'",
    )
    assert found["assign"].output_bytes == 0  # the variable's own


def test_one_device_shares_nothing() -> None:
    with pytest.raises(OptionError, match=r"Got 1 device; check for .* --devices or preflight"):
        checked(a_step(), devices=1)


def a_check(*nanoseconds: int) -> Check:
    """The first operator can be split, the others cannot."""
    operators = [
        OperatorCheck(f"o{n}", "T", 1, 1, ("no description",), time, 1024)
        for n, time in enumerate(nanoseconds)
    ]
    first = OperatorCheck("o0", "T", 3, 4, (), nanoseconds[0], 1024)
    return Check(4, (2, 2), "moon", (first, *operators[1:]))


def test_shares_and_marks() -> None:
    found = a_check(9_790, 101, 100, 9)
    assert found.time_nanoseconds == 10_000
    assert [each.name for each in found.unsplit] == ["o1", "o2", "o3"]
    assert found.unsplit_nanoseconds == 210
    assert found.unsplit_share == 0.021
    assert found.unsplit_bytes == 3 * 1024
    assert [found.is_marked(each) for each in found.operators] == [False, True, False, False]
    assert a_check(0).unsplit_share == 0.0


def test_the_table_is_sorted_marked_and_summed_up() -> None:
    lines = str(check_table(a_check(9_790, 101, 100, 9))).splitlines()
    assert [line.split() for line in lines[2:5]] == [
        ["!", "o1", "T", "0.1", "1.01%", "1.0", "no", "description"],
        ["o2", "T", "0.1", "1.00%", "1.0", "no", "description"],
        ["o3", "T", "0.0", "0.09%", "1.0", "no", "description"],
    ]
    assert lines[-1] == (
        "3 of 4 operators cannot be split on 4 devices (mesh [2,2] of moon), 1 of them above 1 % "
        "of the step: together 2.10% of its time (0.2 of 10.0 us on one device) and 3.0 KiB on "
        "every device"
    )
    assert str(a_check(9_790, 101, 100, 9)) == lines[-1]
    (only,) = str(check_table(a_check(5))).splitlines()
    assert only.startswith("0 of 1 operators cannot be split")


def test_a_request_is_checked_on_its_cluster() -> None:
    request = Request(
        graph=a_step(),
        cluster_at=lambda devices: CLUSTER,
        devices=16,
        roots=("step",),
        shapes={"x": (64, 256)},
        batch_placeholders=frozenset({"x"}),
    )
    found = check(request)
    assert (found.devices, found.mesh_axes, found.cluster) == (16, (2, 2, 2, 2), "2x8-v100")
    assert [each.name for each in found.unsplit] == ["inverse"]
    assert found.is_marked(found.unsplit[0])
