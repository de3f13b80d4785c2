"""Profiles over numbers of devices, as text and as JSON."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from tensoropt.plan import ParallelismProfile
from tensoropt.plan.parallelism_profile import ProfilePoint


@given(
    points=st.lists(
        st.builds(
            ProfilePoint,
            devices=st.integers(1, 64),
            time_seconds=st.none() | st.floats(0, 1e3),
            memory_bytes=st.integers(0, 2**62),
            memory_limit_bytes=st.none() | st.integers(0, 2**62),
            batch_size=st.none() | st.integers(1, 2**20),
            device_hour_cost=st.none() | st.floats(1e-3, 1e3),
            is_measured=st.booleans(),
        )
    )
)
def test_a_profile_comes_back_from_json(points: list[ProfilePoint]) -> None:
    profile = ParallelismProfile(tuple(points))
    again = ParallelismProfile.from_json(json.loads(json.dumps(profile.to_json())))
    assert again == profile
    assert list(again) == points
    assert len(again) == len(points)
    assert [point.fits for point in again] == [p.time_seconds is not None for p in points]


def test_a_profile_says_its_points() -> None:
    points = (
        ProfilePoint(1, None, 3 * 2**20, 2**30, 8, 3.6),
        ProfilePoint(2, 0.00125, 2**20, 2**30),
        ProfilePoint(2, 0.00125, 2**20, 2**30, 8),
        ProfilePoint(2, 0.00125, 2**20, 2**30, 8, 3.6),
    )
    assert str(ParallelismProfile(points)).splitlines() == [
        "1 device: does not fit, 3.0 MiB a device",
        "2 devices: 1.250 ms a step, 1.0 MiB a device",
        "2 devices: 1.250 ms a step, 1.0 MiB a device, 312.5 device-seconds for a million samples",
        "2 devices: 1.250 ms a step, 1.0 MiB a device, 0.3125 for a million samples",
    ]
    assert points[1].samples_per_second is None
    assert points[3].samples_per_second == 6400
