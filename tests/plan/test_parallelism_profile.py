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
            way=st.text(),
            network_seconds=st.floats(0, 1e3),
            waiting_seconds=st.floats(0, 1e3),
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


def test_scaling_ends_where_added_devices_gain_less_than_half_of_their_share() -> None:
    weak = ParallelismProfile(
        (
            ProfilePoint(1, 0.100, 1, None, 16, network_seconds=0.0),
            ProfilePoint(2, 0.110, 1, None, 32, network_seconds=0.010),
            ProfilePoint(4, 0.200, 1, None, 64, network_seconds=0.095),
            ProfilePoint(8, 0.900, 1, None, 128, network_seconds=0.700),
        )
    )
    end = weak.scaling_end()
    assert end is not None
    assert (end.last.devices, end.next.devices, round(end.worth, 3)) == (2, 4, 0.1)
    assert end.cause == "collectives and messages"
    assert str(end).startswith("scaling ends at 2 devices: the next 2 gain 10% of the samples/s")
    assert ParallelismProfile(weak.points[:2]).scaling_end() is None
    strong = ParallelismProfile(
        (
            ProfilePoint(1, None, 1, None, 16),
            ProfilePoint(2, 0.100, 1, None, 16, network_seconds=0.010),
            ProfilePoint(4, 0.095, 1, None, 16, network_seconds=0.008, waiting_seconds=0.005),
        )
    )
    end = strong.scaling_end()
    assert end is not None
    assert (end.last.devices, end.cause) == (2, "operators that devices do not divide further")
    assert strong.scaling_end(2**30) is None
