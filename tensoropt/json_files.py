"""JSON files: read as something that anybody may have written, checked by a schema, written whole.

A file from outside is refused unless every program reads it alike (RFC 8259, sections 4 and 6:
names are unique, numbers are finite) and every later step can take it: integers have 64 bits, and
neither size nor depth is without bound.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import resources
from math import isfinite
from pathlib import Path
from typing import Any
from uuid import uuid4

import jsonschema

from tensoropt.errors import PlanError

__all__ = ["digest_of", "parse_json", "read_json", "schema_error", "write_json"]

_MOST_BYTES = 64 * 2**20
_DEEPEST = 32
_SHOWN = 40


def read_json(path: str | os.PathLike[str], rule: str, remedy: str) -> Any:
    """The values of a file.

    Args:
        path: of the file.
        rule: what it is to be, for the error.
        remedy: what to do about it, likewise.

    Raises:
        PlanError: if the file cannot be read, or `parse_json` refuses what it says.
    """
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
    """The values of a JSON text, see above.

    Raises:
        ValueError: with the reason; no other error, whatever the text.
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
    level = [values]
    for _ in range(_DEEPEST):
        level = [item for each in level for item in _items(each)]
    if level:
        raise ValueError(too_deep)
    if b"\\u" in content:  # half a surrogate pair is no character, and nothing can print it
        json.dumps(values, ensure_ascii=False).encode()
    return values


def _items(values: Any) -> Any:
    if isinstance(values, dict):
        return values.values()
    return values if isinstance(values, list) else ()


def _integer(text: str) -> int:
    if len(text) <= _SHOWN and _is_integer(None, value := int(text)):
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


def _is_integer(_: object, value: object) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63


def _is_number(_: object, value: object) -> bool:
    return _is_integer(_, value) or (type(value) is float and isfinite(value))


def schema_error(values: object, package: str, name: str) -> jsonschema.ValidationError | None:
    """The first rule of a schema that values break; None where they follow it.

    Stricter than JSON Schema, integers are written as such (``2``, not ``2.0``) and have 64 bits,
    and numbers are finite.

    Args:
        values: as a file has them.
        package: where the schema is.
        name: of the schema's file.
    """
    return next(_validator(package, name)(values), None)


@lru_cache
def _validator(package: str, name: str) -> Callable[[object], Any]:
    text = (resources.files(package) / name).read_text(encoding="utf-8")
    standard = jsonschema.Draft202012Validator
    types = standard.TYPE_CHECKER.redefine_many({"integer": _is_integer, "number": _is_number})
    strict: Any = jsonschema.validators.extend(  # type: ignore[no-untyped-call]
        standard, type_checker=types
    )
    iter_errors: Callable[[object], Any] = strict(json.loads(text)).iter_errors
    return iter_errors


def digest_of(values: Mapping[str, Any]) -> str:
    """SHA-256 of what an object says besides its own ``digest``, however it is laid out."""
    rest = {name: value for name, value in values.items() if name != "digest"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def write_json(path: str | os.PathLike[str], values: object, indent: int | None = None) -> None:
    """Replace a file in one go: whoever reads it, at whatever time, finds the old or the new.

    Any number of processes may write the same file.

    Raises:
        OSError: if it cannot be written.
    """
    text = json.dumps(values, indent=indent) + "\n"
    target = Path(path)
    if target.exists() and not target.is_file():  # a terminal, a pipe
        target.write_text(text, encoding="utf-8")
        return
    target = target.resolve()  # a link stays one
    partial = target.with_name(f".{uuid4().hex}.partial")
    try:
        with open(partial, "x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
