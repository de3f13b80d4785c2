"""Measured links: latency and bandwidth from a few collectives, the file, and the cluster."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensoropt.cost.cluster import Cluster, load_cluster
from tensoropt.cost.collective_time import Span, collective_seconds
from tensoropt.cost.measured_links import (
    LinkSetting,
    LinkTime,
    MeasuredLevel,
    MeasuredLinks,
    MeasuredPace,
    at_paces,
    kinds_of_paces,
    on_links,
)
from tensoropt.errors import PlanError
from tensoropt.report.cluster_links import links_line

KINDS = ("allreduce", "allgather", "alltoall")


def level(
    latency: float, bandwidth: float, members: int = 2, at_once: int = 1, saved: float = 0.0
) -> MeasuredLevel:
    """The measurements of a link that follows the formulas, less some seconds from 64 KiB on."""
    span = Span(members, 1, latency, bandwidth, bandwidth)
    times = []
    for kind in KINDS:
        for size in (1 << 12, 1 << 16, 1 << 20, 1 << 22):
            seconds = collective_seconds(kind, [span], size) - saved * (size > 1 << 16)
            times.append(LinkTime(kind, size, round(seconds * 1e9), round(seconds * 1e8)))
    return MeasuredLevel(members, at_once, True, tuple(times))


def links(hosts: tuple[int, ...] = (2, 2), at_once: int = 2) -> MeasuredLinks:
    names = tuple(f"m{number}" for number in range(len(hosts)))
    setting = LinkSetting(names, hosts, 2, "a carrier")
    across = level(1e-4, 1e7, len(hosts), at_once)
    within = level(1e-5, 1e9) if min(hosts) > 1 else None
    return MeasuredLinks(setting, across, within, MeasuredPace(10**11, 10**10))


@given(st.floats(1e-6, 1e-3), st.floats(1e6, 1e9), st.integers(2, 8))
def test_formulas_are_recovered(latency: float, bandwidth: float, members: int) -> None:
    measured = level(latency, bandwidth, members)
    smallest = (1 << 12) / bandwidth  # which counts as latency
    assert latency * 0.99 <= measured.latency_seconds <= (latency + smallest) * 1.01
    assert measured.bandwidth_bytes_per_second == pytest.approx(bandwidth, rel=0.01)
    spent = measured.processor_bytes_per_second
    assert spent == pytest.approx(10 * bandwidth, rel=0.01 + members * latency * bandwidth / 1e6)


def test_bytes_that_a_link_takes_at_once_count_for_nothing() -> None:
    at_once = level(1e-4, 12.5e6, saved=0.02)  # 256 KiB
    assert at_once.bandwidth_bytes_per_second == pytest.approx(12.5e6, rel=0.01)


@pytest.mark.parametrize("nanoseconds", [(7, 7), (900, 20), (1, 10**12)])
def test_disturbed_measurements_give_a_bandwidth(nanoseconds: tuple[int, int]) -> None:
    times = [LinkTime("allreduce", 4 << 20 * n, t, 0) for n, t in enumerate(nanoseconds)]
    disturbed = MeasuredLevel(2, 1, False, tuple(times))
    assert 1 <= disturbed.bandwidth_bytes_per_second <= 1e15
    assert 1 <= replace(disturbed, times=times[:1]).bandwidth_bytes_per_second <= 1e15


def test_machines_are_levels_with_their_links() -> None:
    template = load_cluster("this-machine")
    cluster = on_links(Cluster.for_hosts(template, [2, 2], 2**33, 2), links())
    assert str(cluster) == "2 machines of 2 ranks"
    machines, ranks = cluster.levels
    assert (machines.name, machines.count) == ("machine", 2)
    assert (ranks.name, ranks.count) == ("rank", 2)
    assert machines.bandwidth_bytes_per_second == pytest.approx(2e7, rel=0.01)  # two at once
    assert ranks.bandwidth_bytes_per_second == pytest.approx(1e9, rel=0.01)
    assert machines.processor_bytes_per_second == pytest.approx(1e8, rel=0.1)
    assert "m0 (2 ranks), m1 (2 ranks)" in cluster.description
    across, within = links_line(cluster).split("), ")
    assert across.startswith("2 machines (20.0 MB/s, ")
    assert across.endswith(" us, beside computation")
    assert within.startswith("2 ranks in each (1,000.0 MB/s, ")
    assert Cluster.from_json(cluster.to_json(), "again") == cluster


def test_ranks_have_their_pace() -> None:
    described = Cluster.for_hosts(load_cluster("this-machine"), [2, 2], 2**33, 2)
    device = on_links(described, links()).device
    assert device.flops_per_second("contraction", "float32") == pytest.approx(1e11)
    assert device.flops_per_second("contraction", "float64") == pytest.approx(5e10)
    assert device.memory_bandwidth_bytes_per_second == 1e10


def test_ranks_that_wait_use_no_processor_beside_computation() -> None:
    waiting = replace(links(), across=replace(links().across, overlaps=False))
    cluster = on_links(Cluster.for_hosts(load_cluster("this-machine"), [2, 2], 2**33, 2), waiting)
    assert cluster.levels[0].processor_bytes_per_second is None
    assert "processor_bytes_per_second" not in cluster.to_json()["levels"][0]


def test_groups_of_unequal_machines_share_their_link() -> None:
    template = load_cluster("this-machine")
    unequal = on_links(Cluster.for_hosts(template, [4, 2], 2**33, 2), links((4, 2)))
    assert str(unequal) == "2 machines of 4 and 2 ranks"
    assert unequal.levels[0].bandwidth_bytes_per_second == pytest.approx(1e7, rel=0.01)
    single = on_links(Cluster.for_hosts(template, [2, 1], 2**33, 2), links((2, 1), 1))
    assert single.levels[1] == Cluster.for_hosts(template, [2, 1], 2**33, 2).levels[1]


def test_devices_of_one_machine_have_its_links() -> None:
    cluster = on_links(Cluster.for_hosts(load_cluster("this-machine"), [2], 2**33, 2), links())
    (ranks,) = cluster.levels
    assert ranks.bandwidth_bytes_per_second == pytest.approx(1e9, rel=0.01)


def test_links_are_written_and_read_alike(tmp_path: Path) -> None:
    path = tmp_path / "deep" / links().setting.file_name
    links().save(path)
    assert MeasuredLinks.load(path) == links()
    assert links((1, 1)).setting.file_name != path.name
    assert replace(links().setting, carrier="another").file_name != path.name


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda values: values.update(schema=9), "of schema 9"),
        (lambda values: values["across"].update(at_once=0), "at across/at_once: 0"),
        (lambda values: values["across"]["times"].clear(), "at across/times"),
        (lambda values: values["across"].update(at_once=1), "was changed afterwards"),
    ],
)
def test_a_damaged_file_is_refused(change: Any, text: str, tmp_path: Path) -> None:
    values = links().to_json()
    change(values)
    path = tmp_path / "links.json"
    path.write_text(json.dumps(values))
    with pytest.raises(PlanError, match=text):
        MeasuredLinks.load(path)


def test_ranks_that_differ_by_a_quarter_at_most_are_of_one_kind() -> None:
    paces = [MeasuredPace(flops, flops // 4) for flops in (100, 81, 50, 99, 41)]
    assert [ranks for ranks, _ in kinds_of_paces(paces)] == [(0, 1, 3), (2, 4)]


def test_slow_ranks_are_a_kind_of_device() -> None:
    cluster = Cluster.for_hosts(load_cluster("this-machine"), [3], 2**34, 2)
    alike = [MeasuredPace(10**11, 10**10)] * 3
    assert at_paces(cluster, alike, is_measured=False) is cluster
    paces = [MeasuredPace(10**11, 10**10), *[MeasuredPace(4 * 10**10, 10**9)] * 2]
    of_fastest, of_slowest = (at_paces(cluster, paces, is_measured=each) for each in (False, True))
    assert of_fastest.speeds(3) == (1, 0.4, 0.4)
    assert of_fastest.device.flops_per_second("contraction", "float32") == 1e11
    assert of_slowest.speeds(3) == (2.5, 1, 1)
    assert of_slowest.device == cluster.device
