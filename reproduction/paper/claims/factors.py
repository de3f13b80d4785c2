"""Figure 7: the Transformer's frontier at several sizes and on several networks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from reproduction.paper.claims.evidence import (
    SIGNIFICANT,
    Claim,
    Evidence,
    Judgement,
    at_least,
    at_most,
    decided,
    gb,
    is_sharp,
    judged,
    knee,
    seconds,
)
from reproduction.paper.curves import times_above
from reproduction.paper.results import Result
from reproduction.paper.tasks import FIGURE_7_NETWORKS, FIGURE_7_SIZES, Task

__all__ = ["figure_7_claims"]

_SAME_MEMORY = 0.05
_ABOUT_HALF = (0.4, 0.6)


def figure_7_claims(evidence: Evidence) -> Iterator[Claim]:
    """The claims of section 5.1 about Figure 7."""

    def sizes() -> Judgement:
        results = [evidence[Task(model)] for model in FIGURE_7_SIZES]
        places = [_place(result) for result in results]
        grows = [(b[0] > a[0], abs(b[0] / a[0] - 1)) for a, b in pairwise(places)]
        names = [f"{result.parameters_gb:.3g} GB" for result in results]
        return decided(_turns(names, places), grows, *results)

    def networks() -> Judgement:
        results = [evidence[task] for task in _networks()]
        places = [_place(result) for result in results]
        memories = [memory for memory, *_ in places]
        same = at_most(max(memories) / min(memories), 1 + _SAME_MEMORY)
        return decided(_turns(list(FIGURE_7_NETWORKS.values()), places), [same], *results)

    def half() -> Judgement:
        results = [evidence[task] for task in _networks()]
        slow, _, fast = (_place(result) for result in results)
        ratio = fast[1] / slow[1]
        why = (
            f"4x RDMA takes {ratio:.2f} of the time of no RDMA at the turning points; of "
            f"{seconds(slow[1])} without RDMA {seconds(slow[3])} are computation, of "
            f"{seconds(fast[1])} with 4x RDMA {seconds(fast[3])}"
        )
        half = at_least(ratio, _ABOUT_HALF[0]), at_most(ratio, _ABOUT_HALF[1])
        return decided(why, half, *results)

    yield judged("7a", "the turning point moves with the model's size", sizes)
    yield judged("7b", "the turning point's memory is the same on every network", networks)
    yield judged("7b", "at the turning point 4x RDMA takes about half the time of no RDMA", half)
    yield judged(
        "7c",
        "on one machine NVLink beats PCIe significantly at every memory",
        lambda: _single(evidence),
    )


def _networks() -> list[Task]:
    return [Task("transformer", cluster=cluster) for cluster in FIGURE_7_NETWORKS]


def _place(result: Result) -> tuple[int, int, bool, int]:
    """Memory and time of the turning point, whether it is sharp, and its computation.

    If the frontier has no turning point, its fastest point takes its place.
    """
    turning = knee(result)
    index = turning.index if turning is not None else len(result.nanoseconds) - 1
    return (
        int(result.memory_bytes[index]),
        int(result.nanoseconds[index]),
        is_sharp(result),
        int(result.computation_nanoseconds[index]),
    )


def _turns(names: list[str], places: list[tuple[int, int, bool, int]]) -> str:
    return "; ".join(
        f"{name}: {gb(memory)}, {seconds(time)}" + ("" if sharp else " (not sharp)")
        for name, (memory, time, sharp, _) in zip(names, places, strict=True)
    )


def _single(evidence: Evidence) -> Judgement:
    fast = evidence[Task("transformer", cluster="8-v100", devices=8)]
    slow = evidence[Task("transformer", cluster="8-v100-pcie", devices=8)]
    memory = np.unique(np.concatenate([fast.memory_bytes, slow.memory_bytes]))
    memory = memory[memory >= slow.memory_bytes[0]]
    time = slow.nanoseconds[np.searchsorted(slow.memory_bytes, memory, side="right") - 1]
    ratio = times_above(fast.memory_bytes, fast.nanoseconds, memory, time)
    reach = float(slow.memory_bytes[0] / fast.memory_bytes[0])
    why = (
        f"with as much memory PCIe takes {ratio.min():.3g} to {ratio.max():.3g} times the time of "
        "NVLink"
    )
    significantly = at_least(float(ratio.min()), SIGNIFICANT)
    reaches = reach >= 1, math.inf if reach == 1 else abs(reach - 1)
    return decided(why, [significantly, reaches], fast, slow)
