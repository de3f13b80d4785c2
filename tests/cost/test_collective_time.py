"""Collective times: closed forms, contention, and laws that every size and group obeys."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensoropt.cost.cluster import Cluster, load_cluster
from tensoropt.cost.collective_time import (
    COLLECTIVES,
    axis_levels,
    collective_seconds,
    spans,
    whole_nanoseconds,
)
from tensoropt.cost.model import ClusterCostModel
from tensoropt.errors import LayoutError, OptionError
from tensoropt.parallel.mesh import Mesh

V100 = load_cluster("2x8-v100")
MESH = V100.mesh(16)
ALL_AXES = [
    axes for count in range(1, 5) for axes in itertools.combinations(range(len(MESH.axes)), count)
]
MB = 10**6


def seconds(kind: str, axes: tuple[int, ...], bytes_: int, cluster: Cluster = V100) -> float:
    mesh = cluster.mesh(16)
    return collective_seconds(kind, spans(cluster, mesh, axes), bytes_)


def test_rings_inside_a_machine() -> None:
    a, b = 3.4e-6, 150e9
    assert seconds("allreduce", (1, 2, 3), MB) == pytest.approx(2 * 7 * (a + MB / 8 / b))
    assert seconds("reduce_scatter", (1, 2, 3), MB) == pytest.approx(7 * (a + MB / 8 / b))
    assert seconds("allgather", (1, 2, 3), MB) == pytest.approx(7 * (a + MB / b))
    assert seconds("alltoall", (1, 2, 3), MB) == pytest.approx(7 * (a + MB / 8 / b))
    assert seconds("broadcast", (1, 2, 3), MB) == pytest.approx(3 * a + MB / b)
    assert seconds("exchange", (1, 2, 3), MB) == pytest.approx(a + MB / b)


def test_concurrent_groups_share_a_machine_s_card() -> None:
    a, b = 9.6e-6, 12.5e9
    # Eight groups of two, one device of each in each machine.
    assert seconds("allreduce", (0,), MB) == pytest.approx(2 * (a + MB / 2 / (b / 8)))
    assert seconds("exchange", (0,), MB) == pytest.approx(a + MB / (b / 8))
    # Four groups of four: one member per machine of each sends to its neighbour.
    assert seconds("exchange", (0, 3), MB) == pytest.approx(a + MB / (b / 4))
    own = replace(V100, levels=(replace(V100.levels[0], shared_by_group=False), V100.levels[1]))
    assert seconds("allreduce", (0,), MB, own) == pytest.approx(2 * (a + MB / 2 / b))


def test_across_machines_only_what_was_reduced_inside_crosses() -> None:
    inner = 7 * (3.4e-6 + MB / 8 / 150e9)
    outer = 9.6e-6 + MB / 8 / 2 / (12.5e9 / 8)
    assert seconds("reduce_scatter", (0, 1, 2, 3), MB) == pytest.approx(inner + outer)
    assert seconds("allreduce", (0, 1, 2, 3), MB) == pytest.approx(2 * (inner + outer))


@given(st.sampled_from(ALL_AXES), st.integers(0, 10**9))
def test_laws_between_collectives(axes: tuple[int, ...], bytes_: int) -> None:
    size = MESH.pieces(axes)
    reduce_scatter = seconds("reduce_scatter", axes, bytes_ * size)
    assert seconds("allgather", axes, bytes_) == pytest.approx(reduce_scatter)
    assert seconds("allreduce", axes, bytes_ * size) == pytest.approx(2 * reduce_scatter)
    assert seconds("exchange", axes, bytes_) <= seconds("broadcast", axes, bytes_)


@given(
    st.sampled_from((*COLLECTIVES, "slice", "mask")),
    st.sampled_from(ALL_AXES),
    st.integers(0, 10**10),
    st.integers(0, 10**6),
)
def test_more_bytes_never_take_less_time(
    kind: str, axes: tuple[int, ...], bytes_: int, more: int
) -> None:
    model = ClusterCostModel(V100, MESH)
    less = model.collective_nanoseconds(kind, axes, bytes_)
    assert 1 <= less <= model.collective_nanoseconds(kind, axes, bytes_ + more)


@given(st.sampled_from(COLLECTIVES), st.sampled_from(ALL_AXES), st.integers(0, 10**9))
def test_the_order_of_axes_has_no_effect(kind: str, axes: tuple[int, ...], bytes_: int) -> None:
    assert seconds(kind, axes[::-1], bytes_) == seconds(kind, axes, bytes_)


def test_the_slower_level_dominates() -> None:
    for kind in COLLECTIVES:
        inside = seconds(kind, (1,), 100 * MB)
        across = seconds(kind, (0,), 100 * MB)
        assert across > 50 * inside
        assert seconds(kind, (0, 1), 100 * MB) > across / 2


def test_half_a_machine_has_less_contention() -> None:
    mesh = V100.mesh(12)
    assert mesh.axes == (2, 2, 3)
    assert axis_levels(V100, mesh) == (0, 1, 1)
    six = collective_seconds("allreduce", spans(V100, mesh, (0,)), MB)
    assert six == pytest.approx(2 * (9.6e-6 + MB / 2 / (12.5e9 / 6)))


def test_axes_and_levels() -> None:
    assert axis_levels(V100, MESH) == (0, 1, 1, 1)
    assert axis_levels(V100, V100.mesh(4)) == (1, 1)
    assert axis_levels(V100, Mesh((2, 8))) == (0, 1)
    assert axis_levels(V100, V100.mesh(1)) == ()
    with pytest.raises(LayoutError, match=r"levels \[2, 8\] of cluster 2x8-v100. Got mesh \[16\]"):
        axis_levels(V100, Mesh((16,)))
    with pytest.raises(LayoutError, match=r"Got mesh \[4,4\]"):
        axis_levels(V100, Mesh((4, 4)))


def test_what_breaks_a_rule_is_refused() -> None:
    with pytest.raises(LayoutError, match="at least one mesh axis"):
        spans(V100, MESH, ())
    with pytest.raises(LayoutError, match="different axes"):
        spans(V100, MESH, (4,))
    with pytest.raises(OptionError, match=r"one of allgather, .* Got 'gossip'"):
        seconds("gossip", (0,), 1)
    with pytest.raises(OptionError, match="Got -1"):
        seconds("allgather", (0,), -1)


def test_nanoseconds_are_rounded_and_at_least_one() -> None:
    assert whole_nanoseconds(0.0) == 1
    assert whole_nanoseconds(2.6e-9) == 3
    assert whole_nanoseconds(1.0) == 10**9
