"""Figures of the executed strategies of one model: errors, ranks, and what measured points beat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from benchmarks.measured_frontier.strategies import BASELINES, Measured
from tensoropt.plan.compared_numbers import SAME_TIME

__all__ = ["excess", "figures"]


def figures(rows: Sequence[Measured]) -> dict[str, Any]:
    """Return the figures of the last line.

    A baseline is dominated if some measured point of the frontier takes at most 3 % more time and
    3 % more memory: predictions and measurements do not resolve less (`SAME_TIME`).
    """
    excesses = {name: excess(rows, name) for name in BASELINES}
    return {
        "points": sum(row.point is not None for row in rows),
        "strategies": len(rows),
        "spearman": _ranks(rows, lambda row: (row.predicted_ms, row.measured_ms)),
        "spearman_at_most": _ranks_at_most(rows),
        "spearman_peak": _ranks(rows, lambda row: (row.predicted_bytes, row.measured_bytes)),
        **_order(rows),
        "time_error": _error(rows, lambda row: (row.predicted_ms, row.measured_ms)),
        "peak_error": _error(rows, lambda row: (row.predicted_bytes, row.measured_bytes)),
        "repeatable": round(float(np.median([r.spread_ms / r.measured_ms for r in rows])), 4),
        "dominates_measured": {name: over <= SAME_TIME for name, over in excesses.items()},
        "excess_measured": {name: round(over, 4) for name, over in excesses.items()},
    }


def excess(rows: Sequence[Measured], baseline: str) -> float:
    """Return by what share the best point of the frontier exceeds a baseline, all measured.

    The excess of a point is the larger of those of its time and its memory; negative if the point
    is better in both. It is 0 if the baseline is itself a point.
    """
    (other,) = (row for row in rows if baseline in row.baselines)
    if other.point is not None:
        return 0.0
    return min(
        max(row.measured_ms / other.measured_ms, row.measured_bytes / other.measured_bytes) - 1
        for row in rows
        if row.point is not None
    )


_Pair = Callable[[Measured], tuple[float, float]]
"""Returns the predicted and the measured value of a strategy."""


def _ranks(rows: Sequence[Measured], pair: _Pair) -> float:
    predicted, measured = np.array([pair(row) for row in rows]).T
    return round(float(spearmanr(predicted, measured).statistic), 4)


def _ranks_at_most(rows: Sequence[Measured]) -> float | None:
    """Return the rank correlation of right predictions with measurements as noisy as these.

    It is the root of the reliability of the measured medians. That is r' = 2 r / (1 + r), where r
    is the rank correlation of medians over half the turns with those over the other half (Spearman,
    1910; Brown, 1910): the mean over all ways to halve the turns. None if there is one turn.
    """
    turns = np.array([row.turns_ms for row in rows])
    count = turns.shape[1]
    if count < 2:
        return None
    found = []
    for half in map(list, combinations(range(count), count // 2)):
        one, other = turns[:, half], np.delete(turns, half, axis=1)
        found.append(spearmanr(np.median(one, 1), np.median(other, 1)).statistic)
    mean = max(float(np.mean(found)), 0.0)
    return round(float(np.sqrt(2 * mean / (1 + mean))), 4)


def _order(rows: Sequence[Measured]) -> dict[str, Any]:
    """Return how many pairs of strategies measurements tell apart, and the order of these.

    Two strategies are told apart if their measured times differ by more than both spreads together,
    and by more than `SAME_TIME`. The order is (right - wrong) / (right + wrong) over the pairs in
    the predicted order or not: 1 for all right (Goodman and Kruskal, 1954); None without pairs.
    """
    pairs = list(combinations(sorted(rows, key=lambda row: row.measured_ms), 2))
    apart = [
        np.sign(slow.predicted_ms - fast.predicted_ms)
        for fast, slow in pairs
        if slow.measured_ms - fast.measured_ms
        > max(fast.spread_ms + slow.spread_ms, SAME_TIME * fast.measured_ms)
    ]
    order = round(float(np.sum(apart) / max(np.count_nonzero(apart), 1)), 4) if apart else None
    return {"pairs": len(pairs), "pairs_told_apart": len(apart), "order_told_apart": order}


def _error(rows: Sequence[Measured], pair: _Pair) -> float:
    predicted, measured = np.array([pair(row) for row in rows]).T
    return round(float(np.median(np.abs(predicted - measured) / measured)), 4)
