"""Unity's claims about its evaluation, judged by our results."""

from __future__ import annotations

from typing import Any, Protocol

from reproduction.unity.models import MODELS

__all__ = ["claims"]


class Judge(Protocol):
    """Adds a claim with its judgement."""

    def __call__(self, claim: str, holds: bool, what: str, by: str = ..., /) -> None: ...


_TOLERANCE = 1.03
"""Largest ratio of times that count as equal: predictions do not resolve less (`SAME_TIME`)."""
_MOST_SECONDS, _GOAL_SECONDS = 300.0, 60.0
_FIGURE_15B = "96"
"""The devices of Figure 15b."""
_OTHERS = ("data_parallel", "expert", "taso", "taso_flexflow")
_ONE_PLACE = 0.05
"""The paper's gains have one decimal."""


def claims(kept: dict[str, Any]) -> list[dict[str, Any]]:
    """Each claim, whether it holds, the values behind it, and whether these were measured or
    simulated."""
    found = {tuple(key.split()): of for key, of in kept.items() if "search_seconds" in of}
    judged: list[dict[str, Any]] = []

    def judge(claim: str, holds: bool, what: str, by: str = "simulated") -> None:
        judged.append({"claim": claim, "holds": bool(holds), "found": what, "by": by})

    _judge_order(found, judge)
    gains = {key[0]: of["rewritten_first"] / of["ours"] for key, of in found.items()
             if key[1] == _FIGURE_15B and of["rewritten_first"]}  # fmt: skip
    if gains:
        best = max(gains, key=lambda model: gains[model])
        judge(f"on {_FIGURE_15B} devices jointly is up to 1.4 times as fast as one after the other "
              "(Figure 15b)", abs(gains[best] - 1.4) <= _ONE_PLACE,
              ", ".join(f"{model} {gain:.2f}" for model, gain in gains.items()))  # fmt: skip
    for model, of_model in MODELS.items():
        ratios = {}
        for (name, devices), of in found.items():
            others = [of.get(other) for other in _OTHERS]
            known = [each for each in others if each is not None]
            if name == model and known and of["without_stages"]:
                ratios[devices] = min(known) / of["without_stages"]
        if ratios:
            most = max(ratios, key=lambda devices: ratios[devices])
            judge(
                f"{model}: up to {of_model.gain} times the best of data parallelism, experts, TASO "
                "and TASO+FlexFlow, without stages (Figure 14)",
                ratios[most] >= of_model.gain - _ONE_PLACE,
                f"{ratios[most]:.2f} times at {most} devices",
            )
    slow = {" ".join(key): of["search_seconds"] for key, of in found.items() if key[1] == "192"}
    if slow:
        longest = max(slow, key=lambda key: slow[key])
        took = f"{slow[longest]:.0f} s ({longest}), goal {_GOAL_SECONDS:.0f}"
        claim = "searches at 192 devices take at most 5 minutes"
        judge(claim, slow[longest] <= _MOST_SECONDS, took, "measured")
    _judge_15a([of for key, of in kept.items() if key.startswith("figure 15a")], judge)
    _judge_figures(kept, judge)
    return judged


def _judge_order(found: dict[tuple[str, ...], dict[str, Any]], judge: Judge) -> None:
    """Judge that one after the other is no slower than data parallelism, and ours than it."""
    for one, other, claim in (
        ("ours", "rewritten_first", "jointly is at least as fast as one after the other"),
        ("rewritten_first", "data_parallel", "one after the other is as fast as data parallelism"),
    ):
        slower = [
            f"{' '.join(key)} ({of[one] / of[other]:.3f})" if of[one] else " ".join(key)
            for key, of in found.items()
            if of[other] is not None and (of[one] is None or of[one] > _TOLERANCE * of[other])
        ]
        judge(f"{claim} everywhere", not slower, ", ".join(slower) or f"on all {len(found)}")


def _judge_figures(kept: dict[str, Any], judge: Judge) -> None:
    figure = kept.get("figure 2")
    if figure is not None:
        first, figures, ours = (
            figure[name] for name in ("one_after_the_other", "figure_2b", "jointly")
        )
        counted = figure["counted_under_mpirun"]
        judge("Figure 2a: 813,056 elements", first == counted["data_parallel"] == 813_056,
              f"{first:,} found, {counted['data_parallel']:,} counted", "measured")  # fmt: skip
        judge("Figure 2b: 131,072 elements, or fewer found",
              figures == counted["figure_2b"] == 131_072 and ours <= figures,
              f"{figures:,}, {counted['figure_2b']:,} counted; found {ours:,}",
              "measured")  # fmt: skip
    tenth = kept.get("figure 10")
    if tenth is not None:
        judge("Figure 10: the search finds Megatron-LM's strategy for a layer of BERT",
              tenth["is_megatron"], f"{tenth['elements']:,} elements, "
              f"{tenth['all_reduces']:,} in four all-reduces")  # fmt: skip


def _judge_15a(found: list[dict[str, float]], judge: Judge) -> None:
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
