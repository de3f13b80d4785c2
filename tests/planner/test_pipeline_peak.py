"""Which pipeline is planned where peaks of memory are higher than what the search adds up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

import tensoropt as tf
from benchmarks.search.zoo.measuring import request_of_script
from tensoropt.cost.cluster import Kind, load_cluster
from tensoropt.cost.peak.estimated_peak import Peak
from tensoropt.errors import GraphError, InfeasibleError
from tensoropt.graph.operator import Graph
from tensoropt.plan import Plan
from tensoropt.plan.operator_plan import StagePlan
from tensoropt.planner.market import Market
from tensoropt.planner.plans.stage_peaks import UnmadePlan, fitting_plan, with_peaks
from tensoropt.planner.request import PipelineNumbers, Request

CLUSTER = load_cluster("2x8-v100")


def request(limit: int) -> Request:
    return Request(Graph({}), lambda _: CLUSTER, 3, (), {}, frozenset(), limit)


def plan(*memories: int) -> Plan:
    """A pipeline of stages whose memory adds up to these bytes."""
    most = max(memories)
    plain = Plan(
        *("mini_time", len(memories), (2,), CLUSTER, "0" * 64, (), {}, (), ()),
        time_nanoseconds=1,
        memory_bytes=most,
        memory_limit_bytes=None,
        frontier=((most, 1),),
        exact=False,
        executed_nanoseconds=1,
        network_nanoseconds=0,
    )
    stages = tuple(StagePlan((), (), 1, 1, 1, memory) for memory in memories)
    return replace(plain, stages=stages, schedule="1f1b")


def test_peaks_are_those_of_the_largest_stages() -> None:
    asked: list[int] = []

    def peak(planned: Plan, stage: int) -> Peak | str:
        asked.append(stage)
        return Peak(planned.stages[stage].memory_bytes + 50, 0, "")

    found = with_peaks(replace(request(150), stage_peak=peak), plan(95, 40, 100))
    assert asked == [2, 0]
    assert [stage.peak_bytes for stage in found.stages] == [145, None, 150]
    assert found.peak_bytes == 150
    too_high = with_peaks(replace(request(149), stage_peak=peak), plan(95, 40, 100))
    assert asked == [2, 0, 2]  # the first peak says that the plan does not fit
    assert too_high.peak_bytes == 150
    failed = with_peaks(replace(request(1), stage_peak=lambda *_: "why"), plan(100, 40))
    assert failed.peak_bytes is None
    assert "its dry run failed (why)" in failed.notes[-1]
    assert with_peaks(request(1), plan(100)) == plan(100)


def test_a_stage_fits_the_memory_of_its_devices() -> None:
    """The last of three devices has a quarter of the memory of the others."""
    of_kinds = replace(CLUSTER, kinds=(Kind("small", (2,), 1.0, 100),))
    unlike = replace(request(400), cluster_at=lambda _: of_kinds)
    assert unlike.limits(3) == (400, 400, 100)
    of_large = replace(plan(400, 380, 90), memory_bytes=100)
    peaks = iter([Peak(400, 0, ""), Peak(380, 0, ""), Peak(100, 0, ""), *3 * [Peak(101, 0, "")]])
    unlike = replace(unlike, stage_peak=lambda *_: next(peaks))
    assert fitting_plan(unlike, [made(with_peaks(unlike, of_large))]).peak_bytes == 100
    with pytest.raises(InfeasibleError, match="Got a peak of 101"):
        fitting_plan(unlike, [made(with_peaks(unlike, of_large))])


def made(found: Plan) -> UnmadePlan:
    return UnmadePlan(found.memory_bytes, lambda: found)


def test_stages_far_below_the_limit_are_not_rehearsed() -> None:
    """A step takes at most four times the sum; stages by number have no other plan to fall to."""
    asked: list[int] = []

    def peak(planned: Plan, stage: int) -> Peak | str:
        asked.append(stage)
        return Peak(110, 0, "")

    saving = replace(request(400), stage_peak=peak, saves_dry_runs=True)
    found = with_peaks(saving, plan(100, 40))
    assert (asked, found.peak_bytes, found.peak_is_estimated) == ([], 100, True)
    near = with_peaks(replace(saving, memory_limit_bytes=399), plan(100, 40))
    demanded = with_peaks(replace(saving, pipeline=PipelineNumbers(2)), plan(100, 40))
    assert asked == [0, 0]
    assert (near.peak_bytes, near.peak_is_estimated) == (110, False)
    assert demanded == near


def test_the_fastest_whose_peak_fits_is_planned() -> None:
    made: list[int] = []

    def candidate(memory: int, peak: int) -> UnmadePlan:
        def make() -> Plan:
            made.append(memory)
            if not peak:
                raise GraphError("no such pipeline")
            return replace(plan(memory), peak_bytes=peak)

        return UnmadePlan(memory, make)

    every = [candidate(m, p) for m, p in ((100, 150), (90, 140), (70, 0), (60, 110), (40, 99))]
    assert fitting_plan(request(160), every).memory_bytes == 100
    assert fitting_plan(request(111), every).memory_bytes == 60
    made.clear()
    assert fitting_plan(request(100), every).memory_bytes == 40
    assert made == [100, 40]
    with pytest.raises(InfeasibleError, match=r"Got a peak of 99 bytes"):
        fitting_plan(request(98), every)
    with pytest.raises(GraphError, match="no such pipeline"):
        fitting_plan(request(98), every[2:3])


def wide() -> None:
    """Dense layers whose weights are larger than a batch."""
    values = tf.placeholder(tf.float32, [None, 512])
    for layer in range(4):
        values = tf.tanh(tf.matmul(values, tf.get_variable(f"weights{layer}", [512, 512])))
    tf.train.MomentumOptimizer(0.1, 0.9).minimize(tf.reduce_mean(tf.square(values)))


def narrow_and_wide() -> None:
    """A large classifier behind small convolutions."""
    values = tf.placeholder(tf.float32, [None, 8, 8, 3])
    for layer in range(2):
        filters = tf.get_variable(f"filters{layer}", [3, 3, values.shape[-1], 8])
        values = tf.nn.relu(tf.nn.conv2d(values, filters, padding="SAME"))
    scores = tf.matmul(tf.reshape(values, [-1, 512]), tf.get_variable("scores", [512, 2048]))
    tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean(tf.square(scores)))


@pytest.mark.parametrize("build", [wide, narrow_and_wide])
@pytest.mark.parametrize("devices", [2, 4])
def test_a_later_microbatch_s_gradient_is_held_beside_the_sum(
    build: Callable[[], None], devices: int
) -> None:
    """Dry runs of stages in microbatches take about what the search adds up."""
    step = request_of_script(build, 64, load_cluster("8-v100"), devices)
    step = replace(step, pipeline=PipelineNumbers(2, 4), saves_dry_runs=False)
    (offer, *_) = Market(replace(step, stage_peak=None)).offers
    fastest = offer.plan_of(len(offer.points) - 1, "mini_time")
    largest = max(range(2), key=lambda number: fastest.stages[number].memory_bytes)
    assert step.stage_peak is not None
    peak = step.stage_peak(fastest, largest)
    assert isinstance(peak, Peak)
    assert peak.bytes == pytest.approx(fastest.stages[largest].memory_bytes, rel=0.1)
