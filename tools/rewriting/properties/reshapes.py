"""Properties of transposes and reshapes, tables and sums."""

from __future__ import annotations

from collections.abc import Iterator

from tensoropt.rewriting.algebra.typing import MOST_DIMS
from tensoropt.rewriting.operators import POINTWISE
from tools.rewriting.properties.equation import (
    DIMS,
    PAIRS,
    Property,
    permutations,
    property_of,
    transposed,
)

__all__ = ["of_reshapes", "of_tables_and_sums"]

_BEFORE_LAST = [(a, r) for r in range(3, MOST_DIMS + 1) for a in range(r - 2)]
_T = {p: transposed(p) for p in permutations()}


def of_reshapes() -> Iterator[Property]:
    pairs = [(p, q) for p in permutations() for q in permutations() if len(p) == len(q)]
    inverse = [(p, q) for p, q in pairs if [q[i] for i in p] == list(range(len(p)))]
    yield property_of(
        "transposes cancel",
        "A permutation of dimensions and its inverse give the tensor.",
        [f"{_T[p]}({_T[q]}(x)) = x on {_T[q]}(x)" for p, q in inverse],
    )
    yield property_of(
        "transposes compose",
        "Two permutations of dimensions are one.",
        [
            f"{_T[p]}({_T[q]}(x)) = {_T[tuple(q[i] for i in p)]}(x)"
            for p, q in pairs
            if (p, q) not in inverse
        ],
    )
    yield property_of(
        "functions of elements pass through transpose",
        "f(x^T) = f(x)^T.",
        [f"{f}({_T[p]}(x)) = {_T[p]}({f}(x))" for f in POINTWISE for p in permutations()],
    )
    for op in ("add", "mul"):
        yield property_of(
            f"{op} passes through transpose",
            f"{op} of transposes is the transpose of {op}.",
            [f"{op}({_T[p]}(x), {_T[p]}(y)) = {_T[p]}({op}(x, y))" for p in permutations()],
        )
    yield property_of(
        "scale passes through transpose",
        "x^T c = (x c)^T.",
        [f"scale({_T[p]}(x), c) = {_T[p]}(scale(x, c))" for p in permutations()],
    )
    yield property_of(
        "concat passes through transpose",
        "Transposes joined are the transpose of what is joined along another dimension.",
        [
            f"{_T[p]}(concat[{a}](x, y)) = concat[{p.index(a)}]({_T[p]}(x), {_T[p]}(y))"
            for p in permutations()
            for a in range(len(p))
        ],
    )
    yield property_of(
        "softmax passes through transpose",
        "Softmax does not mind the order of the other dimensions.",
        [
            f"softmax({_T[p]}(x)) = {_T[p]}(softmax(x))"
            for p in permutations()
            if p[-1] == len(p) - 1
        ],
    )
    for op, more in (("bias_add", ", b"), ("layer_norm", ", g, b")):
        yield property_of(
            f"{op} passes through transpose",
            "The order of the dimensions before the last does not matter.",
            [
                f"{op}({_T[p]}(x){more}) = {_T[p]}({op}(x{more}))"
                for p in permutations()
                if p[-1] == len(p) - 1
            ],
        )
    yield property_of(
        "unflatten undoes flatten",
        "Two dimensions made one are made two again.",
        [f"unflatten[{a}](flatten[{a}](x)) = x on flatten[{a}](x)" for a in DIMS[:-1]],
    )
    yield property_of(
        "flatten undoes unflatten",
        "A dimension made two is made one again.",
        [f"flatten[{a}](unflatten[{a}](x)) = x on unflatten[{a}](x)" for a in DIMS[:-1]],
    )
    yield property_of(
        "functions of elements pass through flatten",
        "They do not mind the shape.",
        [f"{f}(flatten[{a}](x)) = flatten[{a}]({f}(x))" for f in POINTWISE for a in DIMS[:-1]],
    )
    for op in ("add", "mul"):
        yield property_of(
            f"{op} passes through flatten",
            f"{op} does not mind the shape.",
            [
                f"{op}(flatten[{a}](x), flatten[{a}](y)) = flatten[{a}]({op}(x, y))"
                for a in DIMS[:-1]
            ],
        )
    yield property_of(
        "scale passes through flatten",
        "It does not mind the shape.",
        [f"scale(flatten[{a}](x), c) = flatten[{a}](scale(x, c))" for a in DIMS[:-1]],
    )
    yield property_of(
        "concat passes through flatten",
        "Dimensions that are not joined may be one or two.",
        [
            f"concat[{b}](flatten[{a}](x), flatten[{a}](y)) = "
            f"flatten[{a}](concat[{b if b < a else b + 1}](x, y))"
            for a in DIMS[:-1]
            for b in DIMS[:-1]
            if a != b
        ],
    )
    yield property_of(
        "softmax passes through flatten",
        "Dimensions before the last may be one or two.",
        [f"softmax(flatten[{a}](x)) = flatten[{a}](softmax(x)) at x:{r}" for a, r in _BEFORE_LAST],
    )
    yield property_of(
        "bias_add passes through flatten",
        "Dimensions before the last may be one or two.",
        [
            f"bias_add(flatten[{a}](x), b) = flatten[{a}](bias_add(x, b)) at x:{r}"
            for a, r in _BEFORE_LAST
        ],
    )
    yield property_of(
        "layer_norm passes through flatten",
        "Dimensions before the last may be one or two.",
        [
            f"layer_norm(flatten[{a}](x), g, b) = flatten[{a}](layer_norm(x, g, b)) at x:{r}"
            for a, r in _BEFORE_LAST
        ],
    )


def of_tables_and_sums() -> Iterator[Property]:
    yield property_of(
        "embedding of concatenated columns",
        "Columns of a table are columns of what is looked up.",
        ["embedding(concat[1](x, y), z) = concat[1](embedding(x, z), embedding(y, z))"],
    )
    yield property_of(
        "embedding of concatenated numbers",
        "Rows are looked up one by one.",
        ["embedding(x, concat[0](y, z)) = concat[0](embedding(x, y), embedding(x, z))"],
    )
    yield property_of(
        "functions of elements pass through embedding",
        "They may be taken of the table.",
        [f"{f}(embedding(x, y)) = embedding({f}(x), y)" for f in POINTWISE],
    )
    for op in ("add", "mul"):
        yield property_of(
            f"{op} passes through embedding",
            f"{op} may be of the tables.",
            [f"{op}(embedding(x, z), embedding(y, z)) = embedding({op}(x, y), z)"],
        )
    yield property_of(
        "scale passes through embedding",
        "It may be of the table.",
        ["scale(embedding(x, y), c) = embedding(scale(x, c), y)"],
    )
    yield property_of(
        "bias_add passes through embedding",
        "It may be of the table.",
        ["bias_add(embedding(x, y), b) = embedding(bias_add(x, b), y)"],
    )
    yield property_of(
        "matmul passes through embedding",
        "The table may be multiplied.",
        ["matmul(embedding(x, y), z) = embedding(matmul(x, z), y)"],
    )
    yield property_of(
        "reduce_sum distributes over add",
        "A sum is linear.",
        [f"reduce_sum[{a}](add(x, y)) = add(reduce_sum[{a}](x), reduce_sum[{a}](y))" for a in DIMS],
    )
    yield property_of(
        "scale passes through reduce_sum",
        "A sum is linear.",
        [f"scale(reduce_sum[{a}](x), c) = reduce_sum[{a}](scale(x, c))" for a in DIMS],
    )
    yield property_of(
        "reduce_sum of concatenated summands",
        "Sums of two parts add up.",
        [
            f"reduce_sum[{a}](concat[{a}](x, y)) = add(reduce_sum[{a}](x), reduce_sum[{a}](y))"
            for a in DIMS
        ],
    )
    yield property_of(
        "reduce_sum passes through concat",
        "Sums are of each place of the other dimensions.",
        [
            f"reduce_sum[{a}](concat[{b}](x, y)) = "
            f"concat[{b if b < a else b - 1}](reduce_sum[{a}](x), reduce_sum[{a}](y))"
            for a, b in PAIRS
        ],
    )
    yield property_of(
        "sums interchange",
        "Over two dimensions in either order.",
        [
            f"reduce_sum[{a}](reduce_sum[{b}](x)) = reduce_sum[{b - 1}](reduce_sum[{a}](x))"
            for a in DIMS
            for b in DIMS
            if a < b
        ],
    )
    yield property_of(
        "reduce_sum passes through transpose",
        "The sum of a transpose is over another dimension.",
        [_sum_of_transpose(p, a) for p in permutations() for a in range(len(p))],
    )
    yield property_of(
        "sums over flattened dimensions",
        "A sum over two dimensions made one is over one and the other.",
        [
            f"reduce_sum[{a}](flatten[{a}](x)) = reduce_sum[{a}](reduce_sum[{a}](x))"
            for a in DIMS[:-1]
        ],
    )
    yield property_of(
        "reduce_sum passes through flatten",
        "A sum over other dimensions leaves these to be made one.",
        [
            f"reduce_sum[{b if b < a else b - 1}](flatten[{a}](x)) = "
            f"flatten[{a - 1 if b < a else a}](reduce_sum[{b}](x))"
            for a in DIMS[:-1]
            for b in DIMS
            if b not in (a, a + 1)
        ],
    )


def _sum_of_transpose(permutation: tuple[int, ...], dim: int) -> str:
    """The sum over a dimension of a transpose, as a transpose of a sum, if not the sum itself."""
    own = permutation[dim]
    rest = [p - (p > own) for n, p in enumerate(permutation) if n != dim]
    left, right = f"reduce_sum[{dim}]({_T[permutation]}(x))", f"reduce_sum[{own}](x)"
    if rest == sorted(rest):
        return f"{left} = {right} on {left} on {_T[permutation]}(x)"
    return f"{left} = {_T[tuple(rest)]}({right})"
