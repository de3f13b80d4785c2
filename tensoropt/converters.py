"""Conversion between frozen dataclasses and JSON values, with errors for files that break a rule.

A dataclass states the rules of its file in the types of its fields: `Natural` is an integer of
64 bits that is not negative, ``Annotated[tuple[Natural, ...], Len(1)]`` a list with an item.
Unknown names, missing names, and values of another type (``2.0`` or ``true`` for an integer) are
errors. pydantic does the work.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, NamedTuple, TypeVar, get_args

from annotated_types import Ge, Len, Lt
from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    PlainSerializer,
    TypeAdapter,
    ValidationError,
    WrapValidator,
)
from pydantic_core import core_schema

from tensoropt.errors import PlanError

__all__ = [
    "Digest",
    "Form",
    "MeshAxes",
    "Natural",
    "Number",
    "Pairs",
    "Positive",
    "Text",
    "from_values",
    "one_of",
    "to_values",
]

T = TypeVar("T")

_CONFIG = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
_SHOWN = 100  # characters of a value that an error quotes


def _as_written(value: Any, check: Callable[[Any], Any]) -> Any:
    check(value)
    return value


Natural = Annotated[int, Ge(0), Lt(2**63)]
Positive = Annotated[int, Ge(1), Lt(2**63)]
Number = Annotated[float, WrapValidator(_as_written), PlainSerializer(lambda number: number)]
"""A finite number. One that is written as an integer stays an integer."""
MeshAxes = Annotated[tuple[Annotated[int, Ge(2)], ...], Len(0, 62)]
"""The sizes of mesh axes; the number of devices has 64 bits."""
Text = Annotated[str, Field(min_length=1)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
"""SHA-256 in hexadecimal digits."""


def one_of(known: Collection[str]) -> AfterValidator:
    """The annotation of a text that is one of ``known``."""

    def check(text: str) -> str:
        if text not in known:
            raise ValueError(f"one of {', '.join(map(repr, known))} is expected")
        return text

    return AfterValidator(check)


@dataclass(frozen=True, slots=True)
class Form:
    """The annotation of a value whose JSON values are those of another type.

    Attributes:
        form: the other type.
        read: the value for an instance of it.
        write: the inverse of ``read``.
    """

    form: Any
    read: Callable[[Any], Any]
    write: Callable[[Any], Any]

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        form = handler.generate_schema(self.form)
        return core_schema.no_info_after_validator_function(
            self.read,
            form,
            serialization=core_schema.plain_serializer_function_ser_schema(
                self.write, return_schema=form
            ),
        )


@dataclass(frozen=True, slots=True)
class Pairs:
    """The annotation of ``tuple[tuple[str, V], ...]``, pairs that are an object in JSON.

    Attributes:
        order: the order of the pairs that are read.
    """

    order: Callable[[Iterable[Any]], Iterable[Any]] = tuple

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        _, value = get_args(get_args(source)[0])
        names: Any = dict[str, value]  # type: ignore[valid-type]
        form = Form(names, lambda read: tuple(self.order(read.items())), dict)
        return form.__get_pydantic_core_schema__(source, handler)


@cache
def _adapter(type_: Any) -> TypeAdapter[Any]:
    """The converter of lists of one value; for a value alone pydantic takes no configuration."""
    return TypeAdapter(tuple[type_], config=_CONFIG)


def to_values(value: object) -> Any:
    """The JSON values of a dataclass."""
    type_: Any = type(value)
    return _adapter(type_).dump_python((value,), mode="json")[0]


def from_values(
    type_: type[T], values: object, rule: str, remedy: str, optional: Collection[str] = ()
) -> T:
    """The inverse of `to_values`.

    Args:
        type_: the dataclass.
        values: JSON values.
        rule: the first sentence of the error, and the words before the place in the second.
        remedy: the last sentence of the error.
        optional: names of fields with defaults that the file may lack.

    Raises:
        PlanError: if the values break a rule. It names the place, the value there and the rule.
    """
    dataclass_: Any = type_
    try:
        value: T = _adapter(dataclass_).validate_json(json.dumps([values]))[0]
        fault = _difference(values, to_values(value), optional)
        if fault is None:
            return value
    except ValidationError as error:
        fault = _first_fault(error)
    place = "/".join(map(str, fault.place)) or "the whole"
    shown = fault.shown if len(fault.shown) <= _SHOWN else f"{fault.shown[:_SHOWN]}..."
    broken = f"{fault.rule[:1].lower()}{fault.rule[1:]}".rstrip(".")
    raise PlanError(f"{rule} at {place}: {shown} ({broken}). {remedy}")


class _Fault(NamedTuple):
    """A broken rule.

    Attributes:
        place: names and positions that lead to the value.
        shown: the value.
        rule: the rule that it breaks.
    """

    place: tuple[str | int, ...]
    shown: str
    rule: str


def _missing(place: tuple[str | int, ...]) -> _Fault:
    return _Fault(place, "nothing", "the name is required")


def _first_fault(error: ValidationError) -> _Fault:
    """The first rule that values break, by pydantic's account of a list with them."""
    first = error.errors(include_url=False, include_context=False)[0]
    place, rule = first["loc"][1:], first["msg"].removeprefix("Value error, ")
    if first["type"] == "missing":
        return _missing(place)
    if first["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        rule = "there is no such name"
    return _Fault(place, repr(first["input"]), rule)


def _difference(values: Any, written: Any, optional: Collection[str]) -> _Fault | None:
    """The first place at which an accepted value would be written otherwise; None without one.

    pydantic takes the default of a field for a missing name, and a list for a named tuple.
    """
    if not isinstance(written, dict | list):
        return None
    if type(values) is not type(written):
        return _Fault((), repr(values), "an object is expected")
    for name in written if isinstance(written, dict) else range(len(written)):
        if isinstance(written, dict) and name not in values:
            if name not in optional:
                return _missing((name,))
            continue
        fault = _difference(values[name], written[name], optional)
        if fault is not None:
            return fault._replace(place=(name, *fault.place))
    return None
