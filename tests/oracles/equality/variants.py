"""Variants of a random strategy that should lower its peak memory, and the results of measuring
them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = [
    "KINDS_OF_PEAKS",
    "LOSS_BAR",
    "SAVING_BAR",
    "VARIANTS",
    "peak_failures",
    "peak_report",
    "savings",
]

VARIANTS: dict[str, tuple[bool, tuple[str, ...]]] = {
    "whole": (False, ()),
    "pieces": (True, ()),
    "pieces, before": (True, ("before",)),
    "pieces, after": (True, ("after",)),
    "pieces, recomputed": (True, ("recomputed",)),
    "pieces, least": (True, ("recomputed", "before")),
}
"""For each variant whether variables are in pieces, and the ways to keep copies in order of
preference; an operator takes the first way that it is offered."""

KINDS_OF_PEAKS: dict[str, tuple[str, str]] = {
    "sharded": ("whole", "pieces"),
    "before": ("pieces", "pieces, before"),
    "after": ("pieces", "pieces, after"),
    "recomputed": ("pieces", "pieces, recomputed"),
    "all": ("whole", "pieces, least"),
}
"""For each kind of saving the variant without it and the variant with it."""

LOSS_BAR = 1e-3
"""Bar for the loss in float32, where rounding at a rectifier's zero changes a gradient. Variables
are compared in the small models only."""

SAVING_BAR = 0.05
"""Largest difference between a measured and a predicted saving, as a share of the peak."""

_NOTHING = 0.01  # share of the peak; a smaller saving counts as none
_MB = 2**20


def peak_report(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The last line's content for one model.

    ``fell`` is the share of strategies whose measured peak fell by at least a hundredth.
    ``as_predicted`` is the share of strategies whose peak fell if and only if that was predicted.
    ``worst_difference`` is the largest difference between the measured and the predicted saving.
    Savings are shares of the peak of the variant without them.
    """
    peaks = [variant for line in lines for variant in line["variants"].values()]
    errors = [abs(peak["predicted"] / peak["measured"] - 1) for peak in peaks]
    return {
        "strategies": len(lines),
        "peaks_mb": [round(pick(p["measured"] for p in peaks) / _MB, 1) for pick in (min, max)],
        "mean_error": _mean(errors),
        "worst_error": max(errors),
        "worst_loss": max(peak["error"] for peak in peaks),
        "kinds": {kind: _of_kind(kind, lines) for kind in KINDS_OF_PEAKS},
    }


def peak_failures(lines: Sequence[dict[str, Any]]) -> list[str]:
    """The results outside the bars, in words."""
    found = []
    for line in lines:
        where = f"{line['model']} N={line['devices']} strategy {line['number']}"
        for name, variant in line["variants"].items():
            if not variant["error"] <= LOSS_BAR:
                found.append(f"{where}, {name}: the loss is off by {variant['error']:.1e}")
        for kind in KINDS_OF_PEAKS:
            predicted, measured = savings(line, kind)
            if abs(predicted - measured) > SAVING_BAR:
                found.append(
                    f"{where}, {kind}: saves {measured:.1%} of the peak, predicted {predicted:.1%}"
                )
    return found


def savings(line: dict[str, Any], kind: str) -> tuple[float, float]:
    """The predicted and the measured saving, as shares of the measured peak of the variant without
    it."""
    without, with_it = (line["variants"][name] for name in KINDS_OF_PEAKS[kind])
    whole = without["measured"]
    return (
        (without["predicted"] - with_it["predicted"]) / whole,
        (whole - with_it["measured"]) / whole,
    )


def _of_kind(kind: str, lines: Sequence[dict[str, Any]]) -> dict[str, float]:
    pairs = [savings(line, kind) for line in lines]
    wholes = [line["variants"][KINDS_OF_PEAKS[kind][0]]["measured"] / _MB for line in lines]
    agree = [(p >= _NOTHING) == (m >= _NOTHING) or abs(p - m) < _NOTHING for p, m in pairs]
    return {
        "predicted_saving_mb": _mean([p * mb for (p, _), mb in zip(pairs, wholes, strict=True)]),
        "measured_saving_mb": _mean([m * mb for (_, m), mb in zip(pairs, wholes, strict=True)]),
        "predicted_share": _mean([p for p, _ in pairs]),
        "measured_share": _mean([m for _, m in pairs]),
        "predicted_to_fall": _mean([float(p >= _NOTHING) for p, _ in pairs]),
        "fell": _mean([float(m >= _NOTHING) for _, m in pairs]),
        "as_predicted": _mean([float(same) for same in agree]),
        "worst_difference": max(abs(p - m) for p, m in pairs),
    }


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 4)
