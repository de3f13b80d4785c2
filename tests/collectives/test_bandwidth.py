"""How collectives are timed: what empties the caches between two of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

import collectives
from collectives.bandwidth import chain, links, measure
from collectives.bandwidth.matrices import measured_bytes
from collectives.transport.in_process import InProcessTransport

Groups = tuple[tuple[int, ...], ...]


@pytest.fixture
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(measure, "_CACHES", tmp_path)
    return tmp_path


def cache(folder: Path, number: int, size: str) -> None:
    (folder / f"index{number}").mkdir()
    (folder / f"index{number}" / "size").write_text(size)


def test_the_operator_between_goes_through_the_last_cache(caches: Path) -> None:
    cache(caches, 0, "32K\n")
    cache(caches, 2, "1024K\n")
    cache(caches, 3, "16M\n")
    read_and_written = 2 * 4 * measure.between_elements(collectives.world())
    assert read_and_written == pytest.approx(2**24, rel=1e-3)


def test_a_machine_that_does_not_say_has_a_usual_cache(caches: Path) -> None:
    assert not list(caches.iterdir())
    assert measure.last_cache_bytes() == 2**25


def test_the_operator_between_is_of_bounded_size(caches: Path) -> None:
    cache(caches, 3, "1024M\n")
    assert 4 * measure.between_elements(collectives.world()) == 2**25


def test_a_collective_is_timed_at_the_bytes_that_divide() -> None:
    everyone = collectives.world()
    bytes_, found = measure.measure_collective(everyone, [[0]], "allreduce", 1000)
    assert bytes_ == measured_bytes(1000, 1) >= 1000
    assert found.seconds > 0
    assert found.runs >= 3


@pytest.mark.parametrize(
    ("hosts", "within", "across"),
    [
        ("aa", ((0, 1),), ()),
        ("ab", (), ((0, 1),)),
        ("aabb", ((0, 1), (2, 3)), ((0, 2), (1, 3))),
        ("abab", ((0, 2), (1, 3)), ((0, 1), (2, 3))),
        ("aaabb", ((0, 1), (3, 4)), ((0, 3), (1, 4))),
        ("aab", (), ((0, 2),)),
    ],
)
def test_links_are_measured_by_equal_groups(hosts: str, within: Groups, across: Groups) -> None:
    assert links.within_machines(hosts) == within
    assert links.across_machines(hosts) == across


def test_links_are_measured_by_ascending_sizes_while_there_is_time() -> None:
    everyone = collectives.world()
    found = links.measure_links(everyone, ((0,),), None, 0.0)
    assert [each.kind for each in found] == ["allreduce", "allgather", "alltoall"]
    found = links.measure_links(everyone, ((0,),), None, 2.0)
    sizes = [each.bytes for each in found if each.kind == "allreduce"]
    assert sizes == sorted(sizes)
    assert len(sizes) > 1
    assert all(each.seconds > 0 and not each.is_beside for each in found)


def timed_with(waits: list[float]) -> tuple[links.LinkTiming, int]:
    """The time of a small collective whose runs take these seconds, and the number of its runs."""
    alone = collectives.Group(InProcessTransport())
    measurement = links._Measurement(alone, ((0,),), None)
    measurement._carried["allreduce"] = False
    left = iter(waits)
    timing = measurement._timed(
        "allreduce", lambda _: measurement.after(0.0, next(left)), 4096, 0.0
    )
    return timing, len(waits) - len(list(left))


def test_other_load_does_not_count_in_the_time_of_a_link() -> None:
    waits = [0.09, 0.05, 0.003, 0.08, 0.002, 0.004, 0.07]  # the first run is not counted
    timing, runs = timed_with(waits)
    assert (timing.seconds, runs) == (0.002, 7)


def test_a_collective_that_turns_out_to_be_slow_leaves_its_time_to_larger_ones() -> None:
    timing, runs = timed_with([0.09, 0.07, 0.06, 0.05, 0.05, 0.05, 0.05])
    assert (timing.seconds, runs) == (0.06, 3)


def test_the_wait_for_ranks_that_begin_later_is_no_part_of_a_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(chain.time, "perf_counter", lambda: now[0])
    everyone = collectives.world()

    def wait() -> None:
        now[0] += 100.0

    monkeypatch.setattr(everyone, "barrier", wait)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        links = chain.Chain(lambda array, _: (array, 1.0), (4, 4), 16, 2, (0, 1))
        session.run(tf.compat.v1.global_variables_initializer())
        assert links.run(everyone, session, 2).tolist() == [1.0, 1.0]
        assert now == [100.0]
        assert links.seconds == 0.0
