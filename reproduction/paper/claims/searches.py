"""Table 3: the time of the search, and of eliminations alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from reproduction.paper.claims.evidence import (
    TITLES,
    Claim,
    Evidence,
    Judgement,
    NoDataError,
    judged,
)
from reproduction.paper.tasks import NO_STRATEGY, Task, eliminations, searches

__all__ = ["PAPER_SECONDS", "table_3_claims"]

_NEAR = 0.01  # a frontier with a larger gap counts as not found

PAPER_SECONDS = {
    "wide_resnet": (1292.0, 17432.0),
    "rnn": (0.28, 0.40),
    "transformer": (201.0, 1535.0),
}
"""Seconds of FT-LDP in the paper's Table 3: on all threads of 48 cores, and without threads."""
ELIMINATION_SECONDS = {"wide_resnet": 19666.0, "rnn": 1.78, "transformer": 3030.0}
"""Seconds of FT-Elimination in the paper's Table 3."""


def table_3_claims(evidence: Evidence) -> Iterator[Claim]:
    """The claims that searches take no longer than the paper's, and less time than eliminations
    alone."""
    for task in searches():
        if task.model in PAPER_SECONDS:
            yield judged("Table 3", _text(task), partial(_judge, evidence, task))
    for other in eliminations():
        text = f"{TITLES[other.model]}: FT-LDP is faster than FT-Elimination"
        yield judged("Table 3", text, partial(_faster, evidence, other))


def _text(task: Task) -> str:
    return f"{TITLES[task.model]}: the frontier is found in {PAPER_SECONDS[task.model][0]:g} s"


def _faster(evidence: Evidence, eliminated: Task) -> Judgement:
    ours, other = evidence[Task(eliminated.model)], evidence.get(eliminated)
    paper = PAPER_SECONDS[eliminated.model][0], ELIMINATION_SECONDS[eliminated.model]
    papers = f"paper: {paper[0]:,g} s and {paper[1]:,g} s"
    here = f"our search takes {ours.cpu_seconds:.2f} s of CPU ({ours.exactness})"
    if other is None:
        why = evidence.why(eliminated)
        if NO_STRATEGY not in why:
            raise NoDataError(f"{eliminated.name} {why}")
        return True, f"{here}; eliminations alone, the paper's Algorithm 2, {why}; {papers}"
    return ours.cpu_seconds < other.cpu_seconds, (
        f"{here}, eliminations alone, the paper's Algorithm 2, {other.cpu_seconds:.2f} s "
        f"({other.exactness}); {papers}"
    )


def _judge(evidence: Evidence, task: Task) -> Judgement:
    result, (paper, _) = evidence[task], PAPER_SECONDS[task.model]
    found = result.within is not None and result.within <= _NEAR
    return found and result.seconds <= paper, (
        f"{result.seconds:.2f} s, {result.cpu_seconds:.2f} s of CPU; {result.operators} operators, "
        f"{result.configurations} configurations, {len(result.nanoseconds)} points, "
        f"{result.exactness}"
    )
