"""Types of values on the command line."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, TypeVar

__all__ = ["Subparsers", "memory_bytes", "positive", "price", "seconds_or_none", "several"]

_Value = TypeVar("_Value")

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]
else:
    Subparsers = object

_UNITS = {"": 1, "B": 1}
_UNITS |= {f"{prefix}iB": 2 ** (10 * power) for power, prefix in enumerate("KMGT", 1)}
_UNITS |= {f"{prefix}B": 10 ** (3 * power) for power, prefix in enumerate("kMGT", 1)}


def memory_bytes(text: str) -> int:
    """Bytes from an amount with a unit: ``8GiB``, ``1.5 GB``, or a plain number of bytes.

    Raises:
        ArgumentTypeError: if the text is not an amount, or is less than one byte.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if match is None or match[2] not in _UNITS or (count := _bytes(match)) < 1:
        raise argparse.ArgumentTypeError(
            f"memory is a number with one of the units {', '.join(filter(None, _UNITS))}, such as "
            f"8GiB. Got {text!r}."
        )
    return count


def _bytes(match: re.Match[str]) -> int:
    return int(float(match[1]) * _UNITS[match[2]])


def seconds_or_none(text: str) -> float:
    """Seconds above 0; infinity for ``none``, which means no limit.

    Raises:
        ArgumentTypeError: if the text is neither.
    """
    if text.lower() == "none":
        return inf
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise argparse.ArgumentTypeError(
            f"seconds are a number above 0, or none for no limit. Got {text!r}."
        )
    return seconds


def positive(text: str) -> int:
    """A whole number from 1.

    Raises:
        ArgumentTypeError: if the text is not a whole number from 1.
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a count is a whole number from 1. Got {text!r}.")
    return int(text)


def price(text: str) -> float:
    """An amount of money, more than 0.

    Raises:
        ArgumentTypeError: if the text is not a number above 0.
    """
    try:
        amount = float(text)
    except ValueError:
        amount = 0.0
    if not 0 < amount < inf:
        raise argparse.ArgumentTypeError(f"a price is a number above 0. Got {text!r}.")
    return amount


def several(value: Callable[[str], _Value]) -> Callable[[str], tuple[_Value, ...]]:
    """A parser of values separated by commas, from the parser of one value."""
    return lambda text: tuple(map(value, text.split(",")))
