"""A claim of the paper, and the data that it is judged by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.paper.curves import TurningPoint, turning_point
from benchmarks.paper.results import Result
from benchmarks.paper.tasks import Task

__all__ = [
    "TITLES",
    "Claim",
    "Evidence",
    "Judgement",
    "NoDataError",
    "gb",
    "is_sharp",
    "judged",
    "knee",
    "percent",
    "seconds",
]

TITLES = {
    "rnn": "RNN",
    "wide_resnet": "WideResNet",
    "transformer": "Transformer",
    "vgg16": "VGG16",
}

# A turning point is sharp if it is nearer to the right angle than to the chord, and if the time
# left of it is worth a word.
_SHARP_DEPTH = 0.5
_LEAST_RISE = 0.05

Judgement = tuple[bool, str]
"""Whether a claim holds, and why."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One statement of the paper, judged.

    Attributes:
        figure: "6", "7a", "8" or "Table 3".
        claim: what the paper says.
        holds: whether it does here.
        why: from the data.
    """

    figure: str
    claim: str
    holds: bool
    why: str

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


class NoDataError(LookupError):
    """There is no result for a task."""


class Evidence:
    """The results, by task.

    Args:
        results: those that there are.
        failures: why there are no others.
    """

    def __init__(self, results: Iterable[Result], failures: Mapping[Task, str]) -> None:
        self._results = {result.task: result for result in results}
        self._failures = failures

    def __getitem__(self, task: Task) -> Result:
        """The result of a task.

        Raises:
            NoDataError: there is none.
        """
        if task not in self._results:
            raise NoDataError(f"{task.name} {self.why(task)}")
        return self._results[task]

    def replaced(self, results: Mapping[Task, Result]) -> Evidence:
        """The same with other results of some tasks."""
        return Evidence({**self._results, **results}.values(), self._failures)

    def why(self, task: Task) -> str:
        """Why there is no result of a task."""
        return self._failures.get(task, "was not computed")

    def get(self, task: Task) -> Result | None:
        """The result of a task, None if there is none."""
        return self._results.get(task)


def judged(figure: str, claim: str, judge: Callable[[], Judgement]) -> Claim:
    """Judge a claim; without data it does not hold."""
    try:
        holds, why = judge()
    except NoDataError as error:
        holds, why = False, f"no data: {error}"
    return Claim(figure, claim, bool(holds), why)


def knee(result: Result) -> TurningPoint | None:
    """The turning point of a result's frontier."""
    return turning_point(result.memory_bytes, result.nanoseconds)


def is_sharp(turning: TurningPoint | None) -> bool:
    """Whether a frontier falls steeply to its turning point, and by much, and little after it."""
    return turning is not None and turning.depth >= _SHARP_DEPTH and turning.rise >= _LEAST_RISE


def gb(bytes_: int) -> str:
    """Of 2**30 bytes, as everywhere in the paper's tables."""
    return f"{bytes_ / 2**30:.4g} GB"


def seconds(nanoseconds: int) -> str:
    """To four digits."""
    return f"{nanoseconds / 1e9:.4g} s"


def percent(share: float) -> str:
    """To two digits, and to whole ones."""
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"
