"""Interpolated bandwidth tables, and the cost model that prices with them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensoropt.cost.bandwidth_table import BandwidthTable
from tensoropt.cost.cluster import Cluster, load_cluster
from tensoropt.cost.model import ClusterCostModel
from tensoropt.errors import OptionError, PlanError
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import plan_reshard

# 1, 2 and 4 bytes per nanosecond.
TABLE = BandwidthTable("allreduce", (2, 2), (0,), (1024, 2048, 4096), (1024, 1024, 1024))


def test_the_bandwidth_is_interpolated_between_sizes() -> None:
    assert TABLE.nanoseconds_of(1024) == 1024
    assert TABLE.nanoseconds_of(2048) == 1024
    # Half way the bandwidth is 1.5 bytes per nanosecond: 1536 / 1.5.
    assert TABLE.nanoseconds_of(1536) == pytest.approx(1024)
    assert TABLE.nanoseconds_of(3072) == pytest.approx(3072 / 3)


def test_small_sizes_take_the_latency_and_large_ones_the_last_bandwidth() -> None:
    assert TABLE.nanoseconds_of(0) == TABLE.nanoseconds_of(1) == 1024
    assert not TABLE.extrapolates(4096)
    assert TABLE.extrapolates(4097)
    assert TABLE.nanoseconds_of(40960) == pytest.approx(40960 / 4)


@given(st.integers(1, 10**6), st.lists(st.integers(1, 10**6), min_size=2, max_size=6))
def test_times_lie_between_those_of_the_neighbouring_bandwidths(
    size: int, times: list[int]
) -> None:
    sizes = [4 * 2**i for i in range(len(times))]
    table = BandwidthTable("allgather", (2,), (0,), tuple(sizes), tuple(times))
    rates = [b / t for b, t in zip(sizes, times, strict=True)]
    if size <= sizes[0]:
        assert table.nanoseconds_of(size) == times[0]
    else:
        assert size / max(rates) * 0.999 <= table.nanoseconds_of(size) <= size / min(rates) * 1.001


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bytes": (2048, 1024, 4096)}, "ascending"),
        ({"nanoseconds": (1, 2)}, "3 sizes and 2 times"),
        ({"bytes": (), "nanoseconds": ()}, "0 sizes"),
        ({"nanoseconds": (0, 1, 1)}, "from 0 to 4096"),
        ({"axes": (2,)}, "distinct axes of the mesh"),
        ({"axes": (1, 0)}, "ascending"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        replace(TABLE, **change)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="Got -1"):
        TABLE.nanoseconds_of(-1)


def test_a_measured_cluster_is_priced_by_its_tables_and_says_what_it_extrapolates() -> None:
    plain = load_cluster("8-v100")
    mesh = plain.mesh(4)
    cluster = replace(plain, measured=(TABLE,), step_overhead_seconds=1e-3)
    assert Cluster.from_json(cluster.to_json(), "again") == cluster
    model, guess = ClusterCostModel(cluster, mesh), ClusterCostModel(plain, mesh)
    call = round(plain.collective_overhead_seconds * 1e9)
    assert round(model.network_seconds("allreduce", (0,), 2048) * 1e9) == 1024
    assert model.collective_nanoseconds("allreduce", (0,), 2048) == call + 1024
    assert model.extrapolated == {}
    assert model.collective_nanoseconds("allreduce", (0,), 8192) == call + 2048
    assert model.extrapolated == {"allreduce": 4096}
    for kind, axes in (("allreduce", (1,)), ("allgather", (0,))):  # not measured
        assert model.collective_nanoseconds(kind, axes, 2048) == guess.collective_nanoseconds(
            kind, axes, 2048
        )
    assert (model.step_nanoseconds(), guess.step_nanoseconds()) == (1_000_000, 0)


def test_a_table_holds_for_its_mesh_alone() -> None:
    plain = load_cluster("8-v100")
    cluster = replace(plain, measured=(TABLE,))
    two = Mesh((2,))
    assert ClusterCostModel(cluster, two).collective_nanoseconds(
        "allreduce", (0,), 2048
    ) == ClusterCostModel(plain, two).collective_nanoseconds("allreduce", (0,), 2048)


def test_what_is_faster_in_parts_goes_so_and_is_priced_so() -> None:
    cluster = Cluster.for_hosts(load_cluster("this-machine"), [2, 2], 2**33, 2)
    mesh = Mesh((2, 2))
    whole = BandwidthTable("allreduce", (2, 2), (0, 1), (1024, 1 << 20), (4000, 1 << 20))
    across = BandwidthTable("allreduce", (2, 2), (0,), (1024, 1 << 20), (3000, 1 << 20))
    within = [
        BandwidthTable(kind, (2, 2), (1,), (1024, 1 << 20), (2000, 1 << 16))
        for kind in ("reduce_scatter", "allgather")
    ]
    model = ClusterCostModel(replace(cluster, measured=(whole, across, *within)), mesh)
    assert not model.goes_in_hierarchy("allreduce", (0, 1), 1024)
    assert model.network_seconds("allreduce", (0, 1), 1024) == 4000e-9
    assert model.goes_in_hierarchy("allreduce", (1, 0), 1 << 20)
    in_parts = sum(
        model.network_seconds(kind, axes, bytes_)
        for kind, axes, bytes_ in (
            ("reduce_scatter", (1,), 1 << 20),
            ("allreduce", (0,), 1 << 19),
            ("allgather", (1,), 1 << 19),
        )
    )
    assert model.network_seconds("allreduce", (0, 1), 1 << 20) == in_parts < (1 << 20) / 1e9
    # Parts of which one was not measured, and groups on one machine or with one rank on each.
    some = ClusterCostModel(replace(cluster, measured=(whole, across)), mesh)
    assert not some.goes_in_hierarchy("allreduce", (0, 1), 1 << 20)
    for axes in ((0,), (1,)):
        assert not model.goes_in_hierarchy("allreduce", axes, 1 << 20)


def test_an_all_reduce_takes_at_most_as_long_as_a_reduce_scatter_and_an_all_gather() -> None:
    # Each collective over this link gains 400 ns, as a buffer takes its first bytes at once.
    sizes, halves = (1 << 10, 1 << 20), (1 << 9, 1 << 19)
    tables = (
        BandwidthTable("allreduce", (2,), (0,), sizes, (600, (1 << 20) - 400)),
        BandwidthTable("reduce_scatter", (2,), (0,), sizes, (500, (1 << 19) - 400)),
        BandwidthTable("allgather", (2,), (0,), halves, (500, (1 << 19) - 400)),
    )
    mesh = Mesh((2,))
    model = ClusterCostModel(replace(load_cluster("8-v100"), measured=tables), mesh)
    assert model.network_seconds("allreduce", (0,), 1 << 10) == 600e-9  # both take 1000
    assert model.network_seconds("allreduce", (0,), 1 << 20) == ((1 << 20) - 800) / 1e9
    partial, whole = Layout(((), ()), (0,), "sum"), Layout(((), ()))
    for rows in (1, 16, 256):
        steps = plan_reshard(mesh, (rows, 1024), 4, partial, whole, model.collective_nanoseconds)
        assert [step.kind for step in steps] == ["allreduce"]


def test_what_links_say_goes_in_parts() -> None:
    model = ClusterCostModel(load_cluster("2x8-v100"), load_cluster("2x8-v100").mesh(16))
    everyone = (0, 1, 2, 3)
    for kind in ("allreduce", "allgather", "reduce_scatter"):
        assert model.goes_in_hierarchy(kind, everyone, 1 << 20)
        assert not model.goes_in_hierarchy(kind, everyone, 1 << 10)
    # One message to the other machine in place of eight; then every byte moves once more.
    assert model.goes_in_hierarchy("alltoall", everyone, 1 << 10)
    assert not model.goes_in_hierarchy("alltoall", everyone, 1 << 30)
    assert not model.goes_in_hierarchy("exchange", everyone, 1 << 20)
