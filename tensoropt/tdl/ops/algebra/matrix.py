"""Matrices in the last two dimensions: diagonals, decompositions, solutions; Fourier transforms.

Decompositions, which Tofu's language cannot express, are opaque over the matrix. Every index of
the dimensions before the matrix can be split.
"""

from __future__ import annotations

from typing import Any

from tensoropt.tdl.any_size import by_index
from tensoropt.tdl.expression import Expression, Opaque, Operand, Sum, elementwise, equal
from tensoropt.tdl.ops.subscripts import WHOLE, batched
from tensoropt.tdl.registry import describe
from tensoropt.tensor_spec import TensorSpec

__all__: list[str] = []

Outputs = tuple[TensorSpec, ...]

band = elementwise("band")
where = elementwise("where")


@describe("MatrixBandPart", any_size=by_index)
def matrix_band_part(x: Operand, _lower: Operand, _upper: Operand) -> Any:
    return lambda *i: band(i[-2] - i[-1], x[i])


@describe("MatrixDiag")
def matrix_diag(diagonal: Operand) -> Any:
    return lambda *i: where(equal(i[-2], i[-1]), diagonal[i[:-1]], 0)


@describe("MatrixDiagV2", "MatrixDiagV3")
def matrix_diag_band(diagonal: Operand, *_options: Operand, outputs: Outputs) -> Any:
    own = diagonal.rank - len(outputs[0].shape) + 2
    return batched("MatrixDiag", [(diagonal, own)], outputs, [2])


@describe("MatrixDiagPart", "MatrixDiagPartV2", "MatrixDiagPartV3")
def matrix_diag_part(x: Operand, *_options: Operand, outputs: Outputs) -> Any:
    own = len(outputs[0].shape) - x.rank + 2
    return batched("MatrixDiagPart", [(x, 2)], outputs, [own])


@describe("MatrixSetDiag", "MatrixSetDiagV2", "MatrixSetDiagV3")
def matrix_set_diag(x: Operand, diagonal: Operand, *_options: Operand, outputs: Outputs) -> Any:
    own = diagonal.rank - x.rank + 2
    return batched("MatrixSetDiag", [(x, 2), (diagonal, own)], outputs, [2])


@describe("Cholesky", "MatrixInverse", "MatrixSquareRoot", "MatrixLogarithm")
def of_matrix(x: Operand, *, outputs: Outputs) -> Any:
    return batched("Cholesky", [(x, 2)], outputs, [2])


@describe("CholeskyGrad")
def cholesky_gradient(factor: Operand, gradient: Operand, *, outputs: Outputs) -> Any:
    return batched("CholeskyGrad", [(factor, 2), (gradient, 2)], outputs, [2])


@describe("MatrixDeterminant", "LogMatrixDeterminant")
def determinant(x: Operand, *, outputs: Outputs) -> Any:
    return batched("Determinant", [(x, 2)], outputs, [0] * len(outputs))


@describe("Qr")
def qr(x: Operand, *, outputs: Outputs) -> Any:
    return batched("Qr", [(x, 2)], outputs, [2, 2])


@describe("Svd")
def svd(x: Operand, *, outputs: Outputs) -> Any:
    return batched("Svd", [(x, 2)], outputs, [1, 2, 2])


@describe("SelfAdjointEigV2", "Eig")
def eigenvalues(x: Operand, *, outputs: Outputs) -> Any:
    return batched("Eig", [(x, 2)], outputs, [1, 2])


@describe("Lu")
def lu(x: Operand, *, outputs: Outputs) -> Any:
    return batched("Lu", [(x, 2)], outputs, [2, 1])


@describe("MatrixSolve")
def matrix_solve(matrix: Operand, right: Operand, *, adjoint: bool = False) -> Any:
    """Columns of the right-hand side are independent too."""
    del adjoint

    def element(*i: Expression) -> Expression:
        *b, m, n = i
        return Opaque("Solve")(matrix.at(*b, WHOLE, WHOLE), right.at(*b, WHOLE, n))[m]

    return element


@describe("MatrixTriangularSolve", "BandedTriangularSolve")
def triangular_solve(matrix: Operand, right: Operand, *, outputs: Outputs) -> Any:
    return batched("TriangularSolve", [(matrix, 2), (right, 2)], outputs, [2])


@describe("MatrixSolveLs")
def least_squares(
    matrix: Operand, right: Operand, _regulariser: Operand, *, outputs: Outputs
) -> Any:
    return batched("LeastSquares", [(matrix, 2), (right, 2)], outputs, [2])


@describe("TridiagonalSolve")
def tridiagonal_solve(diagonals: Operand, right: Operand) -> Any:
    def element(*i: Expression) -> Expression:
        *b, m, n = i
        return Opaque("Solve")(diagonals.at(*b, WHOLE, WHOLE), right.at(*b, WHOLE, n))[m]

    return element


@describe("TridiagonalMatMul")
def tridiagonal_matmul(above: Operand, main: Operand, below: Operand, right: Operand) -> Any:
    def element(*i: Expression) -> Expression:
        *b, m, n = i
        diagonals = (x.at(*b, WHOLE, WHOLE) for x in (above, main, below))
        return Opaque("TridiagonalMatMul")(*diagonals, right.at(*b, WHOLE, n))[m]

    return element


@describe("Cross")
def cross(a: Operand, b: Operand, *, outputs: Outputs) -> Any:
    return batched("Cross", [(a, 1), (b, 1)], outputs, [1])


@describe("SparseMatMul")
def sparse_matmul(
    a: Operand, b: Operand, *, transpose_a: bool = False, transpose_b: bool = False
) -> Any:
    """A product of matrices with many zeros, stored like any other."""
    return lambda m, n: Sum(
        lambda k: (a[k, m] if transpose_a else a[m, k]) * (b[n, k] if transpose_b else b[k, n])
    )


def _describe_transforms(dims: int, suffix: str) -> None:
    def transform(x: Operand, *_length: Operand, outputs: Outputs) -> Any:
        return batched("Fourier", [(x, dims)], outputs, [dims])

    describe(*(f"{name}{suffix}" for name in ("FFT", "IFFT", "RFFT", "IRFFT")))(transform)


for _dims, _suffix in ((1, ""), (2, "2D"), (3, "3D")):
    _describe_transforms(_dims, _suffix)
