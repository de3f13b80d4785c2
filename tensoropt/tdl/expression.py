"""The expressions of the tensor description language (Tofu, section 4.1).

A tensor is a lambda from index variables to the value of one element. Inside it: index variables,
elements of operands (``a[i, k]``, ``a[b, :, :]`` for a slice), constants, arithmetic, named
elementwise functions, reductions over further indices and opaque functions. Tofu's conv1d is::

    def conv1d(data, filters):
        return lambda b, co, x: Sum(
            lambda ci, dx: data[b, ci, x + dx] * filters[ci, co, dx]
        )

Two scalars are compared with `equal`, not with ``==``, which compares the identity of nodes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from tensoropt.errors import DescriptionError
from tensoropt.tensor_spec import TensorSpec

__all__ = [
    "Arithmetic",
    "Call",
    "Element",
    "Expression",
    "IndexVariable",
    "Literal",
    "Max",
    "Mean",
    "Min",
    "Opaque",
    "OpaqueValue",
    "Operand",
    "Prod",
    "Reduction",
    "Sum",
    "elementwise",
    "equal",
    "lift",
    "parameters",
    "tensor",
]

Scalar = int | float | bool


class Expression:
    """A scalar: the value of one element of a tensor, or a subscript."""

    __slots__ = ()

    def __add__(self, other: Expression | Scalar) -> Arithmetic:
        return Arithmetic("+", self, lift(other))

    def __radd__(self, other: Scalar) -> Arithmetic:
        return Arithmetic("+", lift(other), self)

    def __sub__(self, other: Expression | Scalar) -> Arithmetic:
        return Arithmetic("-", self, lift(other))

    def __rsub__(self, other: Scalar) -> Arithmetic:
        return Arithmetic("-", lift(other), self)

    def __mul__(self, other: Expression | Scalar) -> Arithmetic:
        return Arithmetic("*", self, lift(other))

    def __rmul__(self, other: Scalar) -> Arithmetic:
        return Arithmetic("*", lift(other), self)

    def __truediv__(self, other: Expression | Scalar) -> Arithmetic:
        return Arithmetic("/", self, lift(other))

    def __rtruediv__(self, other: Scalar) -> Arithmetic:
        return Arithmetic("/", lift(other), self)

    def __floordiv__(self, other: Expression | Scalar) -> Arithmetic:
        return Arithmetic("//", self, lift(other))

    def __mod__(self, other: Expression | Scalar) -> Arithmetic:
        return Arithmetic("%", self, lift(other))

    def __neg__(self) -> Arithmetic:
        return Arithmetic("*", Literal(-1), self)

    def __lt__(self, other: Expression | Scalar) -> Arithmetic:
        return Arithmetic("<", self, lift(other))

    def __le__(self, other: Expression | Scalar) -> Arithmetic:
        return Arithmetic("<=", self, lift(other))

    def __gt__(self, other: Expression | Scalar) -> Arithmetic:
        return Arithmetic(">", self, lift(other))

    def __ge__(self, other: Expression | Scalar) -> Arithmetic:
        return Arithmetic(">=", self, lift(other))

    def __bool__(self) -> NoReturn:
        raise DescriptionError(
            "an expression has no truth value while an operator is described. Use an "
            'elementwise function, such as elementwise("where")(condition, a, b).'
        )


@dataclass(frozen=True, slots=True, eq=False)
class IndexVariable(Expression):
    """An argument of a tensor's or a reduction's lambda. Equal names are the same index."""

    name: str
    extent: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Literal(Expression):
    """A constant."""

    value: Scalar


@dataclass(frozen=True, slots=True, eq=False)
class Arithmetic(Expression):
    """``left sign right``; sign is one of + - * / // % < <= > >= ==."""

    sign: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True, eq=False)
class Call(Expression):
    """A named elementwise function of scalars; one call takes ``operations`` operations."""

    function: str
    arguments: tuple[Expression, ...]
    operations: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Element(Expression):
    """An element of an operand, or a slice of it where a subscript is None.

    Only an opaque function takes a slice. A ``padded`` operand reads as zero outside its shape.
    """

    operand: Operand
    subscripts: tuple[Expression | None, ...]
    padded: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Reduction(Expression):
    """A reduction of ``body`` over ``indices``; ``averaged``: a sum divided by their extents."""

    reducer: str
    indices: tuple[IndexVariable, ...]
    body: Expression
    averaged: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class OpaqueValue(Expression):
    """An element of the result of an opaque function."""

    function: str
    arguments: tuple[Expression, ...]
    subscripts: tuple[Expression, ...] = ()

    def __getitem__(self, subscripts: Any) -> OpaqueValue:
        parts = subscripts if isinstance(subscripts, tuple) else (subscripts,)
        return OpaqueValue(self.function, self.arguments, tuple(map(lift, parts)))

    def __iter__(self) -> Iterator[Expression]:
        raise DescriptionError(
            "the result of an opaque function is subscripted, not iterated over."
        )


class Opaque:
    """A function that the language cannot express, for instance Cholesky. It reads slices whole."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *arguments: Expression | Scalar) -> OpaqueValue:
        return OpaqueValue(self.name, tuple(map(lift, arguments)))


class Operand:
    """An input of an operator, as an argument of its description.

    Args:
        position: number of the input.
        spec: its shape and element type.
        constant: whether the description may read ``value``: it declared the operand constant.
        padded: whether elements outside the shape may be read; they are zeros.
    """

    __slots__ = ("_constant", "_padded", "_spec", "position")

    def __init__(
        self, position: int, spec: TensorSpec, *, constant: bool = False, padded: bool = False
    ) -> None:
        self.position = position
        self._spec = spec
        self._constant = constant
        self._padded = padded

    @property
    def shape(self) -> tuple[int, ...]:
        """The global shape."""
        return self._spec.shape

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self._spec.shape)

    @property
    def dtype(self) -> str:
        """TensorFlow's name of the element type."""
        return self._spec.dtype

    @property
    def value(self) -> npt.NDArray[np.generic]:
        """The value of a constant operand. Derivations are cached by these values.

        Raises:
            DescriptionError: if the description did not declare the operand constant.
        """
        if not self._constant or self._spec.value is None:
            raise DescriptionError(
                f"a description reads the value of constant operands only. Got input "
                f"{self.position}. Register it with constant_operands=({self.position},)."
            )
        return self._spec.value

    @property
    def padded(self) -> Operand:
        """The same operand, zero outside its shape."""
        return Operand(self.position, self._spec, constant=self._constant, padded=True)

    def __getitem__(self, subscripts: Any) -> Element:
        parts = subscripts if isinstance(subscripts, tuple) else (subscripts,)
        if len(parts) != self.rank:
            raise DescriptionError(
                f"an element has one subscript per dimension. Got {len(parts)} for input "
                f"{self.position} of shape {self.shape}."
            )
        return Element(self, tuple(map(_subscript, parts)), self._padded)

    def at(self, *subscripts: Any) -> Element:
        """Return the element, or slice, at a number of subscripts that depends on shapes."""
        return self[subscripts]

    def __iter__(self) -> Iterator[Element]:
        raise DescriptionError("an operand is subscripted with indices, not iterated over.")


def lift(value: Expression | Scalar) -> Expression:
    """Return a Python number as an expression; an expression is returned as it is.

    Raises:
        DescriptionError: for anything else.
    """
    if isinstance(value, Expression):
        return value
    if isinstance(value, (bool, int, float)):
        return Literal(value)
    if isinstance(value, np.generic):
        return Literal(value.item())
    raise DescriptionError(
        f"an expression is made of indices, elements of operands and numbers. Got {value!r}."
    )


def _subscript(part: Any) -> Expression | None:
    if isinstance(part, slice):
        if part != slice(None):
            raise DescriptionError(
                f"a slice takes the whole dimension. Got {part}. Shift the index instead, as in "
                f"a[i + 2]."
            )
        return None
    return lift(part)


def elementwise(name: str, operations: int = 1) -> Callable[..., Call]:
    """Return a named function from scalars to a scalar with ``operations`` operations a call."""

    def call(*arguments: Expression | Scalar) -> Call:
        return Call(name, tuple(map(lift, arguments)), operations)

    return call


def equal(left: Expression | Scalar, right: Expression | Scalar) -> Arithmetic:
    """Return an expression that is true if two scalars are equal."""
    return Arithmetic("==", lift(left), lift(right))


def tensor(names: Sequence[str], body: Callable[..., Any]) -> Callable[..., Any]:
    """Return the lambda ``body`` with named indices, whose number may depend on shapes."""

    def function(*indices: Expression) -> Any:
        return body(*indices)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([inspect.Parameter(name, kind) for name in names])
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def parameters(function: Callable[..., Any], rank: int) -> tuple[str, ...]:
    """Return the names of a lambda's indices; a variadic ``*i`` is i0, i1, ... up to ``rank``.

    Keyword-only parameters are no indices: they bind the value of a loop's variable.

    Raises:
        DescriptionError: if the lambda takes another number of indices than ``rank``.
    """
    names: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            names += [f"{parameter.name}{n}" for n in range(rank - len(names))]
        elif parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            names.append(parameter.name)
    if len(names) != rank or len(set(names)) != rank:
        raise DescriptionError(
            f"a tensor's lambda takes one index per dimension. Got ({', '.join(names)}) for "
            f"rank {rank}."
        )
    return tuple(names)


def _reduce(
    reducer: str, body: Callable[..., Any], rank: int | None, extents: dict[str, int], mean: bool
) -> Reduction:
    names = parameters(body, _arity(body) if rank is None else rank)
    if unknown := sorted(set(extents) - set(names)):
        raise DescriptionError(
            f"extents name the reduction's own indices ({', '.join(names)}). Got "
            f"{', '.join(unknown)}."
        )
    indices = tuple(IndexVariable(name, extents.get(name)) for name in names)
    return Reduction(reducer, indices, lift(body(*indices)), mean)


def _arity(body: Callable[..., Any]) -> int:
    kinds = [parameter.kind for parameter in inspect.signature(body).parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        raise DescriptionError(
            "a reduction over a variable number of indices has a rank: Sum(..., rank=2)."
        )
    return len(kinds)


def Sum(body: Callable[..., Any], *, rank: int | None = None, **extents: int) -> Reduction:
    """The sum of ``body`` over its lambda's indices.

    Args:
        body: a lambda from indices to an expression.
        rank: the number of indices of a variadic lambda (``lambda *k: ...``).
        extents: extents by index name, if they do not follow from the shape of an operand.
    """
    return _reduce("sum", body, rank, extents, mean=False)


def Mean(body: Callable[..., Any], *, rank: int | None = None, **extents: int) -> Reduction:
    """The sum divided by the number of its points; arguments as in `Sum`."""
    return _reduce("sum", body, rank, extents, mean=True)


def Max(body: Callable[..., Any], *, rank: int | None = None, **extents: int) -> Reduction:
    """The largest value, or whether any is true; arguments as in `Sum`."""
    return _reduce("max", body, rank, extents, mean=False)


def Min(body: Callable[..., Any], *, rank: int | None = None, **extents: int) -> Reduction:
    """The smallest value, or whether all are true; arguments as in `Sum`."""
    return _reduce("min", body, rank, extents, mean=False)


def Prod(body: Callable[..., Any], *, rank: int | None = None, **extents: int) -> Reduction:
    """The product; arguments as in `Sum`."""
    return _reduce("prod", body, rank, extents, mean=False)
