"""JSON files: parsed strictly when they are read, and replaced as a whole when written.

A file may come from anybody. It is refused unless every program reads it alike (RFC 8259, sections
4 and 6: names are unique, numbers are finite) and unless later steps can use it: integers have 64
bits, and size and depth are bounded.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any
from uuid import uuid4

from tensoropt.errors import PlanError

__all__ = ["digest_of", "parse_json", "read_json", "write_json"]

_MOST_BYTES = 64 * 2**20  # of a file
_DEEPEST = 32  # levels of lists and objects
_SHOWN = 40  # characters of a name or number that an error quotes


def read_json(path: str | os.PathLike[str], rule: str, remedy: str) -> Any:
    """The values in a JSON file.

    Args:
        path: the path of the file.
        rule: the first sentence of the error: the content that the file must have.
        remedy: the last sentence of the error: the way to get a valid file.

    Raises:
        PlanError: if the file cannot be read, or `parse_json` refuses its content.
    """
    if not isinstance(path, str | os.PathLike):  # a number would be an open file's
        raise PlanError(f"{rule}. Got {path!r}, which is no path. {remedy}")
    try:
        with open(path, "rb") as file:
            content = file.read(_MOST_BYTES + 1)
        return parse_json(content)
    except OSError as error:
        reason = error.strerror or str(error)
    except ValueError as error:
        reason = str(error)
    raise PlanError(f"{rule}. Got {os.fspath(path)!r}: {reason}. {remedy}")


def parse_json(content: bytes) -> Any:
    """The values of a JSON text that keeps the rules above.

    Raises:
        ValueError: with the reason. Invalid text raises no other error.
    """
    if len(content) > _MOST_BYTES:
        raise ValueError(f"it is larger than {_MOST_BYTES // 2**20} MiB")
    too_deep = f"it is nested more than {_DEEPEST} levels deep"
    try:
        values = json.loads(
            content.decode(),
            parse_int=_integer,
            parse_float=_number,
            parse_constant=_number,
            object_pairs_hook=_object,
        )
    except RecursionError:
        raise ValueError(too_deep) from None
    nested = [values]
    for _ in range(_DEEPEST):
        nested = [item for container in nested for item in _items(container)]
    if nested:
        raise ValueError(too_deep)
    if b"\\u" in content:  # half of a surrogate pair is not a character and cannot be printed
        json.dumps(values, ensure_ascii=False).encode()
    return values


def _items(values: Any) -> Any:
    if isinstance(values, dict):
        return values.values()
    return values if isinstance(values, list) else ()


def _integer(text: str) -> int:
    if len(text) <= _SHOWN and -(2**63) <= (value := int(text)) < 2**63:
        return value
    raise ValueError(f"the integer {_cut(text)} does not fit 64 bits")


def _number(text: str) -> float:
    if isfinite(value := float(text)):
        return value
    raise ValueError(f"the number {_cut(text)} is not finite")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            raise ValueError(f"the name {_cut(name)!r} stands twice in one object")
        values[name] = value
    return values


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def digest_of(values: Mapping[str, Any]) -> str:
    """SHA-256 of an object without its own ``digest``; the order of its names does not matter."""
    rest = {name: value for name, value in values.items() if name != "digest"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def write_json(path: str | os.PathLike[str], values: object, indent: int | None = None) -> None:
    """Replace a file atomically: a reader sees either the old file or the new one.

    Several processes may write the same file at once.

    Raises:
        OSError: if it cannot be written.
    """
    text = json.dumps(values, indent=indent) + "\n"
    target = Path(path)
    if target.exists() and not target.is_file():  # a terminal or a pipe
        target.write_text(text, encoding="utf-8")
        return
    target = target.resolve()  # write the file that a link points to, and keep the link
    partial = target.with_name(f".{uuid4().hex}.partial")
    try:
        with open(partial, "x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    except OSError as error:
        if error.errno is not None:
            error.filename = os.fspath(path)  # not the partial file
        raise
    finally:
        partial.unlink(missing_ok=True)
