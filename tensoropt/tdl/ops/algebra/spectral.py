"""Fourier transforms of the last dimensions."""

from __future__ import annotations

from typing import Any

from tensoropt.tdl.expression import Operand
from tensoropt.tdl.ops.whole_dimensions import batched
from tensoropt.tdl.registry import describe
from tensoropt.tensor_spec import TensorSpec

__all__: list[str] = []

Outputs = tuple[TensorSpec, ...]


def _describe_transforms(dims: int, suffix: str) -> None:
    def transform(x: Operand, *_length: Operand, outputs: Outputs) -> Any:
        return batched("Fourier", [(x, dims)], outputs, [dims])

    describe(*(f"{name}{suffix}" for name in ("FFT", "IFFT", "RFFT", "IRFFT")))(transform)


for _dims, _suffix in ((1, ""), (2, "2D"), (3, "3D")):
    _describe_transforms(_dims, _suffix)
