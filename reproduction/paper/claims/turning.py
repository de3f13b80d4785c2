"""The bandwidth of links with which a claim that does not hold would hold."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from reproduction.paper.claims.evidence import Claim, Evidence
from reproduction.paper.tasks import Task

__all__ = ["Turn", "tasks_of_failing", "turns"]


@dataclass(frozen=True, slots=True)
class Turn:
    """A simulated claim that does not hold, judged again with other links.

    Attributes:
        claim: the claim with the test bed's links.
        tried: for each factor of the links' bandwidth, ascending, the claim with these links.
    """

    claim: Claim
    tried: Mapping[float, Claim]

    @property
    def at(self) -> float | None:
        """The factor nearest to 1 at which the claim holds; None if it holds at none."""
        holding = (links for links, claim in self.tried.items() if claim.holds)
        return min(holding, key=_distance, default=None)

    @property
    def before(self) -> tuple[float, ...]:
        """The tried factor between 1 and `at` that is nearest to `at`, if there is one."""
        if self.at is None:
            return ()
        nearer = [
            links
            for links in self.tried
            if (links < 1) == (self.at < 1) and _distance(links) < _distance(self.at)
        ]
        return (max(nearer, key=_distance),) if nearer else ()

    def __str__(self) -> str:
        name = f"{self.claim.figure}, {self.claim.claim}"
        if self.at is None:
            far = max(self.tried, key=_distance)
            every = ", ".join(f"{links:g}" for links in self.tried)
            return (
                f"{name}: with none of {every} times the bandwidth; with {far:g} times "
                f"{self.tried[far].why.removesuffix('.')}."
            )
        least = "".join(f", not with {links:g}" for links in self.before)
        why = self.tried[self.at].why.removesuffix(".")
        return f"{name}: holds with {self.at:g} times the bandwidth{least}: {why}."


def _distance(links: float) -> float:
    return abs(math.log(links))


def tasks_of_failing(claims: Iterable[Claim], evidence: Evidence) -> tuple[Task, ...]:
    """The tasks by which simulated claims that do not hold are judged.

    Args:
        claims: the claims, judged one after the other by this evidence as they are asked for.
        evidence: the evidence; its record of tasks is emptied.
    """
    found: dict[Task, None] = {}
    evidence.asked.clear()
    for claim in claims:
        if _fails(claim):
            found |= dict.fromkeys(evidence.asked)
        evidence.asked.clear()
    return tuple(found)


def turns(claims: Iterable[Claim], again: Mapping[float, Iterable[Claim]]) -> Iterator[Turn]:
    """What other links make of each simulated claim that does not hold.

    Args:
        claims: all claims, with the test bed's links.
        again: for each factor of the links' bandwidth the same claims in the same order.
    """
    ordered = {links: list(again[links]) for links in sorted(again)}
    for number, claim in enumerate(claims):
        tried = {links: others[number] for links, others in ordered.items()}
        judged = {links: other for links, other in tried.items() if not other.lacks_data}
        if _fails(claim) and judged:
            yield Turn(claim, judged)


def _fails(claim: Claim) -> bool:
    return claim.by == "simulated" and not (claim.holds or claim.lacks_data)
