"""Values of options: the check of a value, and the reading of a text on the command line."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from difflib import get_close_matches
from math import inf
from numbers import Integral, Real
from typing import Any

from tensoropt.errors import OptionError

__all__ = [
    "TURNING_POINT",
    "Check",
    "amount",
    "ascending",
    "count",
    "is_count",
    "is_number",
    "is_shape",
    "memory",
    "memory_amount",
    "name_of",
    "plain",
    "point_of_frontier",
    "positive",
    "rule",
    "seconds",
    "several",
    "shapes_by_name",
    "text_or_count",
    "value_of",
    "yes_or_no",
]

Check = Callable[[str, Any], Any]
"""Returns the value of an option, by the option's name and the value that a user gives.

Raises an OptionError for a value that the option does not take.
"""

TURNING_POINT = "turning-point"
"""The name of the point at which a frontier turns from steep to flat."""

_UNITS = {"": 1, "B": 1}
_UNITS |= {f"{prefix}iB": 2 ** (10 * power) for power, prefix in enumerate("KMGT", 1)}
_UNITS |= {f"{prefix}B": 10 ** (3 * power) for power, prefix in enumerate("kMGT", 1)}


def is_number(value: object) -> bool:
    """Whether a value is a real number; True and False are not."""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_count(value: object, least: float = 1) -> bool:
    """Whether a value is a whole number, not below the least."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def plain(value: Any) -> Any:
    """Return NumPy's numbers as Python's, which files can hold, and other values as they are."""
    if is_count(value, -inf):
        return int(value)
    return float(value) if is_number(value) else value


def is_shape(value: Any) -> bool:
    """Whether a value has the extent of each dimension of a tensor."""
    try:
        return not isinstance(value, str) and all(int(extent) >= 0 for extent in value)
    except (TypeError, ValueError):  # no sequence, or an extent that is no number
        return False


def rule(
    text: str, accepts: Callable[[Any], bool], remedy: str = "correct it, or leave it out"
) -> Check:
    """The check of one rule.

    Args:
        text: the rule, as the rest of a sentence that begins with the option's name.
        accepts: whether a value keeps the rule.
        remedy: the end of the error.
    """

    def check(name: str, value: Any) -> Any:
        if not accepts(value):
            raise OptionError(f"{name} {text}. Got {value!r}; {remedy}.")
        return value

    return check


count = rule("takes whole numbers from 1", is_count)
"""The check of a whole number from 1."""


def _amount(remedy: str = "correct it, or leave it out") -> Check:
    """The check of a whole number from 1 that a script may have computed as a float."""
    whole = "takes whole numbers from 1"
    check = rule(whole, lambda value: is_number(value) and 1 <= value < inf, remedy)
    return lambda name, value: int(check(name, value))


amount = _amount()
"""The check of a number of steps."""

memory_amount = _amount("give bytes, such as 8 * 2**30 for 8 GiB, or leave it out")
"""The check of a limit of memory, in bytes."""

positive = rule("is a number above 0", lambda value: is_number(value) and 0 < value < inf)
"""The check of a finite number above 0."""


def name_of(kind: str, names: Collection[str]) -> Check:
    """The check of a name; the error suggests the most similar one.

    Args:
        kind: the kind of the name, with its article.
        names: the valid names.
    """

    def check(_: str, value: Any) -> Any:
        if value not in names:
            raise OptionError.one_of(kind, value, names)
        return value

    return check


def ascending(name: str, values: Iterable[Any]) -> tuple[int, ...]:
    """Check several counts, and return the distinct ones in ascending order.

    Raises:
        OptionError: no list, no number, or a value that is not a whole number from 1.
    """
    if not isinstance(values, Iterable):
        raise OptionError(
            f"{name} takes several numbers. Got {values!r}; give a list such as [{values!r}], or "
            "leave it out."
        )
    numbers = [int(count(name, value)) for value in values]
    if not numbers:
        raise OptionError(
            f"{name} takes at least one number. Got none; give some, or leave it out."
        )
    return tuple(sorted(set(numbers)))


def value_of(text: str, parse: Callable[[str], Any]) -> Any:
    """The value of a text; the text itself if it has none, for the option's check to refuse.

    Raises:
        OptionError: from a parser that has an error of its own.
    """
    try:
        return parse(text)
    except OptionError:
        raise
    except ValueError:
        return text


def memory(text: str) -> int:
    """Bytes from an amount with a unit: ``8GiB``, ``1.5 GB``, or a plain number of bytes.

    Raises:
        OptionError: if the text is not an amount, or is less than one byte.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    size = int(float(match[1]) * _UNITS.get(match[2], 0)) if match else 0
    if size < 1:
        raise OptionError(
            f"memory is a number with one of the units {', '.join(filter(None, _UNITS))}. Got "
            f"{text!r}; give an amount such as 8GiB."
        )
    return size


def seconds(text: str) -> float:
    """Seconds; infinity for ``none``, which means no limit."""
    return inf if text.lower() == "none" else float(text)


def several(parse: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    """A parser of values separated by commas, from the parser of one value."""
    return lambda text: tuple(value_of(part, parse) for part in text.split(","))


def shapes_by_name(text: str) -> dict[str, tuple[int, ...]]:
    """Shapes from a text with a name for each: ``images=32,28,28,1 labels=32``."""
    named = dict(part.split("=") for part in text.split())
    return {name: tuple(map(int, shape.split(","))) for name, shape in named.items()}


def point_of_frontier(name: str, value: Any) -> int | str:
    """Check a point of a frontier: its number, an amount of memory, or its turning point.

    Raises:
        OptionError: for any other value.
    """
    if is_count(value, -inf) or value == TURNING_POINT:
        return int(value) if is_count(value, -inf) else TURNING_POINT
    if isinstance(value, str) and re.match(r"\s*\d", value):
        memory(value)
        return value
    near = get_close_matches(str(value), [TURNING_POINT], 1, 0.5)
    remedy = f"Did you mean {near[0]!r}?" if near else "`tensoropt frontier` lists the points."
    raise OptionError(
        f"{name} is the number of a point of the frontier, an amount of memory such as '2GiB' for "
        f"the fastest point within it, or {TURNING_POINT!r}. Got {value!r}. {remedy}"
    )


def text_or_count(text: str) -> int | str:
    """A whole number if the text is one, else the text."""
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def yes_or_no(text: str) -> bool | str:
    """True for ``yes``, False for ``no``, else the text."""
    return {"yes": True, "no": False}.get(text.lower(), text)
