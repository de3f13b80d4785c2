"""Properties of lookups in tables, and of sums over a dimension."""

from __future__ import annotations

from collections.abc import Iterator

from tensoropt.rewriting.operators import POINTWISE
from tools.rewriting.properties.equation import (
    DIMS,
    PAIRS,
    Property,
    expanded,
    permutations,
    properties_of,
    transposed,
)

__all__ = ["of_tables_and_sums"]


def of_tables_and_sums() -> Iterator[Property]:
    """Properties of lookups, then of sums."""
    yield from properties_of(
        {
            "embedding of concatenated columns": (
                "embedding(concat[1](x, y), z) = concat[1](embedding(x, z), embedding(y, z))"
            ),
            "embedding of concatenated numbers": (
                "embedding(x, concat[0](y, z)) = concat[0](embedding(x, y), embedding(x, z))"
            ),
            "functions of elements pass through embedding": expanded(
                "{f}(embedding(x, y)) = embedding({f}(x), y)", f=POINTWISE
            ),
            **{
                f"{op} passes through embedding": (
                    f"{op}(embedding(x, z), embedding(y, z)) = embedding({op}(x, y), z)"
                )
                for op in ("add", "mul")
            },
            **{
                f"{op} passes through embedding": (
                    f"{op}(embedding(x, y), {other}) = embedding({op}(x, {other}), y)"
                )
                for op, other in (("scale", "c"), ("bias_add", "b"), ("matmul", "z"))
            },
        }
    )
    yield from _of_sums()


def _of_sums() -> Iterator[Property]:
    return properties_of(
        {
            "reduce_sum distributes over add": expanded(
                "reduce_sum[{a}](add(x, y)) = add(reduce_sum[{a}](x), reduce_sum[{a}](y))", a=DIMS
            ),
            "scale passes through reduce_sum": expanded(
                "scale(reduce_sum[{a}](x), c) = reduce_sum[{a}](scale(x, c))", a=DIMS
            ),
            "reduce_sum of concatenated summands": expanded(
                "reduce_sum[{a}](concat[{a}](x, y)) = add(reduce_sum[{a}](x), reduce_sum[{a}](y))",
                a=DIMS,
            ),
            "reduce_sum passes through concat": [
                f"reduce_sum[{a}](concat[{b}](x, y)) = "
                f"concat[{b if b < a else b - 1}](reduce_sum[{a}](x), reduce_sum[{a}](y))"
                for a, b in PAIRS
            ],
            "sums interchange": [
                f"reduce_sum[{a}](reduce_sum[{b}](x)) = reduce_sum[{b - 1}](reduce_sum[{a}](x))"
                for a in DIMS
                for b in DIMS
                if a < b
            ],
            "reduce_sum passes through transpose": [
                _sum_of_transpose(p, a) for p in permutations() for a in range(len(p))
            ],
            "sums over flattened dimensions": expanded(
                "reduce_sum[{a}](flatten[{a}](x)) = reduce_sum[{a}](reduce_sum[{a}](x))",
                a=DIMS[:-1],
            ),
            "reduce_sum passes through flatten": [
                f"reduce_sum[{b if b < a else b - 1}](flatten[{a}](x)) = "
                f"flatten[{a - 1 if b < a else a}](reduce_sum[{b}](x))"
                for a in DIMS[:-1]
                for b in DIMS
                if b not in (a, a + 1)
            ],
        }
    )


def _sum_of_transpose(permutation: tuple[int, ...], dim: int) -> str:
    """The equation of a sum over a dimension of a transpose: a sum, transposed where necessary."""
    summed = permutation[dim]
    rest = [p - (p > summed) for n, p in enumerate(permutation) if n != dim]
    transpose = transposed(permutation)
    left, right = f"reduce_sum[{dim}]({transpose}(x))", f"reduce_sum[{summed}](x)"
    if rest == sorted(rest):
        return f"{left} = {right} on {left} on {transpose}(x)"
    return f"{left} = {transposed(tuple(rest))}({right})"
