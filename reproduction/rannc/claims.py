"""RaNNC's claims (section IV, abstract and conclusion), judged by the systems' predicted steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from reproduction.rannc.models import ANY_STAGES, SYSTEMS, Line
from tensoropt.plan.compared_numbers import SAME_TIME

__all__ = ["Claim", "all_claims", "largest"]

_TIMES_LARGER = 5.0  # the paper: models "five times larger" than Megatron-LM's
_COMPARABLE = 1.25  # largest ratio of comparable speeds, in either direction
_LARGE_MARGIN = 1.25  # least ratio of speeds for "a large margin"
_SLOWER = (0.25, 0.4)  # around the paper's 33 %
_LITTLE = 0.05  # share by which values may differ and still be about the same
_BALANCE = 1.25  # factor of the blocks' mean time
_DEVICE_GB = 32  # memory of the paper's V100
_LONGEST_SEARCH = 24 * 3600.0  # seconds; the paper stops searches after a day


@dataclass(frozen=True, slots=True)
class Claim:
    """One judged claim.

    Attributes:
        claim: the statement.
        paper: the paper's value; if another source states it, with that source.
        here: our value.
        holds: whether the claim holds here.
        by: "measured" if what the claim is about ran here, "simulated" if it was priced.
    """

    claim: str
    paper: str
    here: str
    holds: bool
    by: str = "simulated"

    def to_json(self) -> dict[str, Any]:
        """The claim as JSON values."""
        return asdict(self)


def all_claims(lines: Sequence[Line]) -> list[Claim]:
    """The claims for which there are models, in the order of the paper."""
    berts = [line for line in lines if not _is_resnet(line)]
    resnets = [line for line in lines if _is_resnet(line)]
    found = [*_fitting(lines), *_largest_claims(berts), *_gpipe(berts), *_tensor_splits(berts)]
    return [*found, *_resnets(resnets), *_balance(lines), *_blocks(berts), *_ours(lines)]


def largest(lines: Sequence[Line]) -> dict[str, Line]:
    """The largest BERT of each system with its parameters; an empty text if none fits."""
    found: dict[str, Line] = {}
    for line in lines:
        for system in SYSTEMS:
            most = found.get(system, {"parameters": 0})["parameters"]
            fits = not _is_resnet(line) and _rate(line, system) is not None
            if fits and line["parameters"] > most:
                found[system] = {"model": line["model"], "parameters": line["parameters"]}
    return found


def _is_resnet(line: Line) -> bool:
    return str(line["model"]).startswith("resnet")


def _rate(line: Line, system: str) -> float | None:
    """Examples per second; None if nothing fits, or if the system does not support the model.

    For plans of `find_strategy` these are by the predicted step.
    """
    rate = line["found"].get(system, {}).get("examples_per_second")
    return None if rate is None else float(rate)


def _fitting(lines: Sequence[Line]) -> Iterator[Claim]:
    for system, name in (("rannc", "RaNNC"), ("gpipe", "GPipe")):
        models = [line for line in lines if system in line["found"]]
        if models:
            fit = sum(_rate(line, system) is not None for line in models)
            of = "BERT" if system == "gpipe" else "model"
            here = f"{fit} of {len(models)}"
            yield Claim(f"{name} trains every {of}", "all", here, fit == len(models))


def _largest_claims(berts: Sequence[Line]) -> Iterator[Claim]:
    best = largest(berts)

    def size(system: str) -> str:
        return f"{best[system]['parameters'] / 1e6:,.0f} million ({best[system]['model']})"

    if {"rannc", "megatron"} <= best.keys():
        ratio = best["rannc"]["parameters"] / best["megatron"]["parameters"]
        yield Claim(
            "RaNNC's largest model is five times as large as that of tensor partitioning",
            "5",
            f"{ratio:.1f}: {size('rannc')} to {size('megatron')}",
            ratio >= _TIMES_LARGER,
        )
    if {"data parallelism", "megatron"} <= best.keys():
        yield Claim(
            "tensor partitioning trains larger models than data parallelism",
            "larger",
            f"{size('megatron')} to {size('data parallelism')}",
            best["megatron"]["parameters"] > best["data parallelism"]["parameters"],
        )


def _compared(lines: Sequence[Line], one: str, other: str) -> list[tuple[Line, float]]:
    """The factors by which one system is faster than another, for models with a step of both."""
    found = []
    for line in lines:
        first, second = _rate(line, one), _rate(line, other)
        if first is not None and second is not None:
            found.append((line, first / second))
    return found


def _claim(
    claim: str, paper: str, compared: Sequence[tuple[Line, float]], fine: Callable[[float], bool]
) -> Iterator[Claim]:
    """The claim that all compared values are fine."""
    if compared:
        failing = [f"{line['model']} ({ratio:.3f})" for line, ratio in compared if not fine(ratio)]
        ratios = [ratio for _, ratio in compared]
        here = f"{min(ratios):.2f} to {max(ratios):.2f} times as fast on {len(compared)} models"
        here += f"; not so: {', '.join(failing)}" if failing else ""
        yield Claim(claim, paper, here, not failing)


def _gpipe(berts: Sequence[Line]) -> Iterator[Claim]:
    compared = _compared(berts, "rannc", "gpipe")
    yield from _claim("RaNNC is faster than GPipe on every BERT", "all", compared, lambda r: r > 1)
    yield from _claim(
        "if it took the fastest number of stages, RaNNC would be as fast as GPipe on every BERT",
        "all",
        _compared(berts, ANY_STAGES, "gpipe"),
        _no_slower,
    )
    ends = []
    for width in sorted({_sizes(line)[1] for line, _ in compared}):
        own = sorted((_sizes(line)[0], r) for line, r in compared if _sizes(line)[1] == width)
        if len(own) > 1:
            ends.append((width, *own[0], *own[-1]))
    if ends:
        yield Claim(
            "RaNNC's lead over GPipe shrinks as models grow",
            "shrinks",
            "; ".join(
                f"width {width}: {few:.2f} with {least} layers, {many:.2f} with {most}"
                for width, least, few, most, many in ends
            ),
            all(few > many for _, _, few, _, many in ends),
        )


def _sizes(line: Line) -> tuple[int, int]:
    layers, width = map(int, str(line["model"]).split("x"))
    return layers, width


def _tensor_splits(berts: Sequence[Line]) -> Iterator[Claim]:
    compared = _compared(berts, "rannc", "megatron")
    yield from _claim(
        "RaNNC is about as fast as tensor partitioning where that fits",
        "almost the same",
        compared,
        lambda ratio: 1 / _COMPARABLE <= ratio <= _COMPARABLE,
    )


def _resnets(resnets: Sequence[Line]) -> Iterator[Claim]:
    if resnets:
        ordered = sorted(resnets, key=lambda line: int(line["parameters"]))
        fits = [str(each["model"]) for each in ordered if _rate(each, "data parallelism")]
        yield Claim(
            "of the ResNets data parallelism trains only the smallest",
            "resnet50x8",
            ", ".join(fits) or "none",
            fits == ["resnet50x8"],
        )
    yield from _claim(
        "on one machine RaNNC is faster than GPipe by a large margin on every ResNet",
        "all",
        _compared(resnets, "rannc, one machine", "gpipe, one machine"),
        lambda ratio: ratio >= _LARGE_MARGIN,
    )
    yield from _claim(
        "if it took the fastest number of stages, RaNNC would be as fast on every ResNet",
        "all",
        _compared(resnets, f"{ANY_STAGES}, one machine", "gpipe, one machine"),
        _no_slower,
    )


def _balance(lines: Sequence[Line]) -> Iterator[Claim]:
    """The claim about balance: no block is shorter than its longest component, so the longest
    component bounds the longest block."""
    judged = [line for line in lines if "imbalance" in line]
    if not judged:
        return
    above = [line for line in judged if line["imbalance"] > _BALANCE]
    told = [
        f"{line['model']} {line['imbalance']:.2f} ({line['longest_atom']:.2f})" for line in above
    ]
    here = f"{min(line['imbalance'] for line in judged):.2f} or more of the mean"
    here += f"; above {_BALANCE}, with the longest component: {', '.join(told)}" if told else ""
    yield Claim(
        f"no block takes more than {_BALANCE} of the mean, but for one of a component that alone "
        f"does, and then at most {100 * _LITTLE:.0f} % more than that",
        "ours",
        here,
        all(line["imbalance"] <= line["longest_atom"] * (1 + _LITTLE) for line in above),
    )


def _blocks(berts: Sequence[Line]) -> Iterator[Claim]:
    for line in berts:
        if line["model"] == "48x1024":
            rate, blocks = _rate(line, "without blocks"), _rate(line, "rannc")
            if rate is not None and blocks is not None:
                slower = 1 - rate / blocks
                holds = _SLOWER[0] <= slower <= _SLOWER[1]
                claim = "without blocks throughput is 33 % less (48 layers of 1024)"
                yield Claim(claim, "33 %", f"{100 * slower:.0f} %", holds)
    for line in berts:
        alone = line["found"].get("without blocks")
        if alone is not None and _sizes(line)[0] > 48:
            took = "no result" if "error" in alone else f"{alone['examples_per_second']} examples/s"
            yield Claim(
                f"without blocks there is no result above 48 layers ({line['model']})",
                "not in 24 hours",
                f"{took} in {alone['seconds']:.0f} s",
                "error" in alone or alone["seconds"] > _LONGEST_SEARCH,
                "measured",
            )
    yield from _claim(
        "32 blocks lose little to 64, so they balance quality and search space",
        "balanced",
        _compared(berts, "rannc", "rannc, 64 blocks"),
        lambda ratio: ratio >= 1 - _LITTLE,
    )


def _ours(lines: Sequence[Line]) -> Iterator[Claim]:
    peaks = {
        line["model"]: line["found"]["ours"].get("memory_gb")
        for line in lines
        if "ours" in line["found"]
    }
    without = [model for model, peak in peaks.items() if peak is None or peak > _DEVICE_GB]
    if peaks:
        found = ", ".join(without) if without else f"at most {max(peaks.values())} GB"
        claim = f"every model has a plan of ours whose predicted peak is below {_DEVICE_GB} GB"
        yield Claim(claim, "ours", found, not without)
    compared = _compared(lines, "ours", "rannc")
    yield from _claim(
        "ours is at least as fast as RaNNC's own everywhere", "ours", compared, _no_slower
    )
    wide = [(line, ratio) for line, ratio in compared if _is_wide(line["found"]["rannc"])]
    yield from _claim(
        "ours is faster where RaNNC has several stages, some of several devices",
        "ours",
        wide,
        lambda ratio: ratio > 1,
    )


def _no_slower(ratio: float) -> bool:
    """Whether a speed is another's or above, as far as predictions resolve it."""
    return ratio >= 1 - SAME_TIME


def _is_wide(found: Line) -> bool:
    stages = found["stages"]
    return len(stages) > 1 and any(devices > 1 for _, _, devices in stages)
