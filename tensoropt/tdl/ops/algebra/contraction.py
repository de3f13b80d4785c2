"""Matrix products, and sums of products named by an equation."""

from __future__ import annotations

from math import prod
from typing import Any

from tensoropt.tdl.any_size import by_index
from tensoropt.tdl.expression import Expression, Literal, Operand, Sum, tensor
from tensoropt.tdl.operator_type import OperatorType
from tensoropt.tdl.ops.subscripts import broadcast
from tensoropt.tdl.registry import describe, record

__all__: list[str] = []


@describe("MatMul", any_size=by_index)
def matmul(a: Operand, b: Operand, *, transpose_a: bool = False, transpose_b: bool = False) -> Any:
    return lambda m, n: Sum(
        lambda k: (a[k, m] if transpose_a else a[m, k]) * (b[n, k] if transpose_b else b[k, n])
    )


@describe("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", any_size=by_index)
def batch_matmul(a: Operand, b: Operand, *, adj_x: bool = False, adj_y: bool = False) -> Any:
    def element(*i: Expression) -> Expression:
        batch, m, n = i[:-2], i[-2], i[-1]
        left = broadcast(a.shape[:-2], batch)
        right = broadcast(b.shape[:-2], batch)
        return Sum(
            lambda k: (
                a[(*left, k, m) if adj_x else (*left, m, k)]
                * b[(*right, n, k) if adj_y else (*right, k, n)]
            )
        )

    return element


record("BatchMatMul", facts=OperatorType(onednn=True, linear="factors"))
record(
    "BatchMatMulV2", "MatMul", facts=OperatorType(onednn=True, linear="factors", affine="product")
)
record("BatchMatMulV3", facts=OperatorType(linear="factors"))


def _labels(term: str, rank: int) -> list[str]:
    """A label per dimension; those of an ellipsis are numbered from the right."""
    if "..." not in term:
        return list(term)
    left, right = term.split("...")
    broadcast = rank - len(left) - len(right)
    return [*left, *(f"e{n}" for n in range(broadcast - 1, -1, -1)), *right]


@describe("Einsum", any_size=by_index)
def einsum(*operands: Operand, equation: str) -> Any:
    """Indices are the equation's labels. A repeated label takes a diagonal and stays whole."""
    given, result = equation.replace(" ", "").split("->")
    terms = [
        _labels(term, operand.rank)
        for term, operand in zip(given.split(","), operands, strict=True)
    ]
    sizes: dict[str, int] = {}
    for term, operand in zip(terms, operands, strict=True):
        for label, size in zip(term, operand.shape, strict=True):
            sizes[label] = max(size, sizes.get(label, 1))
    spread = sum(len(label) > 1 for label in sizes)
    kept = _labels(result, len(result.replace("...", "")) + spread)
    summed = [label for label in sizes if label not in kept]

    def element(*i: Expression) -> Expression:
        def product(*k: Expression) -> Expression:
            at = dict(zip([*kept, *summed], [*i, *k], strict=True))
            factors = [
                operand[
                    tuple(
                        Literal(0) if size == 1 else at[label]
                        for label, size in zip(term, operand.shape, strict=True)
                    )
                ]
                for term, operand in zip(terms, operands, strict=True)
            ]
            total: Expression = factors[0]
            for factor in factors[1:]:
                total = total * factor
            return total

        if not summed:
            return product()
        if prod(sizes[label] for label in summed) == 1:
            return product(*(Literal(0) for _ in summed))
        return Sum(tensor(summed, product), **{label: 1 for label in summed if sizes[label] == 1})

    return tensor(kept, element) if len(set(kept)) == len(kept) else None


record("Einsum", facts=OperatorType(onednn=True, linear="factors"))
