"""Table 3: the time of the search, and of eliminations alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import inf

from reproduction.paper.claims.evidence import (
    TITLES,
    Claim,
    Evidence,
    Judgement,
    NoDataError,
    judged,
)
from reproduction.paper.tasks import NO_STRATEGY, Task, searches

__all__ = ["PAPER_SECONDS", "table_3_claims"]

MEASURED = "measured"
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
            yield judged("Table 3", _text(task), partial(_judge, evidence, task), MEASURED)
    for model in ELIMINATION_SECONDS:
        text = f"{TITLES[model]}: FT-LDP is faster than FT-Elimination"
        yield judged("Table 3", text, partial(_faster, evidence, model), MEASURED)


def _text(task: Task) -> str:
    return f"{TITLES[task.model]}: the frontier is found in {PAPER_SECONDS[task.model][0]:g} s"


def _faster(evidence: Evidence, model: str) -> Judgement:
    """FT-LDP as the paper prints it against FT-Elimination; our own search is told beside."""
    ours = evidence[Task(model)]
    paper = PAPER_SECONDS[model][0], ELIMINATION_SECONDS[model]
    seconds, told = [], []
    for algorithm, name in (("ft_ldp", "FT-LDP"), ("ft_elimination", "FT-Elimination")):
        task = Task(model, algorithm)
        found = evidence.get(task)
        if found is None and NO_STRATEGY not in evidence.why(task):
            raise NoDataError(f"{task.name} {evidence.why(task)}")
        seconds.append(inf if found is None else found.cpu_seconds)
        took = evidence.why(task) if found is None else f"takes {found.cpu_seconds:.2f} s of CPU"
        told.append(f"{name} {took}" + ("" if found is None else f" ({found.exactness})"))
    why = (
        f"{told[0]}, {told[1]}; our search takes {ours.cpu_seconds:.2f} s ({ours.exactness}); "
        f"paper: {paper[0]:,g} s and {paper[1]:,g} s"
    )
    return seconds[0] < seconds[1], why if min(seconds) < inf else f"undecided: {why}"


def _judge(evidence: Evidence, task: Task) -> Judgement:
    result, (paper, _) = evidence[task], PAPER_SECONDS[task.model]
    found = result.within is not None and result.within <= _NEAR
    return found and result.cpu_seconds <= paper, (
        f"{result.cpu_seconds:.2f} s of CPU on one core; {result.operators} operators, "
        f"{result.configurations} configurations, {len(result.nanoseconds)} points, "
        f"{result.exactness}"
    )
