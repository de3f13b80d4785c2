"""Table 3: the time of the search."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks.paper.claims.evidence import TITLES, Claim, Evidence, Judgement, judged
from benchmarks.paper.tasks import Task, searches

__all__ = ["PAPER_SECONDS", "table_3_claims"]

_NEAR = 0.01  # a frontier that is exact within more was not found

PAPER_SECONDS = {
    "wide_resnet": (1292.0, 17432.0),
    "rnn": (0.28, 0.40),
    "transformer": (201.0, 1535.0),
}
"""Of FT-LDP in the paper's Table 3: on all threads of 48 cores, and without threads."""


def table_3_claims(evidence: Evidence) -> Iterator[Claim]:
    """Whether searches take no longer than the paper's."""
    for task in searches():
        if task.model in PAPER_SECONDS:
            yield judged("Table 3", _text(task), partial(_judge, evidence, task))


def _text(task: Task) -> str:
    return f"{TITLES[task.model]}: the frontier is found in {PAPER_SECONDS[task.model][0]:g} s"


def _judge(evidence: Evidence, task: Task) -> Judgement:
    result, (paper, _) = evidence[task], PAPER_SECONDS[task.model]
    found = result.within is not None and result.within <= _NEAR
    return found and result.seconds <= paper, (
        f"{result.seconds:.2f} s, {result.cpu_seconds:.2f} s of CPU; {result.operators} operators, "
        f"{result.configurations} configurations, {len(result.nanoseconds)} points, "
        f"{result.exactness}"
    )
