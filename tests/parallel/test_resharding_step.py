"""Resharding steps check themselves; plans are deterministic and refuse what does not fit."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from tensoropt.errors import LayoutError, OptionError
from tensoropt.parallel.assignments import encode
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import (
    Price,
    ReshardStep,
    plan_reshard,
    step_bytes,
)
from tensoropt.parallel.resharding.distances import Distances
from tensoropt.parallel.resharding.space import layout_space

ROWS, COLUMNS, WHOLE = Layout(((0,), ())), Layout(((), (0,))), Layout.replicated(2)
PARTIAL = Layout(((), ()), (0,))
MESH = Mesh((2, 2))


def codes(*layouts: Layout) -> npt.NDArray[np.int64]:
    return np.array([encode(layout) for layout in layouts])


def flat(kind: str, axes: tuple[int, ...], bytes_: int) -> int:
    return 5


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (ReshardStep("slice", (0,), WHOLE, ROWS, None, 0), "slice (-,-) of 0 over [0]"),
        (ReshardStep("allgather", (0,), ROWS, WHOLE, 0), "allgather (0,-) of 0 over [0]"),
        (ReshardStep("alltoall", (0,), ROWS, COLUMNS, 0, 1), "alltoall (0,-) of 0>1 over [0]"),
        (
            ReshardStep("allreduce", (0,), PARTIAL, WHOLE, reducer="sum"),
            "allreduce (-,-)+sum[0] over [0]",
        ),
        (
            ReshardStep("reduce_scatter", (0,), PARTIAL, COLUMNS, None, 1, "sum"),
            "reduce_scatter (-,-)+sum[0] of 1 over [0]",
        ),
        (
            ReshardStep("mask", (0,), WHOLE, Layout(((), ()), (0,), "max"), reducer="max"),
            "mask max (-,-) over [0]",
        ),
    ],
)
def test_steps_are_written_tersely_and_know_whether_they_communicate(
    step: ReshardStep, text: str
) -> None:
    assert str(step) == text
    assert step.is_local == (step.kind in ("slice", "mask"))
    assert hash(step) == hash(step)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ReshardStep("scatter", (0,), WHOLE, ROWS, None, 0), "a step is one of .*'scatter"),
        (lambda: ReshardStep("slice", (), WHOLE, ROWS, None, 0), "at least one mesh axis"),
        (lambda: ReshardStep("slice", (0,), WHOLE, ROWS), "to_dim belongs to .* Got None"),
        (lambda: ReshardStep("slice", (0,), WHOLE, ROWS, 1, 0), "from_dim belongs .* Got 1"),
        (lambda: ReshardStep("allgather", (0,), ROWS, WHOLE, 0, None, "sum"), "reducer belongs"),
        (lambda: ReshardStep("slice", (0,), WHOLE, COLUMNS, None, 0), "does not lead to"),
        (lambda: ReshardStep("slice", (0,), WHOLE, ROWS, None, 2), "dimensions 0 to 1. Got 2"),
        (lambda: ReshardStep("slice", (0,), ROWS, ROWS, None, 0), "splits one dimension at most"),
        (lambda: ReshardStep("allgather", (1,), ROWS, WHOLE, 0), "not the last axes"),
        (lambda: ReshardStep("alltoall", (0,), ROWS, ROWS, 0, 0), "other than the target"),
        (
            lambda: ReshardStep("allreduce", (0,), PARTIAL, WHOLE, reducer="max"),
            "not partial by that reducer",
        ),
        (
            lambda: ReshardStep("mask", (1,), PARTIAL, PARTIAL, reducer="max"),
            "a layout has one reducer",
        ),
        (
            lambda: ReshardStep("allgather", (0,), Layout(((0, 1), ())), WHOLE, 0),
            "not the last axes",
        ),
    ],
)
def test_a_step_that_breaks_a_rule_is_refused(
    make: Callable[[], ReshardStep], message: str
) -> None:
    with pytest.raises(LayoutError, match=message):
        make()


def test_the_bytes_of_a_step_are_those_before_it_and_after_local_ones() -> None:
    shape = (8, 4)
    assert step_bytes(ReshardStep("slice", (0,), WHOLE, ROWS, None, 0), MESH, shape, 4) == 64
    assert step_bytes(ReshardStep("allgather", (0,), ROWS, WHOLE, 0), MESH, shape, 4) == 64
    masked = ReshardStep("mask", (0,), WHOLE, PARTIAL, reducer="sum")
    assert step_bytes(masked, MESH, shape, 4) == 128


def test_the_same_layout_needs_no_step() -> None:
    for layout in (ROWS, WHOLE, PARTIAL):
        assert plan_reshard(MESH, (4, 4), 4, layout, layout, flat) == ()
    distances = Distances(MESH, flat)
    times = distances.between((4, 4), 4, codes(ROWS, WHOLE, PARTIAL), codes(WHOLE, ROWS))
    assert times.dtype == np.int64
    assert times.tolist() == [[5, 0], [0, 5], [5, 5]]


def test_among_equals_the_fewest_steps_are_taken_and_always_the_same_ones() -> None:
    def one_per_axis(kind: str, axes: tuple[int, ...], bytes_: int) -> int:
        return len(axes)

    mesh = Mesh((2, 2, 2))
    source = Layout(((0, 1, 2), ()))
    assert len(plan_reshard(mesh, (8, 8), 4, source, WHOLE, one_per_axis)) == 1
    first = plan_reshard(mesh, (8, 8), 4, source, Layout(((2,), (1,))), one_per_axis)
    layout_space.cache_clear()
    again = plan_reshard(mesh, (8, 8), 4, source, Layout(((2,), (1,))), lambda *_: one_per_axis(*_))
    assert first == again


def test_a_layout_that_does_not_fit_is_no_way_through() -> None:
    # Over a dimension of 2 neither both axes nor, from (0,) to (1,), a detour can be taken.
    steps = plan_reshard(MESH, (2, 3), 4, ROWS, Layout(((1,), ())), flat)
    assert [step.kind for step in steps] == ["allgather", "slice"]


def test_two_reducers_meet_in_the_true_tensor() -> None:
    most = Layout(((), ()), (0,), "max")
    steps = plan_reshard(MESH, (2, 2), 4, PARTIAL, most, flat)
    assert [step.kind for step in steps] == ["allreduce", "mask"]
    assert [step.reducer for step in steps] == ["sum", "max"]
    times = Distances(MESH, flat).between((2, 2), 4, codes(PARTIAL), codes(most))
    assert times.tolist() == [[10]]


def test_a_pair_s_time_does_not_depend_on_the_others_asked_for() -> None:
    """Masking is absurdly cheap, so that partial sums would be a shortcut between true tensors."""

    def masks_for_nothing(kind: str, axes: tuple[int, ...], bytes_: int) -> int:
        return {"slice": 100, "mask": 1, "reduce_scatter": 1}.get(kind, 1000)

    ends = codes(WHOLE), codes(ROWS)
    alone = Distances(MESH, masks_for_nothing).between((4, 4), 4, *ends)
    ends = codes(PARTIAL, WHOLE), codes(PARTIAL, ROWS)
    among = Distances(MESH, masks_for_nothing).between((4, 4), 4, *ends)
    assert alone[0, 0] == among[1, 1] == 100
    assert [s.kind for s in plan_reshard(MESH, (4, 4), 4, WHOLE, ROWS, masks_for_nothing)] == [
        "slice"
    ]


@pytest.mark.parametrize(
    "layout",
    [Layout(((0, 1), ())), Layout(((0,),)), Layout(((2,), ())), Layout(((), ()), (2,))],
    ids=str,
)
def test_layouts_that_do_not_fit_are_refused(layout: Layout) -> None:
    for pair in ((layout, WHOLE), (WHOLE, layout)):
        with pytest.raises(LayoutError, match="an element for each device"):
            plan_reshard(MESH, (2, 3), 4, *pair, flat)


@pytest.mark.parametrize("answer", [0, -1, 2**53, 1.5, float("nan")])
def test_a_price_that_is_no_whole_nanosecond_is_refused(answer: int) -> None:
    def price(kind: str, axes: tuple[int, ...], bytes_: int) -> int:
        return answer

    with pytest.raises(OptionError, match="whole number of nanoseconds"):
        plan_reshard(MESH, (2, 2), 4, ROWS, WHOLE, price)


def test_prices_whose_sum_is_no_longer_exact_are_refused() -> None:
    def price(kind: str, axes: tuple[int, ...], bytes_: int) -> int:
        return 2**53 - 1

    with pytest.raises(OptionError, match="add up to less than 2"):
        plan_reshard(MESH, (2, 2), 4, ROWS, Layout(((1,), ())), price)


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
@pytest.mark.parametrize("reducers", [(), ("sum",), ("max", "sum")], ids=str)
def test_every_edge_is_a_step_and_no_two_join_the_same_layouts(
    rank: int, reducers: tuple[str, ...]
) -> None:
    space = layout_space((2, 3, 2), rank, reducers)
    assert len(set(space.keys)) == len(space.keys)
    ends = list(zip(space.source.tolist(), space.target.tolist(), strict=True))
    assert len(set(ends)) == len(ends)
    assert ends == sorted(ends, key=lambda pair: pair[0])
    draw = random.Random(rank)
    for edge in draw.sample(range(len(ends)), min(len(ends), 300)):
        space.step(edge)  # a step refuses a target that it does not lead to


def test_like_dimensions_share_their_searches_without_a_difference() -> None:
    """The same layouts at a shape with like dimensions, solved together and one by one."""

    def price(kind: str, axes: tuple[int, ...], bytes_: int) -> int:
        return 100 + 7 * sum(axes) + bytes_ // len(axes)

    draw = random.Random(5)
    keys = layout_space((2, 2, 2), 3, ("sum",)).keys
    ascending = [key for key in keys if all(list(axes) == sorted(axes) for axes in key[0])]
    layouts = [Layout(*draw.choice(ascending)) for _ in range(40)]
    mesh, shape = Mesh((2, 2, 2)), (8, 16, 24)
    times = Distances(mesh, price).between(shape, 4, codes(*layouts), codes(*layouts))
    for row, source in enumerate(layouts):
        column = draw.randrange(len(layouts))
        steps = plan_reshard(mesh, shape, 4, source, layouts[column], price)
        paid = (price(s.kind, s.axes, step_bytes(s, mesh, shape, 4)) for s in steps)
        assert sum(paid) == times[row, column]


def test_any_price_type_is_accepted_that_is_called_alike() -> None:
    class Tariff:
        def __call__(self, kind: str, axes: tuple[int, ...], bytes_: int) -> int:
            return 1 + bytes_

    tariff: Price = Tariff()
    times = Distances(MESH, tariff).between((4, 4), 4, codes(ROWS), codes(WHOLE))
    assert times.tolist() == [[33]]


def test_cost_classes_follow_an_exchange_of_axes() -> None:
    space = layout_space((2, 2, 2), 2, ("sum",))
    swap = {0: 2, 2: 0}
    exchanged = space.exchanged_classes(0, 2)
    for (kind, axes, pieces), number in zip(space.classes, exchanged.tolist(), strict=True):
        there = [swap.get(axis, axis) for axis in axes]
        if kind in ("mask", "allreduce"):
            there.sort()
        assert space.classes[number] == (kind, tuple(there), pieces)
