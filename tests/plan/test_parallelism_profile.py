"""Profiles over numbers of devices, as text and as JSON."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from tensoropt.plan import ParallelismProfile
from tensoropt.plan.parallelism_profile import (
    ProfilePoint,
    ScalingEnd,
)


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
            least_seconds=st.none() | st.floats(0, 1e3),
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


def test_an_end_is_certain_only_if_no_longer_search_could_deny_it() -> None:
    def end(*least: float | None) -> ScalingEnd | None:
        times = (0.100, 0.095)
        points = (
            ProfilePoint(2 << n, time, 1, None, 16, least_seconds=bound)
            for n, (time, bound) in enumerate(zip(times, least, strict=True))
        )
        return ParallelismProfile(tuple(points)).scaling_end()

    final = end(None, None)
    assert final is not None
    assert final.is_certain
    open_end = end(None, 0.060)  # 40 ms less would gain 67 %
    assert open_end is not None
    assert not open_end.is_certain
    assert open_end.worth == final.worth
    assert str(open_end).startswith("scaling may end at 2 devices: the next 2 gain 5%")
    assert str(open_end).endswith(
        "Time ended the searches on 4 devices; more of it could show 5% to 67%"
    )
    near = end(None, 0.090)  # 10 ms less would gain 11 %
    assert near is not None
    assert near.is_certain
    # The step on 2 devices could be shorter, so that the gain of 4 may be less than it seems.
    going_on = ParallelismProfile(
        (
            ProfilePoint(2, 0.100, 1, None, 16, least_seconds=0.060),
            ProfilePoint(4, 0.060, 1, None, 16),
        )
    ).scaling_end()
    assert going_on is not None
    assert not going_on.is_certain
    assert going_on.worth > 0.5
