"""Predicted against measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensoropt.plan import Plan
from tensoropt.plan.comparison import Comparison, ExecutedSteps, Quantity, compare
from tests.plan.small_plans import a_plan


def of(*step_ms: float, predicted_ms: float = 10.0, is_measured: bool = True) -> Comparison:
    measured = ExecutedSteps()
    for step in step_ms:
        measured.step_seconds.append(step / 1e3)
        measured.network_seconds.append(step / 4e3)
        measured.peak_bytes.append(None)
    return compare(predicted(predicted_ms, is_measured), measured)


def predicted(step_ms: float, is_measured: bool = True) -> Plan:
    """A plan with a quarter of its step in collectives, and a peak of 1 MiB."""
    plan = a_plan()
    overhead = 1e-9 if is_measured else 0.0
    return replace(
        plan,
        cluster=replace(plan.cluster, step_overhead_seconds=overhead),
        executed_nanoseconds=round(step_ms * 1e6),
        network_nanoseconds=round(step_ms * 1e6 / 4),
        peak_bytes=2**20,
    )


def test_the_first_step_does_not_count_and_the_median_does() -> None:
    comparison = of(5000, 11, 10, 12)
    assert comparison.steps == 3
    time, network, peak = comparison.quantities
    assert (time.predicted, time.measured) == pytest.approx((10, 11))
    assert (network.predicted, network.measured) == pytest.approx((2.5, 2.75))
    assert time.error == pytest.approx(1 / 11)
    assert (peak.predicted, peak.measured, peak.error) == (1.0, None, None)
    assert comparison.advice == ""
    assert "step time: predicted 10.000 ms (-9.1%), measured 11.000 ms" in str(comparison)
    assert "peak memory: predicted 1.000 MiB, measured -" in str(comparison)


def test_what_is_off_by_more_than_a_fifth_says_what_to_do() -> None:
    comparison = of(0, 20)
    assert comparison.advice.startswith("step time and network time were predicted with an error")
    assert "tensoropt profile SCRIPT` again" in str(comparison).splitlines()[-1]
    assert "again" not in of(0, 20, is_measured=False).advice
    assert of(0, 12.4).advice == ""
    assert of(0, 12.6).advice != ""
    assert of(0, 8.0).advice != ""


@pytest.mark.parametrize(
    ("measured_mib", "remedy"), [(2, "memory_limit_bytes"), (0.5, ""), (1, "")]
)
def test_a_profile_is_no_remedy_for_memory(measured_mib: float, remedy: str) -> None:
    peak = round(measured_mib * 2**20)
    measured = ExecutedSteps([0.0, 0.01], [0.0, 0.0025], [None, peak])
    advice = compare(predicted(10.0), measured).advice
    assert remedy in advice
    assert bool(advice) == bool(remedy)
    assert "tensoropt profile" not in advice


def test_an_estimate_is_off_beyond_its_margin() -> None:
    def peak(measured: float) -> Quantity:
        return Quantity("peak memory", "MiB", 10.0, measured, margin=1.3)

    assert [peak(measured).is_off for measured in (8.4, 16.2, 16.3)] == [False, False, True]
    assert str(peak(12.5)) == ("peak memory: estimated 10.000 MiB (-20.0%), measured 12.500 MiB")


def test_before_any_step_nothing_is_off() -> None:
    for comparison in (of(), of(10)):
        assert comparison.steps == 0
        assert not any(quantity.is_off for quantity in comparison.quantities)
    assert Quantity("network", "ms", 1.0, 0.0).error is None
