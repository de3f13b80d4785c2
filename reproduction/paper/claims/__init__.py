"""The paper's claims about Figures 6 to 8 and Tables 3 and 4, judged from the data."""

from __future__ import annotations

from collections.abc import Iterator

from reproduction.paper.claims.absolute import absolute_claims
from reproduction.paper.claims.evidence import Claim, Evidence, NoDataError
from reproduction.paper.claims.factors import figure_7_claims
from reproduction.paper.claims.frontiers import figure_6_claims
from reproduction.paper.claims.parallelism import figure_8_claims, shortest
from reproduction.paper.claims.searches import PAPER_SECONDS, table_3_claims
from reproduction.paper.claims.turning import Turn, tasks_of_failing, turns

__all__ = [
    "PAPER_SECONDS",
    "Claim",
    "Evidence",
    "NoDataError",
    "Turn",
    "all_claims",
    "shortest",
    "tasks_of_failing",
    "turns",
]


def all_claims(evidence: Evidence) -> Iterator[Claim]:
    """All claims, in the order of the paper."""
    yield from figure_6_claims(evidence)
    yield from figure_7_claims(evidence)
    yield from figure_8_claims(evidence)
    yield from table_3_claims(evidence)
    yield from absolute_claims(evidence)
