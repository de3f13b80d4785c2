"""Operator times and memory from plain numbers, and the cost model that brings all together."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensoropt.cost.cluster import Device, load_cluster
from tensoropt.cost.memory import (
    Footprint,
    execution_memory,
    memory_model,
    paper_memory,
)
from tensoropt.cost.model import ClusterCostModel, CostModel
from tensoropt.cost.operator_time import OperatorTime, OperatorWork, roofline_time
from tensoropt.errors import LayoutError, OptionError
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import plan_reshard, step_bytes

DEVICE = Device(
    name="round numbers",
    memory_bytes=10**9,
    peak_flops_per_second=(("default", 1e9), ("float16", 4e9)),
    efficiency=(("contraction", 0.5), ("default", 0.25)),
    memory_bandwidth_bytes_per_second=1e8,
    operator_overhead_seconds=1e-6,
)


def test_arithmetic_bounds_a_contraction() -> None:
    work = OperatorWork("contraction", "float32", 10**6, 1000, differentiated_inputs=2)
    assert roofline_time(DEVICE, work) == OperatorTime(2_001_000, 4_002_000)
    assert roofline_time(DEVICE, work).total == 6_003_000


def test_memory_bounds_an_elementwise_operator() -> None:
    work = OperatorWork("elementwise", "float32", 10**3, 10**6, differentiated_inputs=1)
    assert roofline_time(DEVICE, work) == OperatorTime(10_001_000, 10_001_000)


def test_arithmetic_and_memory_add_up_where_they_do_not_overlap() -> None:
    one_by_one = replace(DEVICE, overlaps_traffic=False)
    work = OperatorWork("contraction", "float32", 10**6, 10**5, differentiated_inputs=2)
    assert roofline_time(DEVICE, work).forward == 2_001_000
    assert roofline_time(one_by_one, work) == OperatorTime(3_001_000, 6_002_000)
    assert not load_cluster("this-machine").device.overlaps_traffic
    assert load_cluster("2x8-v100").device.overlaps_traffic


def test_rates_depend_on_dtype_and_family() -> None:
    assert DEVICE.flops_per_second("contraction", "float16") == 2e9
    assert DEVICE.flops_per_second("contraction", "int8") == 5e8
    assert DEVICE.flops_per_second("scan", "float32") == 2.5e8


def test_an_operator_without_work_or_gradient_has_its_overhead_only() -> None:
    assert roofline_time(DEVICE, OperatorWork("view", "float32", 0, 0)) == OperatorTime(1000, 0)
    free = replace(DEVICE, operator_overhead_seconds=0.0)
    assert roofline_time(free, OperatorWork("view", "float32", 0, 0)).forward == 1


@given(st.integers(0, 10**15), st.integers(0, 10**12), st.integers(0, 3))
def test_a_split_operator_never_takes_longer(flops: int, bytes_: int, inputs: int) -> None:
    whole = roofline_time(DEVICE, OperatorWork("contraction", "float32", flops, bytes_, inputs))
    half = OperatorWork("contraction", "float32", flops // 2, bytes_ // 2, inputs)
    assert roofline_time(DEVICE, half).total <= whole.total


def test_the_paper_s_memory_is_variables_once_and_every_output() -> None:
    assert paper_memory(Footprint(variable_bytes=100)) == 100
    assert paper_memory(Footprint(output_bytes=30)) == 30
    assert memory_model("paper") is paper_memory


def test_a_bias_is_added_in_place_in_the_paper_s_memory() -> None:
    assert paper_memory(Footprint(output_bytes=30, added_bytes=30)) == 0


def test_running_keeps_what_the_backward_pass_reads() -> None:
    assert execution_memory(Footprint(variable_bytes=100)) == 100
    assert execution_memory(Footprint(gradient_bytes=100)) == 100
    assert execution_memory(Footprint(output_bytes=30, kept_bytes=20)) == 20
    assert execution_memory(Footprint(moved_bytes=7)) == 7
    assert execution_memory(Footprint(gathered_bytes=7)) == 7
    assert memory_model("execution") is execution_memory


def test_what_breaks_a_rule_is_refused() -> None:
    with pytest.raises(OptionError, match=r"one of execution, paper\. Got 'guess'"):
        memory_model("guess")
    with pytest.raises(OptionError, match="variable_bytes=-1"):
        Footprint(-1)
    with pytest.raises(OptionError, match="flops=-1"):
        OperatorWork("view", "float32", -1, 0)
    cluster = load_cluster("2x8-v100")
    with pytest.raises(OptionError, match="Got -1"):
        ClusterCostModel(cluster, cluster.mesh(2)).collective_nanoseconds("slice", (0,), -1)
    with pytest.raises(LayoutError, match=r"Got mesh \[16\]"):
        ClusterCostModel(cluster, Mesh((16,)))
    with pytest.raises(OptionError, match="Got 'guess'"):
        ClusterCostModel(cluster, cluster.mesh(2), memory="guess")


def test_the_cluster_s_model_answers_for_all_three_costs() -> None:
    cluster = load_cluster("2x8-v100")
    model: CostModel = ClusterCostModel(cluster, cluster.mesh(16))
    # A local copy reads and writes: 9 MB twice at 900 GB/s, and 5 microseconds to start it.
    assert model.collective_nanoseconds("slice", (0,), 9 * 10**6) == 25_000
    assert model.collective_nanoseconds("mask", (0,), 9 * 10**6) == 25_000
    assert model.collective_nanoseconds("allgather", (3,), 0) == 8_400 + 3_400
    work = OperatorWork("contraction", "float32", 10**9, 10**6)
    assert model.operator_nanoseconds(work) == roofline_time(cluster.device, work)
    assert model.operator_memory(Footprint(1, 2)) == 3


def test_plans_avoid_the_slow_links() -> None:
    cluster = load_cluster("2x8-v100")
    mesh = cluster.mesh(16)
    price = ClusterCostModel(cluster, mesh).collective_nanoseconds
    shape, whole = (4096, 4096), Layout.replicated(2)

    def kinds(source: Layout, target: Layout) -> list[str]:
        return [step.kind for step in plan_reshard(mesh, shape, 4, source, target, price)]

    # From rows to columns over all devices: gathering everything is far from the best.
    rows, columns = Layout(((0, 1, 2, 3), ())), Layout(((), (0, 1, 2, 3)))
    assert kinds(rows, columns) == ["alltoall"]
    # Halves in two machines: the card carries every part once, not eight times.
    inside, outside = Layout(((1,), ())), Layout(((0,), ()))
    assert kinds(inside, whole) == ["allgather"]
    assert kinds(outside, whole) == ["slice", "allgather"]
    times = [
        sum(price(s.kind, s.axes, step_bytes(s, mesh, shape, 4)) for s in steps)
        for steps in (
            plan_reshard(mesh, shape, 4, ends, whole, price) for ends in (inside, outside)
        )
    ]
    directly = price("allgather", (0,), 2 * 4096 * 4096)
    assert times[0] * 10 < times[1] < directly / 6
