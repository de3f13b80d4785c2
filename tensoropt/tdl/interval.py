"""Symbolic interval arithmetic over index ranges (Tofu, section 4.2, equation 1, Figure 4).

The paper writes an interval as ``[sum l_i X_i + c, sum u_i X_i + c]`` over symbolic upper bounds
X_i. Here X_i is the *inclusive* maximum of index i, its extent less one: the range of ``x + dx`` is
exactly ``[0, X + DX]``. Each end has a constant of its own, since the halves of ``[0, X]`` are
``[0, X/2 - 1/2]`` and ``[X/2 + 1/2, X]``. Beyond Figure 4, a negative factor and subtraction swap
the ends, and there are floor division and modulo, which a reshape needs. These two are exact if the
ends lie on multiples of the divisor; a dimension can only be cut there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NoReturn

from tensoropt.errors import DescriptionError

__all__ = ["Interval"]

Number = int | Fraction


@dataclass(frozen=True, slots=True)
class Interval:
    """An inclusive range whose ends are affine in the maxima of the indices.

    Attributes:
        lower: coefficient of every index's maximum in the lower end.
        upper: the same for the upper end.
        low: constant of the lower end.
        high: constant of the upper end.
    """

    lower: tuple[Number, ...]
    upper: tuple[Number, ...]
    low: Number
    high: Number

    @classmethod
    def constant(cls, symbols: int, value: Number) -> Interval:
        """Return the range of ``value`` alone, over ``symbols`` indices."""
        zero = (0,) * symbols
        return cls(zero, zero, value, value)

    @classmethod
    def whole(cls, symbols: int, position: int) -> Interval:
        """``[0, X]``: the paper's ``ZV[u = 1]``."""
        return cls._of(symbols, position, 0, 1, 0, 0)

    @classmethod
    def first_half(cls, symbols: int, position: int) -> Interval:
        """``[0, X/2 - 1/2]``: the paper's ``ZV[u = 1/2]``."""
        half = Fraction(1, 2)
        return cls._of(symbols, position, 0, half, 0, -half)

    @classmethod
    def second_half(cls, symbols: int, position: int) -> Interval:
        """``[X/2 + 1/2, X]``: the paper's ``ZV[l = 1/2, u = 1]``."""
        half = Fraction(1, 2)
        return cls._of(symbols, position, half, 1, half, 0)

    @classmethod
    def _of(
        cls, symbols: int, at: int, lower: Number, upper: Number, low: Number, high: Number
    ) -> Interval:
        before, after = (0,) * at, (0,) * (symbols - at - 1)
        return cls((*before, lower, *after), (*before, upper, *after), low, high)

    @property
    def is_constant(self) -> bool:
        """Whether the range holds one value that depends on no index."""
        return not any(self.lower) and not any(self.upper) and self.low == self.high

    def at(self, maxima: Sequence[int]) -> tuple[Number, Number]:
        """Return both ends, inclusive, for given maxima of the indices (extents less one)."""
        low, high = self.low, self.high
        for a, b, x in zip(self.lower, self.upper, maxima, strict=True):
            if a:
                low += a * x
            if b:
                high += b * x
        return low, high

    def __add__(self, other: Interval | Number) -> Interval:
        if not isinstance(other, Interval):
            return Interval(self.lower, self.upper, self.low + other, self.high + other)
        return Interval(
            _plus(self.lower, other.lower),
            _plus(self.upper, other.upper),
            self.low + other.low,
            self.high + other.high,
        )

    def __sub__(self, other: Interval | Number) -> Interval:
        return self + other * -1

    def __mul__(self, other: Interval | Number) -> Interval:
        if isinstance(other, Interval):
            if other.is_constant:
                return self * other.low
            if self.is_constant:
                return other * self.low
            self._refuse("a product of two index ranges is not affine", "*", other)
        lower = tuple(a and a * other for a in self.lower)
        upper = tuple(a and a * other for a in self.upper)
        if other < 0:
            return Interval(upper, lower, self.high * other, self.low * other)
        return Interval(lower, upper, self.low * other, self.high * other)

    def __truediv__(self, other: Interval | Number) -> Interval:
        return self * (1 / Fraction(self._divisor("/", other)))

    def __floordiv__(self, other: Interval | Number) -> Interval:
        divisor = self._divisor("//", other)
        if divisor < 1:
            self._refuse("an index range is divided by a positive integer", "//", other)
        shifted = (self + 1) / divisor - 1
        exact = self / divisor
        return Interval(exact.lower, shifted.upper, exact.low, shifted.high)

    def __mod__(self, other: Interval | Number) -> Interval:
        divisor = self._divisor("%", other)
        if divisor < 1:
            self._refuse("an index range is divided by a positive integer", "%", other)
        zero = (0,) * len(self.lower)
        return Interval(zero, zero, 0, divisor - 1)

    def compare(self, sign: str, other: Interval | Number) -> NoReturn:
        """Refuse a comparison, whose result would depend on the indices.

        Raises:
            DescriptionError: always.
        """
        self._refuse("a comparison of two index ranges has no range", sign, other)

    def __lt__(self, other: Interval | Number) -> bool:
        self.compare("<", other)

    def __le__(self, other: Interval | Number) -> bool:
        self.compare("<=", other)

    def __gt__(self, other: Interval | Number) -> bool:
        self.compare(">", other)

    def __ge__(self, other: Interval | Number) -> bool:
        self.compare(">=", other)

    def _divisor(self, sign: str, other: Interval | Number) -> Number:
        if isinstance(other, Interval):
            if not other.is_constant:
                self._refuse("a quotient of two index ranges is not affine", sign, other)
            other = other.low
        if other == 0:
            self._refuse("an index range cannot be divided by zero", sign, other)
        return other

    def _refuse(self, rule: str, sign: str, other: Interval | Number) -> NoReturn:
        raise DescriptionError(
            f"{rule}. Got {self} {sign} {other}. Rewrite the subscript, or make the function "
            f"opaque in these dimensions."
        )

    def __str__(self) -> str:
        return f"[{_end(self.lower, self.low)}, {_end(self.upper, self.high)}]"


def _plus(left: tuple[Number, ...], right: tuple[Number, ...]) -> tuple[Number, ...]:
    return tuple(a + b if a and b else a or b for a, b in zip(left, right, strict=True))


def _end(coefficients: tuple[Number, ...], constant: Number) -> str:
    terms = [f"{a if a != 1 else ''}X{i}" for i, a in enumerate(coefficients) if a]
    if constant or not terms:
        terms.append(str(constant))
    return "+".join(terms).replace("+-", "-")
