"""Properties of parallelization: splits of operators over devices and over microbatches.

They follow from signatures: each index that can be split gives one property of its operator for
devices and one for microbatches. The inputs in which an operator is linear are listed here.
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
    expanded,
    permutations,
    properties_of,
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
"""For each operator the inputs in which it is linear while the other inputs are fixed."""

_NAMES = ("x", "y", "z")


def _variants(operator: Operator) -> Iterator[tuple[str, Signature, str]]:
    """The text of the operator with its parameters, its signature, and the text of its ranks."""
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
    """Properties of parallelization operators, then of every other operator."""
    yield from properties_of(_of_layouts(), parallel=True)
    for operator in OPERATORS.values():
        yield from properties_of(_of_operator(operator), parallel=True)


def _of_layouts() -> dict[str, str | list[str]]:
    """The equations of parallelization operators, by the names of the properties."""
    inverse = "{undo}[{a}]({do}[{a}](x)) = x on {do}[{a}](x)"
    texts: dict[str, str | list[str]] = {
        f"{undo} undoes {do}": expanded(inverse, undo=[undo], do=[do], a=DIMS)
        for undo, do in (
            *(("combine", "partition"), ("partition", "combine")),
            *(("batch", "pipeline"), ("pipeline", "batch")),
        )
    }
    for space, time in itertools.product(("partition", "combine"), ("pipeline", "batch")):
        texts[f"{space} and {time} interchange"] = [
            f"{space}[{a}]({time}[{b}](x)) = {time}[{b}]({space}[{a}](x))" for a, b in PAIRS
        ]
    for space, time in itertools.product(("replicate", "reduce"), ("pipeline", "batch")):
        texts[f"{space} and {time} interchange"] = [
            f"{space}({time}[{a}](x)) = {time}[{a}]({space}(x))" for a in DIMS
        ]
    for time in ("pipeline", "batch"):
        texts[f"shards and {time} interchange"] = [
            f"shards({time}[{a}](x), {time}[{a}](y)) = {time}[{a}](shards(x, y))" for a in DIMS
        ]
    return texts | {
        "add is the sum of two shards": "reduce(shards(x, y)) = add(x, y)",
        "shards of one tensor are replicas": "shards(x, x) = replicate(x)",
        "add passes through reduce": "add(reduce(x), reduce(y)) = reduce(add(x, y))",
        "bias_add passes through reduce": "bias_add(reduce(x), reduce(y)) = reduce(bias_add(x, y))",
        **{
            f"{op} passes through reduce of gain and bias": (
                f"{op}(x, reduce(y), reduce(z)) = reduce({op}(replicate(x), y, z))"
            )
            for op in ("layer_norm", "batch_norm")
        },
        "concat passes through reduce": expanded(
            "concat[{a}](reduce(x), reduce(y)) = reduce(concat[{a}](x, y))", a=DIMS
        ),
    }


def _call(name: str, arguments: Iterable[str]) -> str:
    return f"{name}({', '.join(arguments)})"


def _of_operator(operator: Operator) -> dict[str, list[str]]:
    """The equations of an operator on replicas, on shards and in microbatches."""
    op, names = operator.name, _NAMES[: operator.arity]
    variants = list(_variants(operator))
    calls = sorted({call for call, _, _ in variants})
    replicas = [f"replicate({n})" for n in names]
    shards = [f"shards({n}, {n}{n})" for n in names]
    doubled = [n + n for n in names]
    texts = {
        f"{op} of replicas": [
            f"{_call(c, replicas)} = replicate({_call(c, names)})" for c in calls
        ],
        f"{op} of shards": [
            f"{_call(c, shards)} = shards({_call(c, names)}, {_call(c, doubled)})" for c in calls
        ],
    }
    microbatches: dict[str, list[str]] = {}
    for call, signature, at in variants:
        for index in signature.splittable:
            dims = [split_dim(index, dims) for dims in signature.inputs]
            out = split_dim(index, signature.output)
            label = _label(dims)
            inputs = list(zip(names, dims, strict=True))
            whole = _call(call, (n if d is None else f"combine[{d}]({n})" for n, d in inputs))
            parts = _call(call, (f"replicate({n})" if d is None else n for n, d in inputs))
            after = "reduce" if out is None else f"combine[{out}]"
            texts.setdefault(f"{op} divided along {label}", []).append(
                f"{whole} = {after}({parts}){at}"
            )
            if out is not None:
                later = _call(call, (n if d is None else f"batch[{d}]({n})" for n, d in inputs))
                microbatches.setdefault(f"{op} in microbatches along {label}", []).append(
                    f"{later} = batch[{out}]({_call(call, names)}){at}"
                )
    texts |= microbatches
    for linear in _LINEAR.get(op, ()):
        reduced = [f"reduce({n})" if n == linear else n for n in names]
        others = [n if n == linear else f"replicate({n})" for n in names]
        texts[f"{op} is linear in {linear}"] = [
            f"{_call(c, reduced)} = reduce({_call(c, others)})" for c in calls
        ]
    return texts


def _label(dims: list[int | None]) -> str:
    """An index by the dimensions of the inputs that have it: ``x0``, ``x1 y0``."""
    return " ".join(f"{n}{d}" for n, d in zip(_NAMES, dims, strict=False) if d is not None)
