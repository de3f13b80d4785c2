"""The slowdown of operators and collectives in training steps, compared with measurements alone.

Measured alone, an operator finds its data in the caches, where the run before left it, and so does
a collective. In a step both share caches, memory and the scheduler with the rest of the step. The
slowdown depends on the machine, the model and the size. It is measured in the steps of a few
strategies, and scales the times that were measured alone.

With the time p of a collective alone and its time x in steps, the factor of a kind at b bytes is

    (sum_i w_i x_i + c f) / (sum_i w_i p_i + c)

over its calls i along the same mesh axes. The weights are w_i = exp(-(log2(b_i / b) / h)**2 / 2) (a
kernel estimate of a ratio: Nadaraya, "On estimating regression", 1964; Watson, "Smooth regression
analysis", 1964). The prior f is the same estimate over calls along any axes. Its prior is the
estimate over calls of any kind, whose prior is the ratio of all calls. So a size that no step has
gets the ratio of all calls.

If ranks share cores, the time of a collective is the time that the cores spend in it
(`collectives.bandwidth.timing.seconds_taken`): a rank that waits leaves its core to another rank.
So is the time of operators, calls and whole steps.

Kernels on a part of the batch are mostly not measured. They take their share of the time of the
whole batch. In addition they read and write tensors that do not shrink with the batch: weights and
their gradients. The steps in microbatches give the time for each of these bytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, log2
from typing import Annotated, NamedTuple

import numpy as np
from annotated_types import Len
from pydantic import PlainSerializer

from tensoropt.converters import Natural, Positive
from tensoropt.parallel.resharding import LOCAL_KINDS, StepTraffic

__all__ = ["Factors", "MeasuredCall", "MeasuredStep", "factors", "usual_step"]

_WIDTH = 0.5
"""h, in powers of 2. Sizes a power of 2 apart have a weight of exp(-2)."""
_PRIOR = 0.01
"""c, as a fraction of the time of all calls."""
_RIDGE = 0.03
"""Weight of the ridge penalty, relative to the squares."""
_TINY = 1e-12
"""Added to the squares, so that they can be inverted."""
_PLACES = 2
"""Number of sizes for each power of 2 at which factors are computed."""

_TrafficInFile = Annotated[StepTraffic, PlainSerializer(StepTraffic._asdict)]
Alone = Callable[[StepTraffic], float]
"""Nanoseconds of a collective, measured alone."""


@dataclass(frozen=True, slots=True)
class MeasuredCall:
    """The reshardings of one step that have the same traffic.

    Attributes:
        moves: their collectives, in order.
        times: their number.
        nanoseconds: the time of all of them from the arrival of the last rank, without local
            copies; if ranks share cores, the time that the cores spend.
    """

    moves: Annotated[tuple[_TrafficInFile, ...], Len(1)]
    times: Positive
    nanoseconds: Positive


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """The usual step of one strategy.

    Attributes:
        graph: digest of the graph of the step.
        rest_nanoseconds: its time outside collectives that ranks wait for; if ranks share cores,
            or compute on one core each beside the network, the time that the cores spend.
        computing_nanoseconds: the prediction of this time for operators and the step's overhead,
            from measurements of each alone.
        calling_nanoseconds: the prediction of this time for calling collectives.
        calls: its reshardings.
        microbatches: number of microbatches.
        reread_bytes: bytes that its kernels read and write beyond their share of the measured ones.
    """

    graph: str
    rest_nanoseconds: Positive
    computing_nanoseconds: Natural
    calling_nanoseconds: Natural
    calls: tuple[MeasuredCall, ...]
    microbatches: Positive = 1
    reread_bytes: Natural = 0


class SlowedCall(NamedTuple):
    """The collectives of one kind, size and axes in steps.

    Attributes:
        kind, axes: their kind and axes, which are ascending.
        size: log2 of their bytes.
        in_steps: nanoseconds of all of them in steps.
        alone: nanoseconds of all of them, measured alone.
    """

    kind: str
    axes: tuple[int, ...]
    size: float
    in_steps: float
    alone: float


class Factors:
    """The factors by which times in steps exceed times alone; 1 if no step was measured.

    Args:
        computing: factor of operators and of the step's overhead.
        calling: factor of calling collectives.
        calls: the collectives of the measured steps.
        rereading: nanoseconds per byte that kernels on a part of the batch read or write beyond
            their share.

    Attributes:
        computing, calling, rereading: as given.
        overall: factor of all collectives together.
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
        self._factors: dict[tuple[str, tuple[int, ...], int], float] = {}

    def of(self, kind: str, axes: tuple[int, ...], bytes_: int) -> float:
        """Return the factor of a collective of ``bytes_`` bytes along ascending axes."""
        if not self._calls:
            return 1.0
        size = round(_PLACES * log2(max(bytes_, 1)))
        if (kind, axes, size) not in self._factors:
            of_kind = [call for call in self._calls if call.kind == kind]
            of_axes = [call for call in of_kind if call.axes == axes]
            factor = self.overall
            for calls in (self._calls, of_kind, of_axes):
                factor = self._estimate(size / _PLACES, calls, factor)
            self._factors[kind, axes, size] = factor
        return self._factors[kind, axes, size]

    def _estimate(self, size: float, calls: Sequence[SlowedCall], prior: float) -> float:
        """Return the ratio of calls near a size, pulled towards a prior ratio."""
        in_steps, alone = self._prior * prior, self._prior
        for call in calls:
            weight = exp(-(((call.size - size) / _WIDTH) ** 2) / 2)
            in_steps += weight * call.in_steps
            alone += weight * call.alone
        return in_steps / alone


def factors(steps: Sequence[MeasuredStep], alone: Alone) -> Factors:
    """Return the factors that measured steps give.

    The time of a resharding is divided among its collectives in proportion to their times alone.

    Args:
        steps: the measured steps.
        alone: gives the time of each collective alone.
    """
    in_microbatches = [step for step in steps if step.microbatches > 1]
    steps = [step for step in steps if step.microbatches == 1]
    if not steps:
        return Factors()
    in_steps: dict[tuple[str, tuple[int, ...], int], float] = defaultdict(float)
    times_alone: dict[tuple[str, tuple[int, ...], int], float] = defaultdict(float)
    for step in steps:
        for call in step.calls:
            times = [max(alone(move), 1.0) for move in call.moves]
            for move, time_alone in zip(call.moves, times, strict=True):
                key = move.kind, tuple(sorted(move.axes)), move.bytes
                in_steps[key] += call.nanoseconds * time_alone / sum(times)
                times_alone[key] += call.times * time_alone
    calls = [
        SlowedCall(kind, axes, log2(max(bytes_, 1)), nanoseconds, times_alone[kind, axes, bytes_])
        for (kind, axes, bytes_), nanoseconds in sorted(in_steps.items())
    ]
    computing, calling = _outside(steps)
    return Factors(computing, calling, calls, _rereading(in_microbatches, computing, calling))


def _rereading(in_microbatches: Sequence[MeasuredStep], computing: float, calling: float) -> float:
    """Return the nanoseconds per reread byte: the time that steps in microbatches take beyond the
    prediction of their operators and calls, divided by their reread bytes.
    """
    excess = bytes_ = 0.0
    for step in in_microbatches:
        computing_and_excess = step.rest_nanoseconds - calling * step.calling_nanoseconds
        excess += computing_and_excess - computing * step.computing_nanoseconds
        bytes_ += step.reread_bytes
    return max(excess, 0.0) / bytes_ if bytes_ else 0.0


def _outside(steps: Sequence[MeasuredStep]) -> tuple[float, float]:
    """Return the factors of computing and of calling collectives.

    They minimise the squares of relative errors, with a penalty on their distance from the ratio of
    all steps (ridge regression: Hoerl and Kennard, 1970). They lie between half and twice this
    ratio.
    """
    predicted = np.array(
        [[step.computing_nanoseconds, step.calling_nanoseconds] for step in steps], np.float64
    )
    measured = np.array([step.rest_nanoseconds for step in steps], np.float64)
    ratio = float(measured.sum() / max(1, predicted.sum()))
    relative = predicted / measured[:, None]
    squares = relative.T @ relative
    penalised = squares + np.diag(_RIDGE * np.diag(squares) + _TINY)
    distance = np.linalg.solve(penalised, relative.T @ (1 - ratio * relative.sum(1)))
    computing, calling = ratio + np.clip(distance, -ratio / 2, ratio)
    return float(computing), float(calling)


def usual_step(
    graph: str,
    seconds: float,
    computing_nanoseconds: int,
    calling_nanoseconds: int,
    calls: Sequence[tuple[tuple[StepTraffic, ...], float]],
    copies: Alone,
    microbatches: int = 1,
    reread_bytes: int = 0,
    hidden_share: float = 0.0,
    rest_seconds: float | None = None,
) -> MeasuredStep:
    """Return a step in the form of the profile.

    Args:
        graph: digest of its graph.
        seconds: its usual time; if ranks share cores, the time that the cores spend.
        computing_nanoseconds, calling_nanoseconds: predictions, see `MeasuredStep`.
        calls: the traffic of each resharding, and its usual seconds.
        copies: gives the nanoseconds of the local steps of a resharding.
        microbatches: number of microbatches.
        reread_bytes: see `MeasuredStep`.
        hidden_share: predicted share of the time in collectives beside which the rank computes.
        rest_seconds: its time outside collectives that ranks wait for, if it was measured.
    """
    times: dict[tuple[StepTraffic, ...], int] = defaultdict(int)
    nanoseconds: dict[tuple[StepTraffic, ...], float] = defaultdict(float)
    for moves, call_seconds in calls:
        collectives = tuple(move for move in moves if move.kind not in LOCAL_KINDS)
        local = sum(copies(move) for move in moves if move.kind in LOCAL_KINDS)
        times[collectives] += 1
        nanoseconds[collectives] += max(call_seconds * 1e9 - local, 1.0)
    if rest_seconds is None:
        rest_seconds = seconds - (1 - hidden_share) * sum(call_seconds for _, call_seconds in calls)
    return MeasuredStep(
        graph,
        max(1, round(rest_seconds * 1e9)),
        computing_nanoseconds,
        calling_nanoseconds,
        tuple(
            MeasuredCall(moves, times[moves], round(nanoseconds[moves])) for moves in sorted(times)
        ),
        microbatches,
        reread_bytes,
    )
