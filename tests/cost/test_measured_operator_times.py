"""Times of operators from measured ones: exact, scaled, calibrated."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensoropt.converters import from_values, to_values
from tensoropt.cost.cluster import load_cluster
from tensoropt.cost.measured_operator_times import (
    MeasuredOperator,
    OperatorTimes,
    calibrated,
    work_key,
)
from tensoropt.cost.model import MeasuredCostModel
from tensoropt.cost.operator_time import OperatorTime, OperatorWork, roofline_time

DEVICE = replace(
    load_cluster("8-v100").device,
    peak_flops_per_second=(("default", 1e9),),
    efficiency=(("contraction", 0.5), ("default", 0.1)),
    memory_bandwidth_bytes_per_second=1e9,
    operator_overhead_seconds=1e-6,
)
SMALL = OperatorWork(
    *("contraction", "float32", 10**6, 10**4, 2, "MatMul"),
    attributes=(("transpose_a", "False"),),
    local_shapes=((100, 50), (50, 100)),
)
LARGE = replace(SMALL, flops=10**8, bytes=10**6, local_shapes=((1000, 50), (50, 1000)))
MEASURED = (
    MeasuredOperator(SMALL, 3_001_000, 5_001_000),
    MeasuredOperator(LARGE, 100_001_000, 200_001_000),
)


def test_what_was_measured_is_exact() -> None:
    times = OperatorTimes(MEASURED, DEVICE)
    assert times.time(SMALL) == OperatorTime(3_001_000, 5_001_000)
    assert SMALL in times
    model = MeasuredCostModel(load_cluster("8-v100"), load_cluster("8-v100").mesh(2), times)
    assert model.operator_nanoseconds(LARGE) == MEASURED[1].time


def test_the_nearest_of_the_type_is_scaled_without_its_overhead() -> None:
    times = OperatorTimes(MEASURED, DEVICE)
    twice = replace(SMALL, flops=2 * 10**6, bytes=2 * 10**4, local_shapes=((200, 50), (50, 100)))
    assert twice not in times
    assert times.time(twice) == OperatorTime(6_001_000, 10_001_000)
    near_large = replace(LARGE, flops=10**8 // 2, local_shapes=((500, 50), (50, 1000)))
    assert times.time(near_large) == OperatorTime(50_001_000, 100_001_000)
    one_gradient = replace(twice, differentiated_inputs=1)
    assert times.time(one_gradient).backward == pytest.approx(5_001_000, rel=1e-3)
    assert times.time(replace(twice, differentiated_inputs=0)).backward == 0


def test_what_a_part_reads_beyond_its_share_takes_longer() -> None:
    times = OperatorTimes(MEASURED, DEVICE, rereading=2.0)
    fourth = replace(SMALL, flops=10**6 // 4, bytes=10**4 // 4, local_shapes=((25, 50), (50, 100)))
    assert times.time(fourth) == OperatorTime(751_000, 1_251_000)
    weights = replace(fourth, bytes=10**4 // 4 + 5000)
    as_before = OperatorTimes(MEASURED, DEVICE).time(weights)
    again = 2 * 5000
    assert times.time(weights).forward == as_before.forward + again
    assert times.time(weights).backward == as_before.backward + 2 * again
    twice = replace(SMALL, flops=2 * 10**6, bytes=2 * 10**4, local_shapes=((200, 50), (50, 100)))
    assert times.time(twice) == OperatorTime(6_001_000, 10_001_000)
    assert times.time(SMALL) == MEASURED[0].time


def test_another_type_or_dtype_is_guessed() -> None:
    times = OperatorTimes(MEASURED, DEVICE)
    for other in (replace(SMALL, operator="Conv2D"), replace(SMALL, dtype="float64")):
        assert times.time(other) == roofline_time(DEVICE, other)


def test_rates_come_from_large_measurements() -> None:
    stream = OperatorWork("elementwise", "float32", 10**6, 8 * 10**6, 1, "Relu")
    measured = (*MEASURED, MeasuredOperator(stream, 4_000_500, 1))
    device = calibrated(DEVICE, measured, dispatch=500)
    assert device.flops_per_second("contraction", "float32") == pytest.approx(
        (10**6 / 3_000_500e-9 + 10**8 / 100_000_500e-9) / 2
    )
    assert device.memory_bandwidth_bytes_per_second == pytest.approx(2e9)
    assert device.operator_overhead_seconds == 500e-9
    assert device.flops_per_second("contraction", "float64") == 0.5e9
    assert calibrated(DEVICE, (), dispatch=1000) == DEVICE


def test_measurements_travel_as_json() -> None:
    for each in MEASURED:
        assert from_values(MeasuredOperator, to_values(each), "", "") == each
    assert work_key(SMALL) != work_key(LARGE)
