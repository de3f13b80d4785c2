"""Which offer of a market is planned, and that spaces are asked about each other's results."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import tensoropt as tf
from tensoropt.cost.cluster import load_cluster
from tensoropt.errors import InfeasibleError
from tensoropt.frontend.job.job import current
from tensoropt.frontend.planning.training_step import step_request
from tensoropt.graph.operator import Graph
from tensoropt.plan.plan import Plan
from tensoropt.plan.point_peak import PointPeak, memory_and_time
from tensoropt.planner import choose as choosing
from tensoropt.planner.choose import choose, profiling
from tensoropt.planner.market import Market
from tensoropt.planner.offers.offer import Offer, Points
from tensoropt.planner.options.planning_options import PlanningOptions
from tensoropt.planner.request import PipelineNumbers, Request
from tensoropt.planner.searches import frontier_search
from tensoropt.planner.spaces.findings import Findings
from tensoropt.problem.edges.tensor_reuse import FRUGAL
from tensoropt.search.limits import DEFAULT_LIMITS

CLUSTER = load_cluster("2x8-v100")
REQUEST = Request(Graph({}), lambda _: CLUSTER, 2, (), {}, frozenset(), 1000)


class Made(Offer):
    """An offer of one point, whose step takes longer once it is planned, or fails to be."""

    def __init__(self, kind: str, price: int, planned: int | Exception | None = None) -> None:
        self.kind, self.request, self._time = kind, REQUEST, price
        self._planned = price if planned is None else planned

    @property
    def points(self) -> Points:
        return [(100, self._time)]

    def peaks(self, _: int) -> list[PointPeak | None]:
        return [None]

    @property
    def known_price(self) -> int | None:
        return self._time

    @property
    def is_staged(self) -> bool:
        return self.kind in ("stages", "branches")

    def price_of(self, _: int) -> int:
        return self._time

    def way_of(self, _: int) -> str:
        return self.kind

    def plan(self, option: str) -> Plan:
        if isinstance(self._planned, Exception):
            raise self._planned
        return Plan(
            *(option, 2, (2,), CLUSTER, "0" * 64, (), {}, (), ()),
            time_nanoseconds=self._time,
            memory_bytes=100,
            memory_limit_bytes=None,
            frontier=((100, self._time),),
            exact=False,
            executed_nanoseconds=self._planned,
            network_nanoseconds=0,
            notes=(self.kind,),
        )

    def plan_of(self, _: int, option: str) -> Plan:
        return self.plan(option)


def chosen(monkeypatch: pytest.MonkeyPatch, *offers: Offer) -> tuple[str, ...]:
    market = object.__new__(Market)
    market.request, market.offers = REQUEST, list(offers)
    market.findings, market.failures = Findings(), []
    monkeypatch.setattr(choosing, "fewer_devices", lambda *_: ((1, 5),))
    monkeypatch.setattr(choosing, "Market", lambda _: market)
    return choosing.choose(REQUEST, "mini_time").notes


@pytest.mark.parametrize(
    ("offers", "kind"),
    [
        ([("whole batch", 100), ("stages", 98)], "whole batch"),
        ([("whole batch", 100), ("stages", 90)], "stages"),
        ([("whole batch", 100), ("branches", 90), ("stages", 89)], "branches"),
        ([("whole batch", 90, 130), ("stages", 100)], "stages"),
        ([("whole batch", 90, 102), ("stages", 100)], "whole batch"),
        ([("whole batch", 90, ValueError("why")), ("stages", 100)], "stages"),
    ],
)
def test_the_simplest_of_the_fastest_is_planned(
    monkeypatch: pytest.MonkeyPatch, offers: list[tuple[Any, ...]], kind: str
) -> None:
    notes = chosen(monkeypatch, *(Made(*each) for each in offers))
    assert notes[0] == kind
    failed = [each for each in offers if isinstance(each[-1], Exception)]
    assert any("ValueError: why" in note for note in notes) == bool(failed)


def test_where_no_offer_can_be_planned_the_error_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="why"):
        chosen(monkeypatch, Made("whole batch", 90, ValueError("why")))
    high = [Made(kind, 90, InfeasibleError("too high")) for kind in ("whole batch", "stages")]
    with pytest.raises(InfeasibleError, match="too high"):
        chosen(monkeypatch, *high)


class Offered(Made):
    """An offer of given points and peaks."""

    def __init__(self, points: Points, peaks: list[PointPeak | None]) -> None:
        super().__init__("whole batch", 100)
        self._points, self._peaks = points, peaks

    @property
    def points(self) -> Points:
        return self._points

    def peaks(self, _: int) -> list[PointPeak | None]:
        return self._peaks


def test_points_of_several_offers_are_compared_by_their_peaks() -> None:
    """A point of larger sum and less peak stays; one of less sum whose peak is beaten does not."""
    market = object.__new__(Market)
    market.request, market.failures = REQUEST, []
    high = Offered([(40, 90), (60, 70)], [PointPeak(77, "estimate"), PointPeak(90, "estimate")])
    low = Offered([(45, 91), (61, 69)], [PointPeak(47, "estimate"), PointPeak(91, "dry run")])
    unknown = Offered([(46, 95), (78, 75)], [None, None])
    market.offers = [high, low, unknown]
    points = [(p.memory, p.time, p.frontier, p.number) for p in market.frontier()]
    assert points == [
        (46, 95, 2, 0),
        (47, 91, 1, 0),
        (77, 90, 0, 0),
        (78, 75, 2, 1),
        (90, 70, 0, 1),
        (91, 69, 1, 1),
    ]
    assert [point.memory for point in market.frontier(usable_bytes=60)] == [46, 47, 77, 90]
    assert market.least_bytes == 40


def test_later_spaces_have_to_undercut_pipelines_too() -> None:
    market = object.__new__(Market)
    market.offers = [Made("whole batch", 100), Made("stages", 90), Made("branches", 95)]
    market.findings = Findings(price=100)
    market._know_fastest()
    assert market.findings.price == 90


@pytest.fixture
def request_() -> Request:
    """A step whose activations are larger than its weights, on two devices."""
    tf.reset_default_graph()
    tf.init(devices=2, cluster="2x8-v100")
    values = tf.placeholder(tf.float32, [None, 64])
    for layer in range(3):
        values = tf.tanh(tf.matmul(values, tf.get_variable(f"weights{layer}", [64, 64])))
    tf.train.MomentumOptimizer(0.1, 0.9).minimize(tf.reduce_mean(tf.square(values)))
    return replace(
        step_request(current(), PlanningOptions(batch_size=4096, pipeline=False)),
        dry_run_peak=None,
        stage_peak=None,
        rewrite=None,
        keep_less=True,
        accumulate=True,
        pipeline=PipelineNumbers(None, None, False),
    )


def test_a_profile_has_what_is_planned_on_each_number_of_devices(request_: Request) -> None:
    for point in profiling(request_, (1, 2)):
        plan = choose(replace(request_, devices=point.devices), "mini_time")
        assert point.time_seconds == plan.predicted_step_seconds
        assert point.memory_bytes == plan.memory_bytes


def test_less_kept_in_microbatches_is_searched_though_all_kept_fits(request_: Request) -> None:
    """Fewer microbatches that keep less may be faster than more that keep all."""
    least = Market(request_).offers[0].points[0][0]
    limit = int(0.3 * least * CLUSTER.safety_factor)
    offers = Market(replace(request_, memory_limit_bytes=limit)).offers
    counts = {
        keeps_less: [
            each.request.microbatches for each in offers if each.request.keeps_less == keeps_less
        ]
        for keeps_less in (False, True)
    }
    assert any(each.fitting for each in offers if not each.request.keeps_less)
    assert 1 < max(counts[True]) < max(counts[False])


def test_no_strategy_takes_less_memory_than_the_bound(request_: Request) -> None:
    for request in (request_, replace(request_, space=FRUGAL)):
        bound = frontier_search.least_bytes(request, 2)
        _, frontier = frontier_search.search_frontier(request, 2)
        assert 0.95 * frontier.memory[0] < bound <= frontier.memory[0]


@pytest.mark.parametrize(("share", "may_fit"), [(1.02, True), (0.9, False)])
def test_only_a_batch_at_once_that_may_fit_is_searched_to_the_closing_gap(
    monkeypatch: pytest.MonkeyPatch, request_: Request, share: float, may_fit: bool
) -> None:
    """The time for small gaps would be missing for the search of further spaces."""
    searches: list[Request] = []
    search = frontier_search._searched

    def searched(request: Request, *given: Any) -> Any:
        searches.append(request)
        return search(request, *given)

    monkeypatch.setattr(frontier_search, "_searched", searched)
    limit = share * frontier_search.least_bytes(request_, 2) * CLUSTER.safety_factor
    Market(replace(request_, memory_limit_bytes=int(limit)))
    whole, *others = searches
    assert whole.closes == may_fit
    assert (whole.epsilon == DEFAULT_LIMITS.coarse_gap) != may_fit
    assert others
    assert not any(request.closes for request in others)


def test_less_memory_brings_more_kinds_of_offers_and_a_frontier_that_has_them(
    request_: Request,
) -> None:
    ample = Market(request_)
    assert {offer.kind for offer in ample.offers} == {"whole batch"}
    limit = int(0.9 * ample.offers[0].points[0][0] * CLUSTER.safety_factor)
    market = Market(replace(request_, memory_limit_bytes=limit))
    assert {"whole batch", "microbatches"} <= {offer.kind for offer in market.offers}
    points = [(point.memory, point.time) for point in market.frontier()]
    assert points == sorted(points)
    assert [time for _, time in points] == sorted((time for _, time in points), reverse=True)
    every = [
        point
        for offer, peaks in zip(market.offers, market.peaks, strict=True)
        for point in memory_and_time(offer.points, peaks)
    ]
    assert all(any(m <= a and t <= b for m, t in points) for a, b in every)
    plan = choose(market.request, "mini_time")
    assert plan.memory_bytes * CLUSTER.safety_factor <= limit
    assert plan.points == sorted(plan.points)
    assert len(set(plan.frontier_ways)) > 1
