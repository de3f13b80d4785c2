"""Tofu's claims about its models and partitions (Table 2, Figures 10 and 11, Theorem 2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from reproduction.tofu.claims import Claim
from tensoropt.plan.compared_numbers import SAME_TIME

__all__ = ["partition_claims"]

_NEAR_GB = 0.05  # of the paper's sizes, either way
_DEVICE_GB = 12.0  # of a K80
_FEWER_POINTS = (0.03, 0.10)  # of communication, Spartan's and EqualChop's below AllRow-Greedy's
_WRESNET, _RNN = "WResNet-152-10", "RNN-4-8K"  # the models of Figure 10

Rows = Mapping[str, Mapping[str, Any]]
"""For each partition of a model its seconds, share of communication and GB."""


def partition_claims(report: Mapping[str, Any]) -> Iterator[Claim]:
    """The claims for which there are models.

    A partition is slower than another if it takes 3 % more, the resolution of predictions.

    Args:
        report: the JSON values that ``python -m reproduction.tofu`` prints.
    """
    yield _sizes(report["table2"])
    for model in (_WRESNET, _RNN):
        if model in report["figure10"]:
            yield from _partitions(model, report["figure10"][model])
    if report["figure11"]:
        yield from _convolutions(report["figure11"])
    for model, found in report["theorem2"].items():
        added = ", ".join(f"{gb:g}" for gb in found["gb_of_each_halving"])
        claim = f"Theorem 2: no halving of {model} adds less communication than the one before"
        yield Claim(claim, f"{added} GB", found["never_falls"])


def _sizes(rows: list[Mapping[str, Any]]) -> Claim:
    off = {row["model"]: row["gb"] / row["paper_gb"] - 1 for row in rows}
    out = [f"{model} ({share:+.1%})" for model, share in off.items() if abs(share) > _NEAR_GB]
    here = f"{len(off) - len(out)} of {len(off)} within {_NEAR_GB:.0%}"
    return Claim("Table 2: weights, gradients and history of all models",
                 here + (f"; not so: {', '.join(out)}" if out else ""), not out)  # fmt: skip


def _partitions(model: str, rows: Rows) -> Iterator[Claim]:
    """The claims about Figure 10."""
    seconds = {name: row["seconds"] for name, row in rows.items()}
    times = {name: of / seconds["Tofu"] for name, of in seconds.items()}
    greedy = f"{times['AllRow-Greedy']:.3f} times Tofu's time"
    slowest = seconds["AllRow-Greedy"] >= max(seconds.values()) and _is_slower(
        times, "AllRow-Greedy"
    )
    yield Claim(f"Figure 10: AllRow-Greedy is the slowest ({model})", greedy, slowest)
    between = ("Spartan", "EqualChop")
    here = ", ".join(f"{name} {times[name]:.3f} times" for name in between)
    claim = f"Figure 10: Spartan and EqualChop are slower than Tofu ({model})"
    yield Claim(claim, here, all(_is_slower(times, name) for name in between))
    shares = {name: row["communication_share"] for name, row in rows.items()}
    fewer = {name: shares["AllRow-Greedy"] - shares[name] for name in between}
    least, most = _FEWER_POINTS
    yield Claim(
        f"Figure 10: Spartan and EqualChop have 3 to 10 points less communication ({model})",
        ", ".join(f"{name} {100 * points:.1f}" for name, points in fewer.items()),
        all(least <= points <= most for points in fewer.values()),
    )
    if model == _RNN:
        claim = f"Figure 10: ICML18 is 7 % slower than Tofu ({model})"
        yield Claim(claim, f"{times['ICML18']:.3f} times", _is_slower(times, "ICML18"))
        return
    for name in ("AllRow-Greedy", "ICML18"):
        stored = rows[name]["stored_gb"]
        claim = f"Figure 10: {name} runs out of memory ({model})"
        yield Claim(claim, f"{stored} of {_DEVICE_GB:g} GB", stored > _DEVICE_GB)


def _is_slower(times: Mapping[str, float], name: str) -> bool:
    return times[name] >= 1 + SAME_TIME


def _convolutions(found: Mapping[str, Any]) -> Iterator[Claim]:
    """The observations of section 7.4."""
    split = ", ".join(found["indices_split"])
    claim = "Figure 11: Tofu splits both batch and channels"
    yield Claim(claim, f"split: {split}", found["several_dimensions"])
    differ = found["convolutions_of_a_block_differ"]
    claim = "Figure 11: convolutions of a block are split differently"
    yield Claim(claim, "in every block" if differ else "not in every block", differ)
    alike = found["repeated_blocks_alike"]
    claim = "Figure 11: repeated blocks are split alike"
    yield Claim(claim, f"{alike:.0%} of them", alike == 1)
    first = found["first_block_differs"]
    here = f"in {sum(first.values())} of {len(first)} groups"
    claim = "Figure 11: the first block of a group is split differently"
    yield Claim(claim, here, all(first.values()))
    fetched = found["fetched_gb"].values()
    here = "; ".join(f"{of['weights']:.2f} and {of['activations']:.2f}" for of in fetched)
    claim = "Figure 11: fetched weights give way to activations in higher groups"
    yield Claim(claim, f"GB by group: {here}", found["weights_share_falls"])
