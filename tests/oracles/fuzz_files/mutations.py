"""Mutations of the values and of the text of a JSON file."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

from tensoropt.json_files import digest_of

__all__ = ["mutated"]

_RAW = {
    "not a number": "NaN",
    "infinity": "-Infinity",
    "too large a float": "1e999",
    "too large an integer": "9" * 5000,
    "nested lists": "[" * 100_000 + "]" * 100_000,
    "nested objects": '{"a":' * 1000 + "1" + "}" * 1000,
    "half a pair": '"\\ud800"',
    "thirty levels": "[" * 30 + "]" * 30,
}
"""The text of a value that JSON cannot express, by the string that stands for it among the
values."""

_VALUES: tuple[Any, ...] = (
    *(None, True, False, "", "two", [], {}, [[]], {"a": 1}, [None], "x" * 100_000, "\x00\n\u2028"),
    *(0, 1, 2, 3, 7, -1, 2**31, 2**53 + 1, 2**62, 2**63 - 1, 2**63, -(2**63), 10**30),
    *(0.0, -0.0, 0.5, 1.0, 2.0, 1e-320, 1e-12, 1e15, 1e300, 1.7e308, -1.5),
    *(list(range(100)), [0] * 1000, ["x"] * 1000, [1.5, "a", None]),
)

Place = tuple[Any, Any]
"""A list or an object, and the index or name of a value in it."""


def mutated(original: dict[str, Any], number: int) -> bytes:
    """The mutation of a file with a number; the same number gives the same mutation.

    Half of the files with a digest get a new one after their values have changed.
    """
    draw = random.Random(number)
    values = deepcopy(original)
    for _ in range(draw.choice((0, 1, 1, 1, 2, 3))):
        places = list(_places(values))
        if places:
            draw.choice(_OF_VALUES)(draw, *draw.choice(places))
    if "digest" in values and draw.random() < 0.5:
        values["digest"] = digest_of(values)
    text = json.dumps(values, indent=draw.choice((None, 1)))
    for name, raw in _RAW.items():
        text = text.replace(json.dumps(name), raw)
    content = text.encode()
    for _ in range(draw.choice((0, 0, 0, 1, 2))):
        content = draw.choice(_OF_TEXT)(draw, content)
    return content


def _places(values: Any) -> Iterator[Place]:
    if isinstance(values, dict | list):
        for key in values if isinstance(values, dict) else range(len(values)):
            yield values, key
            yield from _places(values[key])


def _drop(draw: random.Random, parent: Any, key: Any) -> None:
    del draw, parent[key]


def _rename(draw: random.Random, parent: Any, key: Any) -> None:
    value = parent.pop(key)
    if isinstance(parent, dict):
        parent[draw.choice((str(key) + "s", str(key)[:-1], "x" * 10_000, "", *parent))] = value


def _replace(draw: random.Random, parent: Any, key: Any) -> None:
    parent[key] = deepcopy(draw.choice((*_VALUES, *_RAW)))


def _another(draw: random.Random, parent: Any, key: Any) -> None:
    """A value from another place in the file, usually of the same type."""
    others = parent.values() if isinstance(parent, dict) else parent
    parent[key] = deepcopy(draw.choice(list(others)))


def _scale(draw: random.Random, parent: Any, key: Any) -> None:
    if isinstance(parent[key], int | float) and not isinstance(parent[key], bool):
        parent[key] = parent[key] * draw.choice((-1, 2, 10, 10**6, 10**15)) + draw.choice((0, 1))


def _repeat(draw: random.Random, parent: Any, key: Any) -> None:
    if isinstance(parent[key], list):
        parent[key] = parent[key] * draw.choice((0, 2, 100))


_OF_VALUES: tuple[Callable[[random.Random, Any, Any], None], ...] = (
    *(_drop, _rename, _replace, _replace, _another, _scale, _scale, _repeat),
)


def _flip(draw: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 8))):
        if changed:
            changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _truncate(draw: random.Random, content: bytes) -> bytes:
    return content[: draw.randrange(len(content) + 1)]


def _double(draw: random.Random, content: bytes) -> bytes:
    """Double a line of an object, which doubles names."""
    lines = content.splitlines(keepends=True)
    if len(lines) == 1:
        return content.replace(b'"schema":', b'"schema": 1, "schema":', 1)
    position = draw.randrange(len(lines))
    return b"".join([*lines[:position], lines[position], *lines[position:]])


def _insert(draw: random.Random, content: bytes) -> bytes:
    place = draw.randrange(len(content) + 1)
    inserted = draw.choice((b"\x00", b"\xff\xfe", b"[" * 100_000, b'"', b"//", b"1e999", b"\\u"))
    return content[:place] + inserted + content[place:]


_OF_TEXT: tuple[Callable[[random.Random, bytes], bytes], ...] = (_flip, _truncate, _double, _insert)
