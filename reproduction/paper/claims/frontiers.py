"""Figure 6: cost frontiers of the models on 16 devices, of TensorOpt and other systems."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from reproduction.paper.claims.evidence import (
    SIGNIFICANT,
    TITLES,
    Claim,
    Evidence,
    Judgement,
    at_least,
    at_most,
    decided,
    gb,
    judged,
    knee,
    percent,
    seconds,
    sharpness,
)
from reproduction.paper.curves import times_above
from reproduction.paper.results import Result
from reproduction.paper.tasks import FIGURE_6_MODELS, Task

__all__ = ["figure_6_claims"]

_STABLE = 0.1  # largest share by which computation varies
_SAME = 0.001  # largest share by which equal times differ
_LITTLE = 1.1  # factor of the least memory, or of the least time
_FAR = 2.0  # factor of our memory and of our time


def figure_6_claims(evidence: Evidence) -> Iterator[Claim]:
    """The claims of section 5.1 about Figure 6."""
    for model in FIGURE_6_MODELS:
        ours = Task(model)
        yield _claim(evidence, ours, "the frontier has a sharp turning point", _turning)
        if model != "vgg16":
            yield from _computation_claims(evidence, ours)
        yield from _reuse_claims(evidence, model)
        if model != "vgg16":
            yield from _mesh_tensorflow_claims(evidence, ours)
            yield from _point_claims(evidence, ours)
    layers = Task("rnn", layers=True)
    yield _claim(evidence, layers, "the frontier has a sharp turning point", _turning)
    yield from _computation_claims(evidence, layers)
    yield from _mesh_tensorflow_claims(evidence, layers)
    yield from _point_claims(evidence, layers)
    yield from _data_parallel_claims(evidence, Task("wide_resnet_50"))


def _title(task: Task) -> str:
    return f"{TITLES[task.model]}, layers as operators" if task.layers else TITLES[task.model]


def _claim(
    evidence: Evidence, task: Task, text: str, judge: Callable[[Result], Judgement]
) -> Claim:
    """A claim about our frontier alone."""
    return judged("6", f"{_title(task)}: {text}", lambda: judge(evidence[task]))


def _turning(ours: Result) -> Judgement:
    turning = knee(ours)
    if turning is None:
        return False, f"no point of {len(ours.nanoseconds)} lies below the chord of the ends"
    where = gb(int(ours.memory_bytes[turning.index]))
    why = (
        f"at {where} (frontier {gb(int(ours.memory_bytes[0]))} to "
        f"{gb(int(ours.memory_bytes[-1]))}) the time has fallen by {percent(turning.rise)} of the "
        f"fastest, {percent(turning.fall)} more follow; depth below the chord {turning.depth:.2f} "
        "of 1"
    )
    return decided(why, sharpness(ours, turning), ours)


def _computation_claims(evidence: Evidence, task: Task) -> Iterator[Claim]:
    if task.model == "wide_resnet":
        stable = "from the turning point on computation stays stable while network time falls"
        yield _claim(evidence, task, stable, lambda ours: _stable(_right_of_turning(ours), ours))
        redundant = "at little memory it computes redundantly"
        yield _claim(evidence, task, redundant, _redundant)
    else:
        stable = "computation stays stable while network time falls as memory grows"
        yield _claim(evidence, task, stable, lambda ours: _stable(slice(None), ours))


def _right_of_turning(ours: Result) -> slice:
    turning = knee(ours)
    return slice(turning.index if turning is not None else 0, None)


def _stable(points: slice, ours: Result) -> Judgement:
    """Computation varies by a tenth at most, and network time is at least half of the saved
    time."""
    computation = ours.computation_nanoseconds[points]
    network = ours.network_nanoseconds[points]
    time = ours.nanoseconds[points]
    spread = float(computation.max() - computation.min()) / float(computation.min())
    saved = int(time[0] - time[-1])
    why = (
        f"computation is {seconds(int(computation.min()))} to {seconds(int(computation.max()))} "
        f"(spread {percent(spread)}); network time goes from {seconds(int(network[0]))} to "
        f"{seconds(int(network[-1]))} while the whole falls by {seconds(saved)}"
    )
    fell = (int(network[0] - network[-1]) - saved / 2) / int(time[0])
    return decided(
        why,
        [at_most(1 + spread, 1 + _STABLE), (fell >= 0, abs(fell)), (saved > 0, saved / time[0])],
        ours,
    )


def _redundant(ours: Result) -> Judgement:
    turning = knee(ours)
    place = turning.index if turning is not None else len(ours.nanoseconds) - 1
    least, later = (int(ours.computation_nanoseconds[n]) for n in (0, place))
    why = (
        f"computation is {seconds(least)} at {gb(int(ours.memory_bytes[0]))} and {seconds(later)} "
        f"at the turning point, {gb(int(ours.memory_bytes[place]))}"
    )
    return decided(why, [at_least(least / later, 1 + _STABLE)], ours)


def _reuse_claims(evidence: Evidence, model: str) -> Iterator[Claim]:
    """The claims about frontiers with tensor reuse, where the kept copies take memory."""
    task = Task(model, reuse=True)
    title = f"{TITLES[model]}, counting every copy that is kept"
    turning = f"{title}: the frontier has a sharp turning point"
    yield judged("6", turning, lambda: _turning(evidence[task]))
    reuse = f"{title}: reuse of tensors is what moves the time at the turning point"
    yield judged("6", reuse, lambda: _reuse(evidence[task]))


def _reuse(ours: Result) -> Judgement:
    """Left of the turning point, dropped copies are made again. Beside the same strategies that
    keep both copies, at most half as many bytes are dropped at the turning point, and making them
    again is at least half of the time that falls up to there."""
    again = ours.made_again
    dropped, made = (np.array(again.get(name, [0])) for name in ("dropped_bytes", "nanoseconds"))
    if not dropped.any():
        return False, (
            f"no strategy of the frontier ({ours.exactness}) drops a copy: all keep both"
        )
    turning = knee(ours)
    place = turning.index if turning is not None else len(ours.nanoseconds) - 1
    near = min(int(np.searchsorted(again["point"], place)), len(dropped) - 1)
    less, fell = int(made[0] - made[near]), int(ours.nanoseconds[0] - ours.nanoseconds[place])
    at = (0, near, len(dropped) - 1)
    bytes_ = ", ".join(gb(int(dropped[each])) for each in at)
    times = ", ".join(seconds(int(made[each])) for each in at)
    why = (
        f"at the least memory, the turning point and the fastest, dropped copies are {bytes_} of "
        f"a device, and making them again takes {times}; to the turning point time falls by "
        f"{seconds(fell)}"
    )
    begun = int(ours.nanoseconds[0])
    halved = bool(dropped[0] and 2 * dropped[near] <= dropped[0])
    half = abs(2 * int(dropped[near]) - int(dropped[0])) / max(int(dropped.max()), 1)
    tensors = (2 * less >= fell, abs(2 * less - fell) / (2 * begun))
    return decided(why, [(halved, half), tensors, (fell > 0, fell / begun)], ours)


def _mesh_tensorflow_claims(evidence: Evidence, ours: Task) -> Iterator[Claim]:
    theirs = replace(ours, algorithm="mesh_tensorflow")
    free = evidence.get(replace(ours, algorithm="mesh_tensorflow_free"))

    def ratios() -> npt.NDArray[np.float64]:
        return _times_ours(evidence[ours], evidence[theirs])

    def why(ratio: npt.NDArray[np.float64]) -> str:
        told = (
            f"at the memories of its {ratio.size} points it takes {ratio.min():.4g} to "
            f"{ratio.max():.4g} times our time, {np.median(ratio):.4g} at the median"
        )
        if free is not None:
            other = _times_ours(evidence[ours], free)
            told += f"; with a name for each layer {np.median(other):.4g} at the median"
        return told

    def above() -> Judgement:
        ratio = ratios()
        least = float(ratio.min())
        # An exact frontier would be as fast or faster than an inexact one.
        doubted = theirs if least > 1 else ours
        return decided(why(ratio), [(least > 1, abs(least - 1))], evidence[doubted])

    def significantly() -> Judgement:
        ratio = ratios()
        median = float(np.median(ratio))
        doubted = theirs if median >= SIGNIFICANT else ours
        return decided(why(ratio), [at_least(median, SIGNIFICANT)], evidence[doubted])

    def small_memory() -> Judgement:
        results = evidence[ours], evidence[theirs]
        one, other = (int(result.memory_bytes[0]) for result in results)
        told = f"it takes at least {gb(other)}, we {gb(one)}"
        if free is not None:
            told += f"; with a name for each layer {gb(int(free.memory_bytes[0]))}"
        return decided(told, [at_least(other / one, SIGNIFICANT)], *results)

    title = _title(ours)
    yield judged("6", f"{title}: Mesh-TensorFlow's frontier lies above ours", above)
    yield judged("6", f"{title}: Mesh-TensorFlow takes significantly longer", significantly)
    yield judged("6", f"{title}: Mesh-TensorFlow takes significantly more memory", small_memory)
    if ours.model == "wide_resnet":
        yield from _data_parallel_claims(evidence, ours)


def _times_ours(ours: Result, other: Result) -> npt.NDArray[np.float64]:
    """The time of each point of another frontier, as a multiple of ours at the same memory."""
    return times_above(ours.memory_bytes, ours.nanoseconds, other.memory_bytes, other.nanoseconds)


def _data_parallel_claims(evidence: Evidence, ours: Task) -> Iterator[Claim]:
    """The claims about the model whose initial layers dominate, according to the paper."""

    def data_parallel() -> Judgement:
        other, point = (
            evidence[replace(ours, algorithm=each)] for each in ("mesh_tensorflow", "data_parallel")
        )
        same = (
            len(other.nanoseconds) == 1
            and other.memory_bytes[0] == point.memory_bytes[0]
            and other.nanoseconds[0] == point.nanoseconds[0]
        )
        told = f"Mesh-TensorFlow: {_span(other)}; data parallelism: {_span(point)}"
        free = evidence.get(replace(ours, algorithm="mesh_tensorflow_free"))
        told += "" if free is None else f"; with a name for each layer: {_span(free)}"
        return decided(told, [(bool(same), math.inf)], other)

    title = f"{_title(ours)}: Mesh-TensorFlow's frontier is the data-parallel point"
    yield judged("6", title, data_parallel)


def _span(result: Result) -> str:
    first = f"{gb(int(result.memory_bytes[0]))}, {seconds(int(result.nanoseconds[0]))}"
    if len(result.nanoseconds) == 1:
        return first
    last = f"{gb(int(result.memory_bytes[-1]))}, {seconds(int(result.nanoseconds[-1]))}"
    return f"{len(result.nanoseconds)} points from {first} to {last}"


def _point_claims(evidence: Evidence, task: Task) -> Iterator[Claim]:
    """The claims about systems that find one strategy."""

    def at(algorithm: str) -> tuple[Result, Result]:
        return evidence[task], evidence[replace(task, algorithm=algorithm)]

    def optcnn() -> Judgement:
        ours, point = at("optcnn")
        fastest, time = int(ours.nanoseconds[-1]), int(point.nanoseconds[0])
        off = abs(time / fastest - 1)
        told = (
            f"OptCNN: {_span(point)} ({point.exactness}); our fastest takes {seconds(fastest)} "
            f"with {gb(int(ours.memory_bytes[-1]))} ({ours.exactness})"
        )
        # OptCNN's time shows how far our fastest strategy is from exact.
        return decided(told, [(off <= _SAME, abs(off - _SAME))], point)

    def tofu() -> Judgement:
        ours, point = at("tofu")
        memory = int(point.memory_bytes[0]) / int(ours.memory_bytes[0])
        time = int(point.nanoseconds[0]) / int(ours.nanoseconds[-1])
        told = (
            f"ToFu: {_span(point)}: {memory:.2f} times our least memory, {time:.2f} times our "
            "least time"
        )
        return decided(told, [at_most(memory, _LITTLE), at_least(time, _LITTLE)], ours, point)

    def data_parallel() -> Judgement:
        ours, point = at("data_parallel")
        memory = int(point.memory_bytes[0]) / int(ours.memory_bytes[-1])
        time = int(point.nanoseconds[0]) / int(ours.nanoseconds[-1])
        enough = _FAR if task.model == "rnn" else _LITTLE
        told = (
            f"data parallelism: {_span(point)}: {memory:.2f} times the memory and {time:.2f} times "
            "the time of our fastest"
        )
        return decided(told, [at_least(memory, enough), at_least(time, enough)], ours, point)

    title = _title(task)
    yield judged("6", f"{title}: OptCNN is the fastest end of our frontier", optcnn)
    yield judged("6", f"{title}: ToFu sits at little memory and long time", tofu)
    far = "is far off" if task.model == "rnn" else "takes more memory and more time"
    yield judged("6", f"{title}: data parallelism {far}", data_parallel)
