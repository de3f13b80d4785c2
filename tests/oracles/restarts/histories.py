"""The history of a training that survives restarts, beside that of an uninterrupted one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.oracles.restarts.training import EPOCHS, EXAMPLES

__all__ = ["History", "entries", "surviving"]


@dataclass(frozen=True, slots=True)
class History:
    """The steps that led to the last weights.

    Attributes:
        losses: the loss of each step.
        ids: the numbers of the examples of each step.
    """

    losses: tuple[float, ...]
    ids: tuple[tuple[int, ...], ...]

    @property
    def again_or_never(self) -> int:
        """The times that examples were trained too often, or too seldom."""
        counts = Counter(number for batch in self.ids for number in batch)
        return sum(abs(counts[number] - EPOCHS) for number in {*range(EXAMPLES), *counts})

    def error(self, truth: History) -> float:
        """The largest relative difference of a loss; infinite for another number of steps."""
        if len(self.losses) != len(truth.losses):
            return float("inf")
        pairs = zip(self.losses, truth.losses, strict=True)
        return max(abs(a - b) / abs(b) for a, b in pairs)


def entries(folder: Path) -> list[dict[str, Any]]:
    """The lines of a log; a line that a killed rank left unfinished is no step."""
    log = folder / "log"
    lines = log.read_text().splitlines(keepends=True) if log.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def surviving(logged: Sequence[dict[str, Any]]) -> History:
    """The history of a log: a start undoes all steps from the first one that it trains.

    Raises:
        ValueError: if a step is left out.
    """
    history: list[dict[str, Any]] = []
    start = -1
    for entry in logged:
        if entry["start"] != start:
            start = entry["start"]
            del history[entry["step"] :]
        if entry["step"] != len(history):
            raise ValueError(f"steps follow each other. Got {entry} after {len(history)} steps.")
        history.append(entry)
    return History(
        tuple(entry["loss"] for entry in history), tuple(tuple(entry["ids"]) for entry in history)
    )
