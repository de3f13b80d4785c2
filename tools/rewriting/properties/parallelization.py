"""Properties of parallelization: what devices and microbatches may do of each operator.

They follow from signatures: an index that can be split is one property of its operator, and another
one in time. In which inputs an operator is linear is said here.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from tensoropt.rewriting.algebra.typing import MOST_DIMS, split_dim
from tensoropt.rewriting.operators import OPERATORS, Operator, Signature
from tools.rewriting.properties.equation import (
    DIMS,
    PAIRS,
    Property,
    permutations,
    property_of,
)

__all__ = ["of_parallelization"]

_LINEAR = {
    "matmul": ("x", "y"),
    "batch_matmul": ("x", "y"),
    "mul": ("x", "y"),
    "scale": ("x", "y"),
    "conv": ("x", "y"),
    "depthwise_conv": ("x", "y"),
    "embedding": ("x",),
    **dict.fromkeys(
        ("transpose", "flatten", "unflatten", "reduce_sum", "avg_pool", "split"), ("x",)
    ),
}
"""Per operator the arguments in which it is linear, one at a time."""

_NAMES = ("x", "y", "z")


def _variants(operator: Operator) -> Iterator[tuple[str, Signature, str]]:
    """An operator with its parameters, at each rank; and what these are, as equations say it."""
    free = any(kind for kind, _ in operator.ranks)
    for rank in range(1, MOST_DIMS + 1) if free else (0,):
        if operator.parameters == -1:
            choices: Iterable[tuple[int, ...]] = (p for p in permutations() if len(p) == rank)
        else:
            limits = [range(max(rank, 1)), range(2)][: operator.parameters]
            choices = itertools.product(*limits)
        for parameters in choices:
            signature = operator.signature(tuple(parameters), rank)
            if signature is not None:
                numbers = f"[{','.join(map(str, parameters))}]" if parameters else ""
                ranks = (f"{n}:{len(d)}" for n, d in zip(_NAMES, signature.inputs, strict=False))
                yield operator.name + numbers, signature, f" at {' '.join(ranks)}"


def of_parallelization() -> Iterator[Property]:
    yield from _of_layouts()
    for operator in OPERATORS.values():
        yield from _of_operator(operator)


def _of_layouts() -> Iterator[Property]:
    yield property_of(
        "combine undoes partition",
        "What is divided among devices and gathered is what it was.",
        [f"combine[{a}](partition[{a}](x)) = x on partition[{a}](x)" for a in DIMS],
        True,
    )
    yield property_of(
        "partition undoes combine",
        "What is gathered and divided again is what it was.",
        [f"partition[{a}](combine[{a}](x)) = x on combine[{a}](x)" for a in DIMS],
        True,
    )
    yield property_of(
        "batch undoes pipeline",
        "What is divided into microbatches and gathered is what it was.",
        [f"batch[{a}](pipeline[{a}](x)) = x on pipeline[{a}](x)" for a in DIMS],
        True,
    )
    yield property_of(
        "pipeline undoes batch",
        "What is gathered and divided into microbatches again is what it was.",
        [f"pipeline[{a}](batch[{a}](x)) = x on batch[{a}](x)" for a in DIMS],
        True,
    )
    for space in ("partition", "combine"):
        yield property_of(
            f"{space} and pipeline interchange",
            "Devices and microbatches divide different dimensions independently.",
            [f"{space}[{a}](pipeline[{b}](x)) = pipeline[{b}]({space}[{a}](x))" for a, b in PAIRS],
            True,
        )
        yield property_of(
            f"{space} and batch interchange",
            "Devices and microbatches divide different dimensions independently.",
            [f"{space}[{a}](batch[{b}](x)) = batch[{b}]({space}[{a}](x))" for a, b in PAIRS],
            True,
        )
    for space in ("replicate", "reduce"):
        for time in ("pipeline", "batch"):
            yield property_of(
                f"{space} and {time} interchange",
                "Microbatches are of each device's tensor.",
                [f"{space}({time}[{a}](x)) = {time}[{a}]({space}(x))" for a in DIMS],
                True,
            )
    for time in ("pipeline", "batch"):
        yield property_of(
            f"shards and {time} interchange",
            "Microbatches are of each device's tensor.",
            [f"shards({time}[{a}](x), {time}[{a}](y)) = {time}[{a}](shards(x, y))" for a in DIMS],
            True,
        )
    yield property_of(
        "add is the sum of two shards",
        "What two devices have of x and y adds up to x + y.",
        ["reduce(shards(x, y)) = add(x, y)"],
        True,
    )
    yield property_of(
        "shards of one tensor are replicas",
        "Two devices that have x have replicas of it.",
        ["shards(x, x) = replicate(x)"],
        True,
    )
    yield property_of(
        "add passes through reduce",
        "Sums of what devices have are the sum of what they add up.",
        ["add(reduce(x), reduce(y)) = reduce(add(x, y))"],
        True,
    )
    yield property_of(
        "bias_add passes through reduce",
        "It is linear in both inputs at once.",
        ["bias_add(reduce(x), reduce(y)) = reduce(bias_add(x, y))"],
        True,
    )
    for op in ("layer_norm", "batch_norm"):
        yield property_of(
            f"{op} passes through reduce of gain and bias",
            "It is linear in both at once.",
            [f"{op}(x, reduce(y), reduce(z)) = reduce({op}(replicate(x), y, z))"],
            True,
        )
    yield property_of(
        "concat passes through reduce",
        "Sums of what devices have are joined before or after they are added up.",
        [f"concat[{a}](reduce(x), reduce(y)) = reduce(concat[{a}](x, y))" for a in DIMS],
        True,
    )


def _call(name: str, arguments: Iterable[str]) -> str:
    return f"{name}({', '.join(arguments)})"


def _of_operator(operator: Operator) -> Iterator[Property]:
    names = _NAMES[: operator.arity]
    variants = list(_variants(operator))
    op = operator.name
    calls = sorted({call for call, _, _ in variants})
    yield property_of(
        f"{op} of replicas",
        "Each device computes it.",
        [
            f"{_call(c, (f'replicate({n})' for n in names))} = replicate({_call(c, names)})"
            for c in calls
        ],
        True,
    )
    pairs = [f"shards({n}, {n}{n})" for n in names]
    yield property_of(
        f"{op} of shards",
        "Each of two devices computes it of what it has.",
        [
            f"{_call(c, pairs)} = shards({_call(c, names)}, {_call(c, (n + n for n in names))})"
            for c in calls
        ],
        True,
    )
    split: dict[str, list[str]] = {}
    pipelined: dict[str, list[str]] = {}
    for call, signature, at in variants:
        for index in signature.splittable:
            places = [split_dim(index, dims) for dims in signature.inputs]
            out = split_dim(index, signature.output)
            label = _label(places)
            whole = _call(
                call,
                (
                    n if p is None else f"combine[{p}]({n})"
                    for n, p in zip(names, places, strict=True)
                ),
            )
            shards = _call(
                call,
                (f"replicate({n})" if p is None else n for n, p in zip(names, places, strict=True)),
            )
            after = "reduce" if out is None else f"combine[{out}]"
            split.setdefault(label, []).append(f"{whole} = {after}({shards}){at}")
            if out is not None:
                later = _call(
                    call,
                    (
                        n if p is None else f"batch[{p}]({n})"
                        for n, p in zip(names, places, strict=True)
                    ),
                )
                pipelined.setdefault(label, []).append(
                    f"{later} = batch[{out}]({_call(call, names)}){at}"
                )
    for label, texts in split.items():
        yield property_of(
            f"{op} divided along {label}",
            "Devices compute it of their shards of this index; one that the output lacks adds up.",
            texts,
            True,
        )
    for label, texts in pipelined.items():
        yield property_of(
            f"{op} in microbatches along {label}",
            "Microbatches of this index are computed one after the other.",
            texts,
            True,
        )
    for linear in _LINEAR.get(op, ()):
        if linear in names:
            yield property_of(
                f"{op} is linear in {linear}",
                "It may be taken of what devices have before this is added up.",
                [
                    f"{_call(c, (f'reduce({n})' if n == linear else n for n in names))} = reduce("
                    f"{_call(c, (n if n == linear else f'replicate({n})' for n in names))})"
                    for c in calls
                ],
                True,
            )


def _label(places: list[int | None]) -> str:
    """An index by the dimensions of the inputs that have it: ``x0``, ``x1 y0``."""
    return " ".join(f"{n}{p}" for n, p in zip(_NAMES, places, strict=False) if p is not None)
