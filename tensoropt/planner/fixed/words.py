"""The words with which a script, or the command line, divides dimensions by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tensoropt.errors import OptionError
from tensoropt.parallel.choices.fixed_dimension import WHOLE, FixedDimension

__all__ = ["fixed_dimensions", "parse_fixed"]

_REMEDY = "give e.g. fixed={'decoder/*': {'heads': 'device'}}, or --fixed 'decoder/*:heads=device'"


def fixed_dimensions(name: str, value: Any) -> tuple[FixedDimension, ...]:
    """Check dimensions that are divided by hand.

    Args:
        name: the option's name.
        value: for each pattern of layers the levels of each dimension: the name of a level, several
            of them, or None; or texts as the command line has them.

    Returns:
        The dimensions, each once.

    Raises:
        OptionError: for any other value.
    """
    if isinstance(value, Mapping):
        found = list(_of_mapping(name, value))
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
        found = []
        for each in value:
            if not isinstance(each, str | FixedDimension):
                raise _malformed(name, value)
            found.append(parse_fixed(each) if isinstance(each, str) else each)
    else:
        raise _malformed(name, value)
    return tuple(dict.fromkeys(found))


def parse_fixed(text: str) -> FixedDimension:
    """Return the dimension of a text such as ``decoder/*:heads=device``.

    Raises:
        OptionError: if the text has another form.
    """
    place, _, levels = text.rpartition("=")
    pattern, _, dimension = place.rpartition(":")
    if not (pattern and dimension and levels):
        raise OptionError(
            "a fixed dimension is PATTERN:DIMENSION=LEVEL, several levels with commas. Got "
            f"{text!r}; {_REMEDY}."
        )
    return FixedDimension(pattern, dimension, _levels(levels.split(",")))


def _of_mapping(name: str, value: Mapping[Any, Any]) -> Iterator[FixedDimension]:
    for pattern, dimensions in value.items():
        if not isinstance(pattern, str) or not pattern or not isinstance(dimensions, Mapping):
            raise _malformed(name, {pattern: dimensions})
        for dimension, levels in dimensions.items():
            several = levels if isinstance(levels, list | tuple) else [levels]
            texts = [WHOLE if each is None else each for each in several]
            is_named = isinstance(dimension, str | int) and str(dimension)
            if not is_named or not all(isinstance(each, str) and each for each in texts):
                raise _malformed(name, {pattern: {dimension: levels}})
            yield FixedDimension(pattern, str(dimension), _levels(texts))


def _levels(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text.strip() for text in texts if text.strip() != WHOLE))


def _malformed(name: str, value: Any) -> OptionError:
    return OptionError(
        f"{name} has, for patterns of layers' names, the level of the cluster that divides each "
        f"dimension, several levels, or None for a dimension that stays whole. Got {value!r}; "
        f"{_REMEDY}."
    )
