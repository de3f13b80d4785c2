"""Unity's claims about its evaluation, judged by our results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reproduction.unity.models import MODELS

__all__ = ["claims"]

_TOLERANCE = 1.001
"""Largest ratio of times that count as equal; they are searched to a gap of 1 %."""
_MOST_SECONDS, _GOAL_SECONDS = 300.0, 60.0


def claims(kept: dict[str, Any]) -> list[dict[str, Any]]:
    """Each claim, whether it holds, and the values behind it."""
    found = {tuple(key.split()): of for key, of in kept.items() if "search_seconds" in of}
    judged = []

    def judge(claim: str, holds: bool, what: str) -> None:
        judged.append({"claim": claim, "holds": bool(holds), "found": what})

    worse = [
        " ".join(key)
        for key, of in found.items()
        if of["rewritten_first"] is not None
        and (of["jointly"] is None or of["jointly"] > _TOLERANCE * of["rewritten_first"])
    ]
    judge("jointly is at least as fast as one after the other everywhere", not worse,
          ", ".join(worse) or f"{len(found)} of {len(found)}")  # fmt: skip
    gains = {
        " ".join(key): of["rewritten_first"] / of["jointly"]
        for key, of in found.items()
        if of["rewritten_first"] and of["jointly"]
    }
    if gains:
        best = max(gains, key=lambda key: gains[key])
        judge("jointly is up to 1.4 times as fast as one after the other (Figure 15b)",
              gains[best] >= 1.4, f"{gains[best]:.2f} times ({best})")  # fmt: skip
    for model, of_model in MODELS.items():
        ratios = {}
        for (name, devices), of in found.items():
            others = [of["data_parallel"], of["expert"]]
            known = [each for each in others if each is not None]
            if name == model and known and of["jointly"]:
                ratios[devices] = min(known) / of["jointly"]
        if ratios:
            most = max(ratios, key=lambda devices: ratios[devices])
            judge(
                f"{model}: up to {of_model.gain} times data parallelism and experts (Figure 14)",
                ratios[most] >= of_model.gain - 0.05,
                f"{ratios[most]:.2f} times at {most} devices",
            )
    slow = {" ".join(key): of["search_seconds"] for key, of in found.items() if key[1] == "192"}
    if slow:
        longest = max(slow, key=lambda key: slow[key])
        judge("searches at 192 devices take at most 5 minutes", slow[longest] <= _MOST_SECONDS,
              f"{slow[longest]:.0f} s ({longest}), goal {_GOAL_SECONDS:.0f}")  # fmt: skip
    _judge_15a([of for key, of in kept.items() if key.startswith("figure 15a")], judge)
    _judge_figures(kept, judge)
    return judged


def _judge_figures(kept: dict[str, Any], judge: Callable[[str, bool, str], None]) -> None:
    figure = kept.get("figure 2")
    if figure is not None:
        first, figures, ours = (
            figure[name] for name in ("one_after_the_other", "figure_2b", "jointly")
        )
        counted = figure["counted_under_mpirun"]
        judge("Figure 2a: 813,056 elements", first == counted["data_parallel"] == 813_056,
              f"{first:,} found, {counted['data_parallel']:,} counted")  # fmt: skip
        judge("Figure 2b: 131,072 elements, or fewer found",
              figures == counted["figure_2b"] == 131_072 and ours <= figures,
              f"{figures:,}, {counted['figure_2b']:,} counted; found {ours:,}")  # fmt: skip
    tenth = kept.get("figure 10")
    if tenth is not None:
        judge("Figure 10: the search finds Megatron-LM's strategy for a layer of BERT",
              tenth["is_megatron"], f"{tenth['elements']:,} elements, "
              f"{tenth['all_reduces']:,} in four all-reduces")  # fmt: skip


def _judge_15a(found: list[dict[str, float]], judge: Callable[[str, bool, str], None]) -> None:
    """Judge Figure 15a by the largest gain of a dimension over the sets before it, and over data
    and model parallelism."""
    if not found:
        return

    def gain(before: str, after: str) -> float:
        return max(of[before] / of[after] for of in found)

    reduction = gain("data and model", "reduction")
    judge("Figure 15a: reduction alone gains nothing", reduction < 1.05, f"{reduction:.2f} times")
    heads, pipeline = (gain("data and model", name) for name in ("attention heads", "pipeline"))
    judge("Figure 15a: with attention heads up to 1.2 times", heads >= 1.15, f"{heads:.2f} times")
    judge("Figure 15a: with pipelines up to 1.4 times", pipeline >= 1.35, f"{pipeline:.2f} times")
