"""Choices that follow from the facts of a job are the same on every rank."""

from __future__ import annotations

from fractions import Fraction

import pytest

from collectives.facts import JobFacts, RankFacts
from collectives.group import job_facts, world


def job(*ranks: tuple[str, set[int]]) -> JobFacts:
    return JobFacts(tuple(RankFacts(host, frozenset(cores)) for host, cores in ranks))


@pytest.mark.parametrize(
    ("cores", "ranks", "share"), [(2, 4, Fraction(1, 2)), (4, 4, 1), (49, 49, 1), (8, 4, 2)]
)
def test_ranks_that_are_not_bound_share_all_cores(
    cores: int, ranks: int, share: Fraction | int
) -> None:
    facts = job(*[("a", set(range(cores)))] * ranks)
    assert {facts.core_share(rank) for rank in range(ranks)} == {share}
    assert facts.overlaps == (share >= 2)
    assert facts.shares_cores(range(ranks)) == (share < 1)


def test_the_rank_with_the_fewest_cores_decides_for_all() -> None:
    facts = job(("a", {0, 1}), ("a", {2}), ("a", {3, 4}), ("a", {4, 5}))
    assert [facts.core_share(rank) for rank in range(4)] == [2, 1, Fraction(3, 2), Fraction(3, 2)]
    assert not facts.overlaps
    assert not facts.shares_cores(range(4))
    halves = job(("a", {0, 1}), ("a", {2}), ("a", {2}))
    assert [halves.has_core(rank) for rank in range(3)] == [True, False, False]
    assert halves.shares_cores(range(3))
    assert not halves.shares_cores([0])


def test_machines_of_two_kinds_agree_on_buckets_and_each_on_its_window() -> None:
    large = [("large", set(range(16)))] * 4
    small = [("small", set(range(2)))] * 4
    facts = job(*large, *small)
    assert [facts.core_share(rank) for rank in (0, 7)] == [4, Fraction(1, 2)]
    assert job(*large).overlaps
    assert not facts.overlaps
    assert not facts.shares_cores(range(4))
    assert facts.shares_cores(range(4, 8))


def test_a_process_without_a_launcher_has_its_own_cores() -> None:
    facts = job_facts()
    assert [rank.host for rank in facts.ranks] == list(world().hosts)
    assert facts.core_share(0) == len(facts.ranks[0].cores) >= 1
