"""What planning does when its seconds are over, by a clock that stands still but for slow work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

import tensoropt as tf
from tensoropt.cost.peak.estimated_peak import Peak
from tensoropt.errors import InfeasibleError
from tensoropt.frontend.job.job import current
from tensoropt.frontend.planning.training_step import step_request
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh
from tensoropt.pipeline.split.profile import SplitProfile
from tensoropt.planner import market
from tensoropt.planner.choose import choose
from tensoropt.planner.market import Market
from tensoropt.planner.offers.offer import Offer
from tensoropt.planner.options.planning_options import PlanningOptions
from tensoropt.planner.prices.dry_runs import NO_TIME, LatePlans, dry_runs_in_time
from tensoropt.planner.request import PipelineNumbers, Request
from tensoropt.planner.searches.frontier_search import least_bytes, search_frontier
from tensoropt.planner.searches.pipeline_search import ANY_TIME, PipelineSearch
from tensoropt.planner.spaces import branches, keeping_less, microbatches, stages
from tensoropt.planner.spaces.findings import Findings
from tensoropt.search.watch import Watch, seconds_left


class Clock:
    """A clock, and the number of slow calls that have advanced it by a second each."""

    def __init__(self) -> None:
        self.seconds = 0

    def __call__(self) -> float:
        return self.seconds

    def slow(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """The same work, which takes a second."""

        def slowly(*args: Any) -> Any:
            self.seconds += 1
            return work(*args)

        return slowly


@pytest.fixture
def request_() -> Iterator[Request]:
    """Two towers of two layers, whose activations are larger than their weights, on 4 devices."""
    tf.shutdown()
    tf.reset_default_graph()
    tf.init(devices=4, cluster="2x8-v100")
    values = tf.placeholder(tf.float32, [None, 64])
    towers = [values, values]
    for layer in range(4):
        weights = tf.get_variable(f"weights{layer}", [64, 64])
        towers[layer % 2] = tf.tanh(tf.matmul(towers[layer % 2], weights))
    loss = tf.reduce_mean(tf.square(towers[0] * towers[1]))
    tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    yield replace(
        step_request(current(), PlanningOptions(batch_size=256, pipeline=False)),
        dry_run_peak=None,
        stage_peak=None,
        pipeline=PipelineNumbers(None),
    )
    tf.shutdown()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """The clock of all searches; to price the stages of one size takes a second."""
    clock = Clock()
    price = SplitProfile.price

    def slowly(self: SplitProfile, *stage: int) -> None:
        clock.seconds += 1
        price(self, *stage)

    monkeypatch.setattr(SplitProfile, "price", slowly)
    with Watch(clock=clock):
        yield clock


def test_no_stages_are_priced_after_the_time(request_: Request, clock: Clock) -> None:
    ample = PipelineSearch(request_, 4, (2, 4), (2, 4), (1 << 40, None))
    assert ample.frontier
    assert not ample.ended_by
    priced = clock.seconds
    for seconds in (1, priced - 1):
        clock.seconds = 0
        with Watch(seconds=seconds):
            search = PipelineSearch(request_, 4, (2, 4), (2, 4), (1 << 40, None))
            assert search.frontier
        assert seconds <= clock.seconds < priced
        assert search.ended_by == "time"
    clock.seconds = 0
    with Watch(seconds=1):  # something else fits, so none is needed
        assert not PipelineSearch(request_, 4, (2, 4), (2, 4), (1 << 40, ANY_TIME)).frontier
    assert clock.seconds == 1
    clock.seconds = 0
    with Watch(seconds=1):  # pipelines that are demanded are searched until there is one
        search = PipelineSearch(request_, 4, (2, 2), (2, 4))
        assert {pipeline.microbatches for pipeline in search.frontier} == {2}


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_where_nothing_fits_a_pipeline_is_searched_at_any_time(
    request_: Request, clock: Clock, is_interrupted: bool
) -> None:
    search = PipelineSearch(request_, 4, (2, 4), (2, 4), (1 << 40, None))
    with Watch(seconds=0) as watch:
        watch.interrupted = is_interrupted
        assert bool(search.frontier) != is_interrupted
    numbers = {pipeline.microbatches for pipeline in search.frontier}
    assert len(numbers) == (0 if is_interrupted else 1)
    assert search.ended_by == "time"


def test_where_nothing_fits_numbers_of_microbatches_without_a_bound_are_searched(
    request_: Request, clock: Clock
) -> None:
    """By its bound a pipeline of two microbatches may fit, and none does."""
    least = PipelineSearch(request_, 4, (2, 4), (2,)).frontier[0].memory
    with Watch(seconds=0):
        search = PipelineSearch(request_, 4, (2, 4), (2, 4, 8), (int(0.95 * least), None))
        assert {pipeline.microbatches for pipeline in search.frontier} == {4}


@pytest.mark.parametrize("space", [stages, microbatches])
def test_spaces_that_save_memory_are_searched_at_any_time_until_one_fits(
    request_: Request, clock: Clock, space: Any
) -> None:
    _, frontier = search_frontier(request_, request_.devices)
    factor = request_.cluster_at(request_.devices).safety_factor
    limit = int(0.9 * frontier.memory[0] * factor)
    unasked = PipelineNumbers(None, None, is_asked=False)
    short = replace(request_, accumulate=True, memory_limit_bytes=limit, pipeline=unasked)
    with Watch(seconds=0):
        findings = Findings()
        assert any(offer.fitting for offer in space.offers(short, findings))
        assert not findings.skipped
        findings = Findings(fits=True)
        assert not list(space.offers(short, findings))
        assert findings.skipped == {space.NAME: NO_TIME}


def test_a_time_to_undercut_hides_no_faster_pipeline(request_: Request) -> None:
    for best in PipelineSearch(request_, 4, (2, 4), (2, 4)).frontier:
        limits = best.memory, round(1.01 * best.simulated_time())
        search = PipelineSearch(request_, 4, (2, 4), (2, 4), limits)
        assert search.frontier[-1].time <= 1.02 * best.time


@pytest.mark.parametrize("space", [stages, branches])
def test_a_space_says_that_time_ended_its_search(
    request_: Request, clock: Clock, space: Any
) -> None:
    unasked = PipelineNumbers(None, None, is_asked=False)
    factor = request_.cluster_at(request_.devices).safety_factor
    limit = int(1.3 * stages.least_variable_bytes(request_) * factor)
    findings = Findings()
    with Watch(seconds=1):
        request = replace(request_, pipeline=unasked, memory_limit_bytes=limit)
        assert not list(space.offers(request, findings))
    assert findings.skipped == {space.NAME: Findings.ENDED}
    empty = object.__new__(Market)
    empty.offers, empty.findings = [], Findings(skipped={space.NAME: Findings.ENDED})
    assert "search_seconds were over before one was found" in empty.looked_at


@pytest.mark.parametrize("fits", [True, False])
def test_stages_get_half_of_the_time_before_microbatches_if_nothing_fits(
    request_: Request, clock: Clock, monkeypatch: pytest.MonkeyPatch, fits: bool
) -> None:
    asked: list[tuple[str, float]] = []

    def space(name: str) -> Any:
        def offers(*_: Any) -> Iterator[Offer]:
            asked.append((name, seconds_left()))
            return iter(())

        return offers

    monkeypatch.setattr(market, "SPACES", {name: space(name) for name in market.SPACES})
    _, frontier = search_frontier(request_, request_.devices)
    factor = request_.cluster_at(request_.devices).safety_factor
    limit = int((1.1 if fits else 0.9) * frontier.memory[0] * factor)
    Market(replace(request_, accumulate=True, memory_limit_bytes=limit, search_seconds=8))
    first_two = [(microbatches.NAME, 8), (stages.NAME, 8 if fits else 4)]
    assert asked[:2] == (first_two if fits else first_two[::-1])


@pytest.mark.parametrize(("fits", "seconds"), [(True, 8), (False, 4)])
def test_the_batch_at_once_gets_half_of_the_time_if_none_of_it_fits(
    request_: Request, clock: Clock, monkeypatch: pytest.MonkeyPatch, fits: bool, seconds: float
) -> None:
    given: list[float] = []

    def searched(*known: Any) -> Any:
        given.append(seconds_left())
        return search_frontier(*known)

    least = least_bytes(request_, request_.devices)
    factor = request_.cluster_at(request_.devices).safety_factor
    limit = int((1.02 if fits else 0.9) * least * factor)
    monkeypatch.setattr(market, "search_frontier", searched)
    with Watch(seconds=8):
        Market(replace(request_, accumulate=True, memory_limit_bytes=limit, search_seconds=8))
    assert given[0] == seconds


@pytest.mark.parametrize(("accumulate", "seconds"), [(True, 4), (False, 8)])
def test_keeping_less_gets_all_of_the_time_if_nothing_else_may_fit(
    request_: Request,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    accumulate: bool,
    seconds: float,
) -> None:
    given: list[float] = []

    class Searched(Exception):
        pass

    def search(*_: object) -> Offer:
        given.append(seconds_left())
        raise Searched

    monkeypatch.setattr(microbatches.Strategies, "of", search)
    frugal = replace(request_, accumulate=accumulate, keep_less=True)
    with Watch(seconds=8), pytest.raises(Searched):
        list(keeping_less.offers(frugal, Findings()))
    assert given == [seconds]


def test_estimates_replace_dry_runs_after_the_time(request_: Request, clock: Clock) -> None:
    """Every dry run takes a second, and its peak is just above the limit."""
    whole = replace(request_, pipeline=None)
    limit = int(1.5 * choose(whole, "mini_time").memory_bytes)
    too_high = clock.slow(lambda *_: Peak(limit + 1, 0, ""))
    request = replace(whole, accumulate=True, memory_limit_bytes=limit, dry_run_peak=too_high)
    clock.seconds = 0
    with pytest.raises(InfeasibleError):
        choose(request, "mini_time")
    assert clock.seconds > 2
    clock.seconds = 0
    plan = choose(replace(request, search_seconds=1), "mini_time")
    assert plan.peak_is_estimated
    assert clock.seconds == 3  # two in 1.5 seconds, and one after that


def test_after_the_time_four_plans_have_dry_runs(request_: Request, clock: Clock) -> None:
    def found(count: int, is_searched: bool = True) -> list[bool]:
        """Whether each of some plans has dry runs: two of the same plan count once."""
        late = LatePlans()
        if is_searched:
            late.end_search()
        clock.seconds = 0
        with Watch(seconds=1):
            clock.seconds = 2
            request = replace(request_, dry_run_peak=lambda *_: Peak(1, 0, ""))
            look = dry_runs_in_time(request, late).dry_run_peak
            assert look is not None
            plans: list[dict[str, Configuration]] = [{} for _ in range(count)]
            results = [look(Mesh((4,)), plan, {}, 1, ()) for plan in plans for _ in range(2)]
        assert results[::2] == results[1::2]
        return [each != NO_TIME for each in results[::2]]

    assert found(5) == [True] * 4 + [False]
    assert found(2, is_searched=False) == [True, False]
