"""A claim of the paper, and the data that decide it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from reproduction.paper.results import Result
from reproduction.paper.tasks import Task
from tensoropt.planner.offers.points import TurningPoint, turning_point

__all__ = [
    "SIGNIFICANT",
    "TITLES",
    "Claim",
    "Condition",
    "Evidence",
    "Judgement",
    "NoDataError",
    "at_least",
    "at_most",
    "decided",
    "gb",
    "is_sharp",
    "judged",
    "knee",
    "percent",
    "seconds",
    "sharpness",
]

TITLES = {
    "rnn": "RNN",
    "wide_resnet": "WideResNet",
    "wide_resnet_50": "WideResNet-50",
    "transformer": "Transformer",
    "vgg16": "VGG16",
}

# A turning point is sharp if it is nearer to the right angle than to the chord, and if time and
# memory change considerably to its left.
_SHARP_DEPTH = 0.5
_LEAST_RISE = 0.05
SIGNIFICANT = 1.25
"""Factor from which a difference counts as significant."""

_NO_DATA = "no data: "

Judgement = tuple[bool, str]
"""Whether a claim holds, and the reason."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One judged claim of the paper.

    Attributes:
        figure: "6", "7a", "8" or "Table 3".
        claim: the paper's statement.
        holds: whether the claim holds here.
        why: the reason, from the data.
        by: "measured" if what the claim is about ran here, "simulated" if it was priced.
    """

    figure: str
    claim: str
    holds: bool
    why: str
    by: str = "simulated"

    @property
    def lacks_data(self) -> bool:
        """Whether the claim was not judged because a result is missing."""
        return self.why.startswith(_NO_DATA)

    def to_json(self) -> dict[str, Any]:
        """The claim as JSON values."""
        return asdict(self)


class NoDataError(LookupError):
    """A task has no result."""


class Evidence:
    """The results by task.

    Attributes:
        asked: the tasks whose results were asked for.
    """

    def __init__(self, results: Iterable[Result], failures: Mapping[Task, str]) -> None:
        self._results = {result.task: result for result in results}
        self._failures = failures
        self.asked: dict[Task, None] = {}

    def __getitem__(self, task: Task) -> Result:
        """The result of a task.

        Raises:
            NoDataError: if there is no result.
        """
        self.asked[task] = None
        if task not in self._results:
            raise NoDataError(f"{task.name} {self.why(task)}")
        return self._results[task]

    def why(self, task: Task) -> str:
        """The reason why a task has no result."""
        return self._failures.get(task, "was not computed")

    def get(self, task: Task) -> Result | None:
        """The result of a task, None if there is none."""
        self.asked[task] = None
        return self._results.get(task)


def judged(figure: str, claim: str, judge: Callable[[], Judgement], by: str = "simulated") -> Claim:
    """Judge a claim; without data it does not hold."""
    try:
        holds, why = judge()
    except NoDataError as error:
        holds, why = False, f"{_NO_DATA}{error}"
    return Claim(figure, claim, bool(holds), why, by)


Condition = tuple[bool, float]
"""Whether something holds, and by which share times or memories would have to change for the
opposite."""


def decided(why: str, conditions: Iterable[Condition], *results: Result) -> Judgement:
    """Whether all conditions hold, if the results are exact enough to tell.

    A claim holds by the smallest of its margins, and fails by the largest margin of a condition
    that does not hold. If the proven gap of a result is as large as that margin, the claim is
    undecided and does not hold.
    """
    conditions = list(conditions)
    holds = all(met for met, _ in conditions)
    missed = [margin for met, margin in conditions if not met]
    margin = max(missed) if missed else min(margin for _, margin in conditions)
    gaps = (0.0 if each.exact else math.inf if each.within is None else each.within
            for each in results)  # fmt: skip
    gap = max(gaps, default=0.0)
    if gap > 0 and gap >= margin:
        known = "unknown" if gap == math.inf else percent(gap)
        lean = "holds" if holds else "fails"
        return False, (
            f"undecided: {lean} by {percent(margin)}, the gap to exact is {known}; {why}"
        )
    return holds, why


def at_least(value: float, limit: float) -> Condition:
    """The condition that a ratio, or a share of the larger value, reaches a limit."""
    return value >= limit, abs(value - limit) / max(value, limit)


def at_most(value: float, limit: float) -> Condition:
    """The condition that a ratio does not exceed a limit."""
    return value <= limit, abs(value - limit) / max(value, limit)


def knee(result: Result) -> TurningPoint | None:
    """The turning point of a result's frontier."""
    return turning_point(result.memory_bytes, result.nanoseconds)


def sharpness(result: Result, turning: TurningPoint) -> list[Condition]:
    """Whether a frontier falls steeply to its turning point, by much time over much memory, and
    little after it."""
    time, memory = result.nanoseconds, result.memory_bytes
    range_ = float(time[0] - time[-1]) / float(time[0])
    return [
        (turning.depth >= _SHARP_DEPTH, abs(turning.depth - _SHARP_DEPTH) * range_),
        at_least(1 + turning.rise, 1 + _LEAST_RISE),
        at_least(float(memory[turning.index] / memory[0]), 1 + _LEAST_RISE),
    ]


def is_sharp(result: Result) -> bool:
    """`sharpness` without regard to the gap of the frontier."""
    turning = knee(result)
    return turning is not None and all(met for met, _ in sharpness(result, turning))


def gb(bytes_: int) -> str:
    """The text of a number of bytes in GB of 2**30 bytes, as in the paper's tables."""
    return f"{bytes_ / 2**30:.4g} GB"


def seconds(nanoseconds: int) -> str:
    """The text of a time in seconds with four digits."""
    return f"{nanoseconds / 1e9:.4g} s"


def percent(share: float) -> str:
    """The text of a share in per cent, with two digits or as an integer."""
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"
