"""Figure 8: the shortest time that fits the devices' memory, by the number of devices."""

from __future__ import annotations

from collections.abc import Iterator

from reproduction.paper.claims.evidence import (
    TITLES,
    Claim,
    Condition,
    Evidence,
    Judgement,
    at_least,
    at_most,
    decided,
    gb,
    judged,
    seconds,
)
from reproduction.paper.results import Result
from reproduction.paper.tasks import ALGORITHMS, FIGURE_8_MODELS, Task

__all__ = ["figure_8_claims", "shortest"]

_FEW, _MANY = 8, 16
# Twice the devices halve the time at best.
_LITTLE_GAIN = 0.8


def shortest(result: Result) -> int | None:
    """Nanoseconds of the fastest strategy that fits a device's memory without its reserve; None
    if none fits."""
    place = result.fastest_within(result.device_memory_bytes)
    return None if place is None else int(result.nanoseconds[place])


def figure_8_claims(evidence: Evidence) -> Iterator[Claim]:
    """The claims of section 5.1 about Figure 8."""
    for model in FIGURE_8_MODELS:
        yield from _claims(evidence, model)


def _claims(evidence: Evidence, model: str) -> Iterator[Claim]:
    title = TITLES[model]

    def at(algorithm: str, devices: int) -> Result:
        return evidence[Task(model, algorithm, devices=devices)]

    def runs(algorithm: str, devices: int) -> Condition:
        result = at(algorithm, devices)
        return at_most(float(result.memory_bytes[0] / result.device_memory_bytes), 1)

    def runs_not(algorithm: str, devices: int) -> Condition:
        fits, margin = runs(algorithm, devices)
        return not fits, margin

    def memories(algorithms: tuple[str, ...], devices: int) -> str:
        return f"least memory with {devices} devices: " + ", ".join(
            f"{ALGORITHMS[each]} {gb(int(at(each, devices).memory_bytes[0]))}"
            for each in algorithms
        )

    def only() -> Judgement:
        ours, others = ("ft", "tofu"), ("data_parallel", "optcnn")
        run = [runs(each, _FEW) for each in ours] + [runs_not(each, _FEW) for each in others]
        # OptCNN's memory is that of the fastest strategy, whatever it is.
        results = [at(each, _FEW) for each in (*ours, *others)]
        return decided(memories((*ours, *others), _FEW), run, *results)

    def all_of_them() -> Judgement:
        others = ("data_parallel", "optcnn")
        run = [runs(each, _MANY) for each in others]
        return decided(memories(others, _MANY), run, *(at(each, _MANY) for each in others))

    yield judged("8", f"{title}: with 8 devices only TensorOpt and ToFu run", only)
    yield judged("8", f"{title}: data parallelism and OptCNN run with 16 devices", all_of_them)
    yield judged(
        "8",
        f"{title}: TensorOpt gains little from 8 devices to 16",
        lambda: _gain(at("ft", _FEW), at("ft", _MANY)),
    )
    yield judged(
        "8",
        f"{title}: ToFu slows down from 8 devices to 16",
        lambda: _slows(at("tofu", _FEW), at("tofu", _MANY)),
    )


def _gain(few: Result, many: Result) -> Judgement:
    before, after = shortest(few), shortest(many)
    if before is None or after is None:
        return False, f"TensorOpt does not run with {_FEW if before is None else _MANY} devices"
    gain = at_least(after / before, _LITTLE_GAIN), at_most(after / before, 1)
    return decided(_from_to(few, many, before, after), gain, few, many)


def _slows(few: Result, many: Result) -> Judgement:
    before, after = shortest(few), shortest(many)
    if before is None or after is None:
        return False, f"ToFu does not run with {_FEW if before is None else _MANY} devices"
    why = _from_to(few, many, before, after)
    return decided(why, [(after > before, abs(after / before - 1))], few, many)


def _from_to(few: Result, many: Result, before: int, after: int) -> str:
    shares = []
    for result, time in ((few, before), (many, after)):
        place = result.fastest_within(result.device_memory_bytes)
        network = int(result.network_nanoseconds[place])
        shares.append(f"{seconds(time)} (network {seconds(network)})")
    return f"from {shares[0]} to {shares[1]}"
