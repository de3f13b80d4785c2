"""Cluster files: read, checked, written, and turned into meshes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensoropt.cost.cluster import Cluster, Kind, cluster_names, load_cluster
from tensoropt.errors import LayoutError, OptionError, PlanError
from tensoropt.parallel.mesh import Mesh


def paper() -> dict[str, Any]:
    return load_cluster("2x8-v100").to_json()


def test_every_known_cluster_is_read_and_written_alike() -> None:
    assert set(cluster_names()) >= {"2x8-v100", "this-machine"}
    for name in cluster_names():
        cluster = load_cluster(name)
        assert cluster.name == name
        assert cluster.sources
        again = Cluster.from_json(json.loads(json.dumps(cluster.to_json())), name)
        assert again == cluster
        assert hash(again) == hash(cluster)


def test_a_cluster_may_say_what_a_device_costs() -> None:
    assert "device_hour_cost" not in paper()
    priced = Cluster.from_json({**paper(), "device_hour_cost": 2.5}, "priced")
    assert priced.device_hour_cost == 2.5
    assert Cluster.from_json(json.loads(json.dumps(priced.to_json())), "priced") == priced
    with pytest.raises(PlanError, match="device_hour_cost"):
        Cluster.from_json({**paper(), "device_hour_cost": 0}, "priced")


def test_a_cluster_may_have_machines_of_several_kinds() -> None:
    assert "kinds" not in paper()
    old = Kind("P100", tuple(range(8, 16)), 0.5, 12 * 2**30)
    mixed = replace(load_cluster("2x8-v100"), kinds=(old, Kind("worn", (3,), 0.9)))
    assert Cluster.from_json(json.loads(json.dumps(mixed.to_json())), "mixed") == mixed
    assert mixed.speeds(16) == (1, 1, 1, 0.9, 1, 1, 1, 1, *(0.5,) * 8)
    assert mixed.speeds(12) == (1, 1, 1, 0.9, 1, 1, *(0.5,) * 6)  # six of each machine
    assert mixed.speeds(2) == (1, 1)
    assert mixed.memory_bytes(8) == mixed.device.memory_bytes
    assert mixed.memory_bytes(16) == 12 * 2**30
    assert mixed.of_slowest(12).speeds(4) == (0.5,) * 4


@pytest.mark.parametrize("numbers", [[[0], [0]], [[16]], [[1, 1]]])
def test_a_device_is_of_one_kind(numbers: list[list[int]]) -> None:
    kinds = [
        {"name": "old", "devices": each, "speed": 0.5, "memory_bytes": None} for each in numbers
    ]
    with pytest.raises(PlanError, match="a device is of one kind, and has a number from 0 to 15"):
        Cluster.from_json({**paper(), "kinds": kinds}, "mixed")


def test_the_paper_s_test_bed() -> None:
    cluster = load_cluster("2x8-v100")
    assert cluster.devices == 16
    assert [level.count for level in cluster.levels] == [2, 8]
    outer, inner = cluster.levels
    assert outer.bandwidth_bytes_per_second * 8 == 100e9
    assert outer.shared_by_group
    assert not inner.shared_by_group
    # Four cards are still more than ten times slower than NVLink, seen from one of 8 devices.
    assert inner.bandwidth_bytes_per_second > 10 * 4 * outer.bandwidth_bytes_per_second / 8
    # "14.5 of 16 GB": section 5.2.
    usable = cluster.device.memory_bytes / cluster.safety_factor
    assert usable / 2**30 == pytest.approx(14.5, abs=0.05)


def test_the_paper_s_other_test_beds() -> None:
    plain, single = load_cluster("2x8-v100"), load_cluster("8-v100")
    network = {
        name: load_cluster(name).levels[0].bandwidth_bytes_per_second
        / plain.levels[0].bandwidth_bytes_per_second
        for name in ("2x8-v100-no-rdma", "2x8-v100-4x-rdma")
    }
    assert network == {"2x8-v100-no-rdma": 0.5, "2x8-v100-4x-rdma": 4.0}  # figure 7b
    for name in network:
        assert load_cluster(name).levels[1] == plain.levels[1]
        assert load_cluster(name).device == plain.device
    assert single.levels == plain.levels[1:]
    (pcie,) = load_cluster("8-v100-pcie").levels
    assert single.levels[0].bandwidth_bytes_per_second == 20 * pcie.bandwidth_bytes_per_second


def test_four_machines_of_eight_h100() -> None:
    cluster = load_cluster("4x8-h100")
    assert cluster.devices == 32
    outer, inner = cluster.levels
    assert not outer.shared_by_group  # a card for each device
    assert outer.bandwidth_bytes_per_second * 8 == 400e9
    assert inner.bandwidth_bytes_per_second == 900e9 / 2
    assert cluster.device.memory_bytes == 80 * 2**30


def test_a_cluster_is_read_from_a_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({**paper(), "name": "mine"}))
    assert load_cluster(path).name == "mine"
    assert load_cluster(str(path)).levels == load_cluster("2x8-v100").levels


def change(*keys: str | int, to: object) -> Callable[[dict[str, Any]], None]:
    def apply(values: Any) -> None:
        for key in keys[:-1]:
            values = values[key]
        values[keys[-1]] = to

    return apply


def drop(*keys: str | int) -> Callable[[dict[str, Any]], None]:
    def apply(values: Any) -> None:
        for key in keys[:-1]:
            values = values[key]
        del values[keys[-1]]

    return apply


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (change("schema", to=2), r"Got in .*mine\.json at schema: 2 "),
        (change("levels", 1, "count", to=0), "levels/1/count: 0"),
        (change("levels", to=[]), r"at levels: \[\]"),
        (change("levels", 0, "latency_seconds", to="fast"), "levels/0/latency_seconds: 'fast'"),
        (change("levels", 0, "bandwidth_bytes_per_second", to=0), "bandwidth_bytes_per_second: 0"),
        (
            drop("levels", 0, "shared_by_group"),
            "levels/0/shared_by_group: nothing",
        ),
        (change("device", "memory_bytes", to=-1), "device/memory_bytes: -1"),
        (change("device", "memory_bytes", to=1.5), "device/memory_bytes: 1.5"),
        (
            change("device", "efficiency", "contraction", to=1.5),
            "device/efficiency/contraction: 1.5",
        ),
        (
            drop("device", "peak_flops_per_second", "default"),
            "second: .*'default' is req",
        ),
        (change("safety_factor", to=0.9), "safety_factor: 0.9 .*greater than or equal to 1"),
        (change("safety_factor", to=1e300), "safety_factor: 1e[+]300 .*less"),
        (change("step_overhead_seconds", to=1e300), "step_overhead_seconds: 1e[+]300 "),
        (change("device", "memory_bytes", to=2.0), "memory_bytes: 2.0 .*valid integer"),
        (change("levels", 0, "count", to=2**20), "at most 1,048,576 devices. Got 8,388,608"),
        (change("colour", to="red"), "at colour: 'red' .there is no such name"),
    ],
)
def test_a_broken_rule_is_named_with_file_and_field(
    tmp_path: Path, spoil: Callable[[dict[str, Any]], None], message: str
) -> None:
    values = paper()
    spoil(values)
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(values))
    with pytest.raises(PlanError, match=message):
        load_cluster(path)


@pytest.mark.parametrize("content", ["{", "[]", "3", "null", b"\xff\xfe"])
def test_what_is_no_cluster_file_is_refused(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "mine.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(PlanError, match=r"mine\.json"):
        load_cluster(path)


def test_an_unknown_cluster_lists_the_known_ones() -> None:
    with pytest.raises(PlanError, match=r"one of 2x8-v100, .*this-machine.*Got 'nowhere'"):
        load_cluster("nowhere")


@pytest.mark.parametrize(
    ("devices", "levels"),
    [
        (1, (1, 1)),
        (3, (1, 3)),
        (4, (1, 4)),
        (8, (1, 8)),
        (10, (2, 5)),
        (12, (2, 6)),
        (14, (2, 7)),
        (16, (2, 8)),
    ],
)
def test_inner_levels_are_filled_first(devices: int, levels: tuple[int, int]) -> None:
    cluster = load_cluster("2x8-v100")
    assert cluster.level_counts(devices) == levels
    assert cluster.mesh(devices) == Mesh.of(devices, levels)


@pytest.mark.parametrize(("devices", "fewer"), [(9, 8), (11, 10), (17, 16), (10**6, 16)])
def test_devices_that_do_not_spread_evenly_are_refused(devices: int, fewer: int) -> None:
    message = rf"spreads evenly over the 2 \* 8 devices.*Got {devices} devices; use {fewer}"
    with pytest.raises(LayoutError, match=message):
        load_cluster("2x8-v100").mesh(devices)


def test_no_devices_are_refused() -> None:
    with pytest.raises(LayoutError, match="Got 0 devices"):
        load_cluster("2x8-v100").mesh(0)


def test_three_levels_spread_wherever_some_division_is_even() -> None:
    values = paper()
    values["levels"].insert(0, {**values["levels"][0], "name": "rack"})
    values["levels"][2]["count"] = 4
    cluster = Cluster.from_json(values, "racks")
    # Three groups of four do not fit into two racks of two machines; four of three do.
    assert cluster.level_counts(12) == (2, 2, 3)


@given(st.integers(1, 200))
def test_the_template_takes_any_number_of_devices(devices: int) -> None:
    cluster = load_cluster("this-machine")
    assert cluster.devices is None
    assert cluster.mesh(devices).size == devices


def test_hosts_of_equal_numbers_of_ranks_are_two_levels() -> None:
    template = load_cluster("this-machine")
    cluster = Cluster.for_hosts(template, [4, 4, 4], 2**33, 2)
    assert [level.count for level in cluster.levels] == [3, 4]
    assert cluster.devices == 12
    assert cluster.mesh(12) == Mesh.of(12, (3, 4))
    assert cluster.levels[0].bandwidth_bytes_per_second == (
        template.levels[0].bandwidth_bytes_per_second
    )
    # Four ranks share two cores.
    assert cluster.levels[1].bandwidth_bytes_per_second * 2 == (
        template.levels[1].bandwidth_bytes_per_second
    )
    assert cluster.device.memory_bytes == 2**31
    assert cluster.device.flops_per_second("contraction", "float32") * 2 == (
        template.device.flops_per_second("contraction", "float32")
    )
    assert cluster.device.memory_bandwidth_bytes_per_second * 4 == (
        template.device.memory_bandwidth_bytes_per_second
    )


def test_one_host_is_one_level_and_idle_cores_are_used() -> None:
    template = load_cluster("this-machine")
    cluster = Cluster.for_hosts(template, [2], 2**33, 8)
    assert [(level.name, level.count) for level in cluster.levels] == [("rank", 2)]
    assert cluster.device.flops_per_second("contraction", "float32") == (
        4 * template.device.flops_per_second("contraction", "float32")
    )
    assert cluster.levels[0].bandwidth_bytes_per_second == (
        template.levels[1].bandwidth_bytes_per_second
    )


def test_unequal_hosts_are_groups_that_divide_them_all() -> None:
    template = load_cluster("this-machine")
    cluster = Cluster.for_hosts(template, [4, 2], 2**33, 4)
    assert [level.count for level in cluster.levels] == [3, 2]
    # Two groups share the card of the larger host.
    assert cluster.levels[0].bandwidth_bytes_per_second * 2 == (
        template.levels[0].bandwidth_bytes_per_second
    )
    assert cluster.device.memory_bytes == 2**31


@pytest.mark.parametrize(
    ("hosts", "memory", "cores"), [([], 1, 1), ([0], 1, 1), ([1], 0, 1), ([1], 1, 0)]
)
def test_hosts_without_anything_are_refused(hosts: list[int], memory: int, cores: int) -> None:
    with pytest.raises(OptionError, match="hosts with ranks, memory and cores"):
        Cluster.for_hosts(load_cluster("this-machine"), hosts, memory, cores)


def test_a_template_of_one_level_is_refused() -> None:
    one = Cluster.for_hosts(load_cluster("this-machine"), [1], 2**33, 1)
    with pytest.raises(OptionError, match=r"two levels\. Got 1"):
        Cluster.for_hosts(one, [1], 2**33, 1)
