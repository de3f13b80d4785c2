"""Tofu's claims about Figures 8 and 9 and Table 3 (section 7.2), judged by throughputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from reproduction.tofu.systems import Found
from tensoropt.plan.compared_numbers import SAME_TIME

__all__ = ["Claim", "claims"]

_TABLE_3 = {
    "RNN-6-4K": {"tofu": 210, "placement": 107},
    "RNN-8-4K": {"tofu": 154, "placement": 95},
    "RNN-10-4K": {"tofu": 122, "placement": 59},
}
"""Samples per second; TensorFlow's placement, 50, 36 and 30, is another system's kernels."""
_SMALL = ("WResNet-50-4", "WResNet-50-6", "WResNet-101-4")  # fit one device (section 7.2)
_NEAR = 0.25  # of the paper's throughput, either way


@dataclass(frozen=True, slots=True)
class Claim:
    """One judged claim; ``by`` is always "simulated", as all are prices of a described machine."""

    claim: str
    here: str
    holds: bool
    by: str = "simulated"

    def to_json(self) -> dict[str, Any]:
        """The claim as JSON values."""
        return asdict(self)


def claims(found: Mapping[str, Found]) -> Iterator[Claim]:
    """The claims for which there are models."""
    rnns = {model: own for model, own in found.items() if model.startswith("RNN")}
    resnets = {model: own for model, own in found.items() if not model.startswith("RNN")}
    yield from _between("Figure 9: Tofu reaches 70 to 98 % of Ideal", rnns, "ideal", 0.70, 0.98)
    yield from _between("Figure 8: Tofu reaches 60 to 95 % of Ideal", resnets, "ideal", 0.60, 0.95)
    for other in ("smallbatch", "swapping", "placement"):
        yield from _between(
            f"Figure 9: Tofu is faster than {other} for every RNN", rnns, other, 1.0
        )
    yield from _between("Figure 8: Tofu is faster than swapping", resnets, "swapping", 1.0)
    yield from _between(
        "Figure 8: swapping is 20 to 63 % slower than Tofu", resnets, "swapping", 1 / 0.80, 1 / 0.37
    )
    if resnets:
        fits = [model for model, own in resnets.items() if own.get("smallbatch") is not None]
        wanted = [model for model in resnets if model in _SMALL]
        claim = "Figure 8: SmallBatch fits WResNet-50-4, -50-6 and -101-4 alone"
        yield Claim(claim, f"{', '.join(fits) or 'none'} of {len(resnets)}", fits == wanted)
    yield from _between(
        "Figure 9: operator placement has 38 to 61 % of Tofu's throughput",
        rnns, "placement", 1 / 0.61, 1 / 0.38,
    )  # fmt: skip
    yield from _between(
        "Figure 9: swapping has 23 to 30 % of Tofu's throughput",
        rnns,
        "swapping",
        1 / 0.30,
        1 / 0.23,
    )
    largest = found.get("RNN-10-8K")
    if largest is not None:
        rate = largest.get("placement")
        claim = "Figure 9: operator placement cannot train RNN-10-8K"
        yield Claim(claim, _rate(rate), rate is None)
    for model, papers in _TABLE_3.items():
        for system, paper in papers.items() if model in found else ():
            rate = found[model].get(system)
            near = rate is not None and abs(rate / paper - 1) <= _NEAR
            claim = f"Table 3: {system} trains {model} with {paper} samples/s, within 25 %"
            yield Claim(claim, _rate(rate), near)
    slower = [model for model, own in found.items() if not _is_no_slower(own)]
    if found:
        claim = "ours is at least as fast as Tofu's partition for every model"
        yield Claim(claim, ", ".join(slower) or f"on all {len(found)}", not slower)


def _is_no_slower(own: Found) -> bool:
    """Whether ours is as fast as Tofu's partition, as far as predictions resolve it."""
    tofu, ours = own.get("tofu"), own.get("ours")
    return tofu is None or (ours is not None and ours >= (1 - SAME_TIME) * tofu)


def _ratio(own: Found, other: str) -> float | None:
    """Tofu's throughput over another's: 0 if Tofu does not fit, None if the other does not."""
    rate = own.get(other)
    return None if rate is None else (own.get("tofu") or 0.0) / rate


def _between(
    claim: str, found: Mapping[str, Found], other: str, least: float, most: float = float("inf")
) -> Iterator[Claim]:
    """The claim that Tofu's throughput over another's is between two values for all models."""
    ratios = {
        model: ratio for model, own in found.items() if (ratio := _ratio(own, other)) is not None
    }
    if ratios:
        out = [
            f"{name} ({ratio:.2f})" for name, ratio in ratios.items() if not least <= ratio <= most
        ]
        here = f"{min(ratios.values()):.2f} to {max(ratios.values()):.2f} times {other}"
        yield Claim(claim, here + (f"; not so: {', '.join(out)}" if out else ""), not out)


def _rate(rate: float | None) -> str:
    return "does not fit" if rate is None else f"{rate:.1f} samples/s"
