"""Cases: matrices in the last two dimensions, and Fourier transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
from tdl_cases.values import Array, Row, axis, complex_, real, scalar


def definite(*batch: int) -> Array:
    """Symmetric matrices with eigenvalues well apart."""
    a = real(*batch, 4, 4)
    product = a @ np.swapaxes(a, -1, -2) * np.float32(0.1)
    return product + np.diag(np.arange(1, 9, 2)).astype(np.float32)


def general(*batch: int) -> Array:
    return real(*batch, 4, 4) + 6 * np.eye(4, dtype=np.float32)


BAND = axis(-1, 1)

CASES: dict[str, list[Row]] = {
    "MatrixBandPart": [([real(6, 6, 4, 4), scalar(1), scalar(0)], {}, "i0 i1")],
    "MatrixDiag": [([real(6, 4)], {}, "i0")],
    "MatrixDiagV2": [([real(6, 3, 4), BAND, scalar(4), scalar(4), np.float32(0)], {}, "b0")],
    "MatrixDiagV3": [
        ([real(6, 3, 4), BAND, scalar(4), scalar(4), np.float32(0)], {}, "b0"),
        ([real(6, 4), scalar(0), scalar(-1), scalar(-1), np.float32(0)], {}, "b0"),
    ],
    "MatrixDiagPart": [([real(6, 4, 5)], {}, "b0")],
    "MatrixDiagPartV2": [([real(6, 4, 5), BAND, np.float32(0)], {}, "b0")],
    "MatrixDiagPartV3": [
        ([real(6, 4, 5), BAND, np.float32(0)], {}, "b0"),
        ([real(6, 4, 5), scalar(0), np.float32(0)], {}, "b0"),
    ],
    "MatrixSetDiag": [([real(6, 4, 5), real(6, 4)], {}, "b0")],
    "MatrixSetDiagV2": [([real(6, 4, 5), real(6, 4), scalar(0)], {}, "b0")],
    "MatrixSetDiagV3": [([real(6, 4, 5), real(6, 3, 4), BAND], {}, "b0")],
    "Cholesky": [([definite(6, 2)], {}, "b0 b1")],
    "CholeskyGrad": [([np.linalg.cholesky(definite(6)), real(6, 4, 4)], {}, "b0")],
    "MatrixInverse": [([general(6)], {}, "b0"), ([general(6)], {"adjoint": True}, "b0")],
    "MatrixSquareRoot": [([definite(6)], {}, "b0")],
    "MatrixLogarithm": [([definite(6).astype(np.complex64)], {}, "b0")],
    "MatrixDeterminant": [([general(6, 2)], {}, "b0 b1")],
    "LogMatrixDeterminant": [([general(6)], {}, "b0")],
    "Qr": [([general(6)], {}, "b0"), ([real(6, 4, 3)], {}, "b0")],
    "Svd": [
        ([general(6)], {}, "b0"),
    ],
    "SelfAdjointEigV2": [
        ([definite(6)], {}, "b0"),
    ],
    "Eig": [([definite(6)], {"Tout": np.complex64}, "b0")],
    "Lu": [([general(6)], {}, "b0")],
    "MatrixSolve": [([general(6), real(6, 4, 6)], {"adjoint": True}, "i0 i2")],
    "MatrixTriangularSolve": [
        ([general(6), real(6, 4, 2)], {}, "b0"),
        ([general(1), real(6, 4, 2)], {"lower": False}, "b0"),
        ([general(), real(6, 4, 2)], {}, "b0"),
    ],
    "BandedTriangularSolve": [([1 + np.abs(real(6, 2, 4)), real(6, 4, 2)], {}, "b0")],
    "MatrixSolveLs": [([real(6, 5, 3), real(6, 5, 2), np.float64(0.1)], {}, "b0")],
    "TridiagonalSolve": [
        ([real(6, 3, 4) + axis(0, 9, 0)[:, None].astype(np.float32), real(6, 4, 6)], {}, "i0 i2")
    ],
    "TridiagonalMatMul": [
        ([real(6, 1, 4), real(6, 1, 4), real(6, 1, 4), real(6, 4, 6)], {}, "i0 i2")
    ],
    "Cross": [([real(6, 2, 3), real(6, 2, 3)], {}, "b0 b1")],
    "SparseMatMul": [
        ([real(6, 12), real(12, 6)], {}, "m n k"),
        ([real(12, 6), real(6, 12)], {"transpose_a": True, "transpose_b": True}, "m n k"),
    ],
}


def _transforms(suffix: str, dims: int) -> dict[str, list[Row]]:
    shape = (6, 4, 2, 4)[: dims + 1]
    half = (*shape[:-1], shape[-1] // 2 + 1)
    length: Any = np.array(shape[1:], np.int32)
    return {
        f"FFT{suffix}": [([complex_(*shape)], {}, "b0")],
        f"IFFT{suffix}": [([complex_(*shape)], {}, "b0")],
        f"RFFT{suffix}": [([real(*shape), length], {}, "b0")],
        f"IRFFT{suffix}": [([complex_(*half), length], {}, "b0")],
    }


for _dims, _suffix in ((1, ""), (2, "2D"), (3, "3D")):
    CASES |= _transforms(_suffix, _dims)
