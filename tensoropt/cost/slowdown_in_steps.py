"""How much longer operators and collectives take in steps of training than alone.

Measured alone, an operator finds in the caches what the one before it left there, and a collective
what was just made; in a step both share caches, memory and the scheduler with all that the step
does. By how much that slows them down, or down less, depends on the machine, the model and on
sizes: it is measured, in steps of a few strategies, and what was measured alone is scaled by it.

With p the time of a collective alone and x that in steps, the factor for a kind at b bytes is

    (sum_i w_i x_i + c f) / (sum_i w_i p_i + c)

over its calls i along the same mesh axes, with w_i = exp(-(log2(b_i / b) / h)**2 / 2) (a kernel
estimate of a ratio: Nadaraya, "On estimating regression", 1964; Watson, "Smooth regression
analysis", 1964), where f is the same along any axes, drawn to the same of any kind, drawn to the
ratio of all calls. So the factor of a size that steps never move is that of all.

Where ranks share cores, the time of a collective is what the cores spend in it
(`collectives.bandwidth.shared_seconds`): a rank that waits leaves its core to another.

Kernels of a part of the batch are mostly not measured. They take their share of the time of those
of the whole batch, and besides what they read and write however small the part: weights, and
gradients by them. A step in microbatches tells what a byte of that takes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log2
from typing import Any, NamedTuple

import numpy as np

from tensoropt.parallel.resharding import LOCAL_KINDS, StepTraffic

__all__ = ["Factors", "MeasuredCall", "MeasuredStep", "factors", "usual_step"]

_WIDTH = 0.5
"""h: sizes a power of 2 apart hardly tell of each other."""
_PRIOR = 0.01
"""c, as a share of the time of all calls."""
_RIDGE = 0.03
_TINY = 1e-12
_PLACES = 2
"""Factors are looked up at so many sizes for each power of 2."""

Alone = Callable[[StepTraffic], float]
"""Nanoseconds of a collective, measured alone."""


@dataclass(frozen=True, slots=True)
class MeasuredCall:
    """Reshardings of one step that move the same.

    Attributes:
        moves: their collectives, one after another.
        times: how many there are.
        nanoseconds: of all of them, from when the last rank arrives, without local copies; where
            ranks share cores, what these spend.
    """

    moves: tuple[StepTraffic, ...]
    times: int
    nanoseconds: int

    def to_json(self) -> dict[str, Any]:
        """The call as JSON values."""
        moves = [{**move._asdict(), "axes": list(move.axes)} for move in self.moves]
        return {"moves": moves, "times": self.times, "nanoseconds": self.nanoseconds}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> MeasuredCall:
        """The inverse of `to_json`."""
        moves = (StepTraffic(**{**move, "axes": tuple(move["axes"])}) for move in values["moves"])
        return cls(tuple(moves), values["times"], values["nanoseconds"])


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """The usual step of one strategy.

    Attributes:
        graph: digest of the graph whose step it is.
        rest_nanoseconds: of it, outside collectives.
        computing_nanoseconds: of that, operators and what a step takes besides, by measurements of
            each alone.
        calling_nanoseconds: and calling collectives, likewise.
        calls: its reshardings.
        microbatches: in which it computes its gradients, one after another.
        reread_bytes: that its kernels read and write beyond their share of what measured ones do.
    """

    graph: str
    rest_nanoseconds: int
    computing_nanoseconds: int
    calling_nanoseconds: int
    calls: tuple[MeasuredCall, ...]
    microbatches: int = 1
    reread_bytes: int = 0

    def to_json(self) -> dict[str, Any]:
        """The step as JSON values."""
        own = {name: getattr(self, name) for name in self.__slots__}
        return {**own, "calls": [call.to_json() for call in self.calls]}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> MeasuredStep:
        """The inverse of `to_json`."""
        calls = tuple(map(MeasuredCall.from_json, values["calls"]))
        return cls(**{**values, "calls": calls})


class SlowedCall(NamedTuple):
    """Collectives of one kind, axes and size in steps.

    Attributes:
        kind, axes: which; axes ascending.
        size: log2 of its bytes.
        in_steps, alone: nanoseconds of all of them.
    """

    kind: str
    axes: tuple[int, ...]
    size: float
    in_steps: float
    alone: float


class Factors:
    """By how much what takes p alone takes longer in steps; 1 where no step was measured.

    Args:
        computing: of operators, and what a step takes besides.
        calling: of calling collectives.
        calls: per collective what steps tell of it.
        rereading: nanoseconds of a byte that kernels of a part of the batch read or write beyond
            their share.

    Attributes:
        computing, calling, rereading: as given.
        overall: of all collectives together.
    """

    def __init__(
        self,
        computing: float = 1.0,
        calling: float = 1.0,
        calls: Sequence[SlowedCall] = (),
        rereading: float = 0.0,
    ) -> None:
        self.rereading = rereading
        self.computing = computing
        self.calling = calling
        self._calls = calls
        alone = sum(call.alone for call in calls)
        self.overall = sum(call.in_steps for call in calls) / alone if alone else 1.0
        self._prior = _PRIOR * alone
        self._known: dict[tuple[str, tuple[int, ...], int], float] = {}

    def of(self, kind: str, axes: tuple[int, ...], bytes_: int) -> float:
        """The factor of a collective of so many bytes along ascending axes."""
        if not self._calls:
            return 1.0
        size = round(_PLACES * log2(max(bytes_, 1)))
        if (kind, axes, size) not in self._known:
            of_kind = [call for call in self._calls if call.kind == kind]
            own = [call for call in of_kind if call.axes == axes]
            factor = self.overall
            for calls in (self._calls, of_kind, own):
                factor = self._near(size / _PLACES, calls, factor)
            self._known[kind, axes, size] = factor
        return self._known[kind, axes, size]

    def _near(self, place: float, calls: Sequence[SlowedCall], prior: float) -> float:
        """The ratio of the calls of about a size, drawn to another one."""
        real, alone = self._prior * prior, self._prior
        for call in calls:
            weight = exp(-(((call.size - place) / _WIDTH) ** 2) / 2)
            real += weight * call.in_steps
            alone += weight * call.alone
        return real / alone


def factors(steps: Sequence[MeasuredStep], alone: Alone) -> Factors:
    """What steps tell.

    A resharding of several collectives is shared among them as they take alone.

    Args:
        steps: measured steps.
        alone: what each collective takes alone.
    """
    in_parts = [step for step in steps if step.microbatches > 1]
    steps = [step for step in steps if step.microbatches == 1]
    if not steps:
        return Factors()
    real: dict[tuple[str, tuple[int, ...], int], float] = defaultdict(float)
    expected: dict[tuple[str, tuple[int, ...], int], float] = defaultdict(float)
    for step in steps:
        for call in step.calls:
            times = [max(alone(move), 1.0) for move in call.moves]
            for move, own in zip(call.moves, times, strict=True):
                key = move.kind, tuple(sorted(move.axes)), move.bytes
                real[key] += call.nanoseconds * own / sum(times)
                expected[key] += call.times * own
    calls = [
        SlowedCall(kind, axes, log2(max(bytes_, 1)), nanoseconds, expected[kind, axes, bytes_])
        for (kind, axes, bytes_), nanoseconds in sorted(real.items())
    ]
    computing, calling = _outside(steps)
    return Factors(computing, calling, calls, _rereading(in_parts, computing, calling))


def _rereading(in_parts: Sequence[MeasuredStep], computing: float, calling: float) -> float:
    """Nanoseconds of a reread byte: what steps in microbatches take longer than their operators
    would otherwise, for all of their bytes.

    Args:
        in_parts: steps in several microbatches.
        computing, calling: of other steps, see `Factors`.
    """
    longer = bytes_ = 0.0
    for step in in_parts:
        whole = step.rest_nanoseconds - calling * step.calling_nanoseconds
        longer += whole - computing * step.computing_nanoseconds
        bytes_ += step.reread_bytes
    return max(longer, 0.0) / bytes_ if bytes_ else 0.0


def _outside(steps: Sequence[MeasuredStep]) -> tuple[float, float]:
    """The factors of computing and of calling collectives.

    They are those of the least squares of errors as shares of the time, drawn to the ratio of all
    steps (ridge regression: Hoerl and Kennard, 1970) and nowhere far from it.

    Args:
        steps: measured steps.
    """
    parts = np.array(
        [[step.computing_nanoseconds, step.calling_nanoseconds] for step in steps], np.float64
    )
    whole = np.array([step.rest_nanoseconds for step in steps], np.float64)
    ratio = float(whole.sum() / max(1, parts.sum()))
    shares = parts / whole[:, None]
    squares = shares.T @ shares
    held = squares + np.diag(_RIDGE * np.diag(squares) + _TINY)
    apart = np.linalg.solve(held, shares.T @ (1 - ratio * shares.sum(1)))
    found = ratio + np.clip(apart, -ratio / 2, ratio)
    return float(found[0]), float(found[1])


def usual_step(
    graph: str,
    seconds: float,
    computing_nanoseconds: int,
    calling_nanoseconds: int,
    calls: Sequence[tuple[tuple[StepTraffic, ...], float]],
    copies: Alone,
    microbatches: int = 1,
    reread_bytes: int = 0,
) -> MeasuredStep:
    """A step for the profile.

    Args:
        graph: digest of its graph.
        seconds: that it usually takes.
        computing_nanoseconds, calling_nanoseconds: predicted, see `MeasuredStep`.
        calls: what each resharding moves, and its usual seconds.
        copies: nanoseconds of the local steps that are part of a resharding.
        microbatches: in which it computes its gradients.
        reread_bytes: see `MeasuredStep`.
    """
    times: dict[tuple[StepTraffic, ...], int] = defaultdict(int)
    nanoseconds: dict[tuple[StepTraffic, ...], float] = defaultdict(float)
    for moves, own in calls:
        collectives = tuple(move for move in moves if move.kind not in LOCAL_KINDS)
        local = sum(copies(move) for move in moves if move.kind in LOCAL_KINDS)
        times[collectives] += 1
        nanoseconds[collectives] += max(own * 1e9 - local, 1.0)
    network = sum(own for _, own in calls)
    return MeasuredStep(
        graph,
        max(1, round((seconds - network) * 1e9)),
        computing_nanoseconds,
        calling_nanoseconds,
        tuple(
            MeasuredCall(moves, times[moves], round(nanoseconds[moves])) for moves in sorted(times)
        ),
        microbatches,
        reread_bytes,
    )
