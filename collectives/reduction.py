"""Which element types can be reduced, and into which type a reduction converts them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from collectives.buffers import Array, fresh_copy
from collectives.errors import DTypeError, ReducerError

__all__ = ["REDUCERS", "Wire", "restored", "wire"]

REDUCERS = ("sum", "max", "min", "prod")

# Half precision is reduced in float32: with 8 bits of mantissa a sum over many ranks is inaccurate.
_WIDENED = frozenset({"float16", "bfloat16"})
_ORDERED = frozenset(
    {"float32", "float64", "int8", "int16", "int32", "int64"}
    | {"uint8", "uint16", "uint32", "uint64"}
)
_UNORDERED = frozenset({"complex64", "complex128"})
_LOGICAL = {"sum": "max", "max": "max", "min": "min", "prod": "min"}


@dataclass(frozen=True, slots=True)
class Wire:
    """The element type and the reducer with which a transport runs a reduction.

    Attributes:
        dtype: type to which elements are converted before the reduction, and back from after it.
        reducer: the reducer that the transport applies to the converted elements.
    """

    dtype: np.dtype[Any]
    reducer: str


def wire(dtype: np.dtype[Any], reducer: str) -> Wire:
    """The elements and the reducer with which a transport reduces ``dtype``.

    Half precision travels as float32. Booleans travel as bytes, sum and max as logical or, min
    and prod as logical and.

    Raises:
        ReducerError: if ``reducer`` is unknown.
        DTypeError: if MPI has no such reduction: of strings, say, or the largest complex number.
    """
    if reducer not in REDUCERS:
        raise ReducerError(f"a reducer is one of {', '.join(REDUCERS)}. Got {reducer!r}.")
    name = dtype.name
    if name == "bool":
        return Wire(np.dtype(np.uint8), _LOGICAL[reducer])
    if name in _WIDENED:
        return Wire(np.dtype(np.float32), reducer)
    if name in _ORDERED or (name in _UNORDERED and reducer in ("sum", "prod")):
        return Wire(dtype.newbyteorder("="), reducer)
    if name in _UNORDERED:
        raise DTypeError(
            f"complex numbers have no order, so they reduce with sum and prod only. Got {reducer} "
            f"of {name}: reduce their absolute values instead."
        )
    raise DTypeError(
        "only real and complex numbers, integers and booleans of at most 64 bits a part can be "
        f"reduced. Got {reducer} of {name}: convert the elements first."
    )


def restored(result: Array, dtype: np.dtype[Any]) -> Array:
    """A reduction's result, as it travelled, in the dtype in which its summands came."""
    if result.dtype == dtype:
        return result
    if dtype.itemsize == result.dtype.itemsize and dtype == np.bool_:
        return result.view(dtype)
    return fresh_copy(result, dtype)
