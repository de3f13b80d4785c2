"""Matrix products."""

from __future__ import annotations

from typing import Any

from tensoropt.tdl.any_size import by_index
from tensoropt.tdl.expression import Expression, Operand, Sum
from tensoropt.tdl.operator_type import OperatorType
from tensoropt.tdl.ops.broadcasting import broadcast
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
