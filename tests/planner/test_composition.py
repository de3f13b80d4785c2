"""The default combines what each option allows, and is never predicted slower than one alone."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import inf

import pytest

import tensoropt
from benchmarks.composition.cells import LIMITS, cells_of, data_parallel_bytes
from benchmarks.composition.models import step_request
from benchmarks.composition.options import default
from benchmarks.composition.shared import ChargedResults
from tensoropt.errors import InfeasibleError
from tensoropt.planner.choose import choose, profiling
from tensoropt.planner.request import Request
from tensoropt.search.watch import Watch, seconds_left
from tests.proofs import proof

tensoropt.enable_graph_mode()


@cache
def request_of(name: str) -> Request:
    request = step_request(name, 4, small=True)
    return replace(request, search_seconds=30.0, steps=1000, saves_dry_runs=True)


@pytest.mark.parametrize(
    ("name", "limits"),
    [("chain", (0.3,)), proof("unet", (0.3,)), proof("chain", LIMITS)],
    ids=str,
)
def test_no_option_alone_is_better_than_the_default(
    name: str, limits: tuple[float | None, ...]
) -> None:
    cells = list(cells_of(name, request_of(name), limits))
    assert len(cells) == len(limits)
    assert not [str(cell) for cell in cells if cell.is_worse]
    assert cells[0].default is not None


@pytest.mark.parametrize(("name", "share"), [("chain", 2.0), proof("chain", 0.5), ("siamese", 2.0)])
def test_a_row_of_a_profile_is_what_is_planned_on_as_many_devices(name: str, share: float) -> None:
    request = default(request_of(name))
    limit = int(share * data_parallel_bytes(request))
    request = replace(request, memory_limit_bytes=limit)
    for row in profiling(request, [1, 2, 4]).points:
        try:
            plan = choose(replace(request, devices=row.devices), "mini_time")
        except InfeasibleError:
            assert row.time_seconds is None
        else:
            assert row.time_seconds == plan.predicted_step_seconds
            assert row.memory_bytes == plan.memory_bytes


def test_a_step_with_gradients_of_gradients_that_does_not_fit_has_a_clear_error() -> None:
    """Its peak has no estimate, and its rewritten graphs lack tensors that have gradients."""
    request = default(request_of("penalty"))
    limit = int(0.6 * data_parallel_bytes(request))
    with pytest.raises(InfeasibleError, match="peak memory is at most the memory limit"):
        choose(replace(request, memory_limit_bytes=limit), "mini_time")
    plan = choose(replace(request, rewrite=True), "mini_time")
    assert "rewritten graphs (the script differentiates gradients" in plan.looked_at
    assert not plan.rewrites


def test_a_plan_has_the_time_of_one_that_shares_no_search() -> None:
    """A search takes five seconds; if fewer are left, it takes these and ends."""
    results = ChargedResults()

    def find() -> object:
        results._charged += min(5.0, seconds_left())
        seconds_left()  # notes that none is left
        return object()

    def found(seconds: float) -> object:
        with Watch(seconds=seconds, clock=lambda: results._charged):
            return results.once("search", seconds, find)

    whole = found(inf)
    assert results._charged == 5
    assert found(10) is whole
    assert results._charged == pytest.approx(10, abs=0.1)
    ended = found(3)
    assert ended is not whole
    assert found(3) is ended
    assert found(4) is not ended
