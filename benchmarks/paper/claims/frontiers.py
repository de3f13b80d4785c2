"""Figure 6: cost frontiers of the models on 16 devices, of TensorOpt and other systems."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.paper.claims.evidence import (
    TITLES,
    Claim,
    Evidence,
    Judgement,
    gb,
    is_sharp,
    judged,
    knee,
    percent,
    seconds,
)
from benchmarks.paper.curves import times_above
from benchmarks.paper.results import Result
from benchmarks.paper.tasks import FIGURE_6_MODELS, Task

__all__ = ["figure_6_claims"]

_STABLE = 0.1  # computation varies by no more than this share
_SAME = 0.001  # times that are one
_LITTLE = 1.1  # times the least memory, or the least time
_TELLING = 0.1  # which copies are kept says nothing if a frontier may be farther off than this
_FAR = 2.0  # times our memory and our time


def figure_6_claims(evidence: Evidence) -> Iterator[Claim]:
    """What section 5.1 says of Figure 6."""
    for model in FIGURE_6_MODELS:
        yield _claim(evidence, model, "the frontier has a sharp turning point", _turning)
        if model == "vgg16":
            yield from _reuse_claims(evidence, model)
            continue
        yield from _computation_claims(evidence, model)
        yield from _reuse_claims(evidence, model)
        yield from _mesh_tensorflow_claims(evidence, model)
        yield from _point_claims(evidence, model)


def _claim(
    evidence: Evidence, model: str, text: str, judge: Callable[[Result], Judgement]
) -> Claim:
    """A claim about our frontier alone."""
    return judged("6", f"{TITLES[model]}: {text}", lambda: judge(evidence[Task(model)]))


def _turning(ours: Result) -> Judgement:
    turning = knee(ours)
    if turning is None:
        return False, f"no point of {len(ours.nanoseconds)} lies below the chord of the ends"
    where = gb(int(ours.memory_bytes[turning.index]))
    return is_sharp(turning), (
        f"at {where} (frontier {gb(int(ours.memory_bytes[0]))} to "
        f"{gb(int(ours.memory_bytes[-1]))}) the time has fallen by {percent(turning.rise)} of the "
        f"fastest, {percent(turning.fall)} more follow; depth below the chord {turning.depth:.2f} "
        "of 1"
    )


def _computation_claims(evidence: Evidence, model: str) -> Iterator[Claim]:
    if model == "wide_resnet":
        stable = "from the turning point on computation stays stable while network time falls"
        yield _claim(evidence, model, stable, lambda ours: _stable(_right_of_turning(ours), ours))
        redundant = "at little memory it computes redundantly"
        yield _claim(evidence, model, redundant, _redundant)
    else:
        stable = "computation stays stable while network time falls as memory grows"
        yield _claim(evidence, model, stable, lambda ours: _stable(slice(None), ours))


def _right_of_turning(ours: Result) -> slice:
    turning = knee(ours)
    return slice(turning.index if turning is not None else 0, None)


def _stable(points: slice, ours: Result) -> Judgement:
    """Computation within a tenth, and at least half of what is saved is network time."""
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
    return spread <= _STABLE and int(network[0] - network[-1]) >= saved / 2 > 0, why


def _redundant(ours: Result) -> Judgement:
    turning = knee(ours)
    place = turning.index if turning is not None else len(ours.nanoseconds) - 1
    least, later = (int(ours.computation_nanoseconds[n]) for n in (0, place))
    return least >= (1 + _STABLE) * later, (
        f"computation is {seconds(least)} at {gb(int(ours.memory_bytes[0]))} and {seconds(later)} "
        f"at the turning point, {gb(int(ours.memory_bytes[place]))}"
    )


def _reuse_claims(evidence: Evidence, model: str) -> Iterator[Claim]:
    """Of frontiers with a choice of copies to keep, in which they take memory."""
    task = Task(model, reuse=True)
    title = f"{TITLES[model]}, counting every copy that is kept"
    turning = f"{title}: the frontier has a sharp turning point"
    yield judged("6", turning, lambda: _turning(evidence[task]))
    reuse = f"{title}: reuse of tensors is what moves the time at the turning point"
    yield judged("6", reuse, lambda: _reuse(evidence[task]))


def _reuse(ours: Result) -> Judgement:
    """Left of the turning point copies are made again; at it at most half as many are, and at
    least half of what time falls there is resharding of tensors."""
    points = list(ours.kept.get("point", ()))
    again = np.zeros(len(points), dtype=np.int64)
    for kind, counts in ours.kept.items():
        if kind not in ("point", "both"):
            again += np.array(counts, dtype=np.int64)
    if not again.any():
        return False, (
            f"no strategy of the frontier ({ours.exactness}) makes a copy again in the backward "
            "pass: all keep both"
        )
    turning = knee(ours)
    place = turning.index if turning is not None else len(ours.nanoseconds) - 1
    near = int(np.searchsorted(points, place))
    near = min(near, len(points) - 1)
    moved = int(ours.tensors_nanoseconds[0] - ours.tensors_nanoseconds[place])
    fell = int(ours.nanoseconds[0] - ours.nanoseconds[place])
    near_exact = ours.within is not None and ours.within <= _TELLING
    doubt = "" if near_exact else f"too far from exact to tell ({ours.exactness}); "
    return bool(near_exact and 2 * again[near] <= again[0] and 2 * moved >= fell > 0), (
        f"{doubt}operators whose outputs are made or moved again: {again[0]} at the least memory, "
        f"{again[near]} at the turning point, {again[-1]} at the fastest; to the turning point "
        f"time falls by {seconds(fell)}, resharding of tensors by {seconds(moved)}"
    )


def _mesh_tensorflow_claims(evidence: Evidence, model: str) -> Iterator[Claim]:
    title = TITLES[model]
    ours, theirs = Task(model), Task(model, "mesh_tensorflow")

    def above() -> Judgement:
        one, other = evidence[ours], evidence[theirs]
        ratio = times_above(
            one.memory_bytes, one.nanoseconds, other.memory_bytes, other.nanoseconds
        )
        return bool((ratio > 1).all()), (
            f"at the memories of its {ratio.size} points it takes {ratio.min():.4g} to "
            f"{ratio.max():.4g} times our time"
        )

    def small_memory() -> Judgement:
        one, other = (int(evidence[task].memory_bytes[0]) for task in (ours, theirs))
        return other >= _LITTLE * one, f"it takes at least {gb(other)}, we {gb(one)}"

    def data_parallel() -> Judgement:
        other, point = evidence[theirs], evidence[Task(model, "data_parallel")]
        same = (
            len(other.nanoseconds) == 1
            and other.memory_bytes[0] == point.memory_bytes[0]
            and other.nanoseconds[0] == point.nanoseconds[0]
        )
        return bool(same), f"Mesh-TensorFlow: {_span(other)}; data parallelism: {_span(point)}"

    yield judged("6", f"{title}: Mesh-TensorFlow's frontier lies above ours", above)
    yield judged(
        "6", f"{title}: Mesh-TensorFlow cannot reach the small-memory region", small_memory
    )
    if model == "wide_resnet":
        yield judged(
            "6", f"{title}: Mesh-TensorFlow's frontier is the data-parallel point", data_parallel
        )


def _span(result: Result) -> str:
    first = f"{gb(int(result.memory_bytes[0]))}, {seconds(int(result.nanoseconds[0]))}"
    if len(result.nanoseconds) == 1:
        return first
    last = f"{gb(int(result.memory_bytes[-1]))}, {seconds(int(result.nanoseconds[-1]))}"
    return f"{len(result.nanoseconds)} points from {first} to {last}"


def _point_claims(evidence: Evidence, model: str) -> Iterator[Claim]:
    """Of the systems that find one strategy."""
    title = TITLES[model]

    def optcnn() -> Judgement:
        ours, point = evidence[Task(model)], evidence[Task(model, "optcnn")]
        fastest, time = int(ours.nanoseconds[-1]), int(point.nanoseconds[0])
        return abs(time - fastest) <= _SAME * fastest, (
            f"OptCNN: {_span(point)} ({point.exactness}); our fastest takes {seconds(fastest)} "
            f"with {gb(int(ours.memory_bytes[-1]))} ({ours.exactness})"
        )

    def tofu() -> Judgement:
        ours, point = evidence[Task(model)], evidence[Task(model, "tofu")]
        memory = int(point.memory_bytes[0]) / int(ours.memory_bytes[0])
        time = int(point.nanoseconds[0]) / int(ours.nanoseconds[-1])
        return memory <= _LITTLE and time >= _LITTLE, (
            f"ToFu: {_span(point)}: {memory:.2f} times our least memory, {time:.2f} times our "
            "least time"
        )

    def data_parallel() -> Judgement:
        ours, point = evidence[Task(model)], evidence[Task(model, "data_parallel")]
        memory = int(point.memory_bytes[0]) / int(ours.memory_bytes[-1])
        time = int(point.nanoseconds[0]) / int(ours.nanoseconds[-1])
        enough = _FAR if model == "rnn" else _LITTLE
        return memory >= enough and time >= enough, (
            f"data parallelism: {_span(point)}: {memory:.2f} times the memory and {time:.2f} times "
            "the time of our fastest"
        )

    yield judged("6", f"{title}: OptCNN is the fastest end of our frontier", optcnn)
    yield judged("6", f"{title}: ToFu sits at little memory and long time", tofu)
    far = "is far off" if model == "rnn" else "takes more memory and more time"
    yield judged("6", f"{title}: data parallelism {far}", data_parallel)
