"""Values of JSON files that carry the number of their schema and a digest of their content."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from tensoropt.converters import from_values, to_values
from tensoropt.errors import PlanError
from tensoropt.json_files import digest_of

__all__ = ["FileKind", "content_of"]

T = TypeVar("T")

_OF_THE_FILE = ("schema", "digest")


@dataclass(frozen=True, slots=True)
class FileKind:
    """A kind of JSON files, each of which holds one frozen dataclass.

    Attributes:
        schema: the number of the schema that this version reads and writes.
        name: the files' name in errors, in the plural.
        remedy: the sentence that ends an error.
    """

    schema: int
    name: str
    remedy: str

    def signed(self, value: object) -> dict[str, Any]:
        """Return the JSON values of a dataclass, with the schema's number and the digest."""
        values = {"schema": self.schema, **to_values(value)}
        return {**values, "digest": digest_of(values)}

    def read(self, cls: type[T], values: object, origin: str) -> T:
        """Return the dataclass of JSON values: the inverse of `signed`.

        Args:
            cls: the dataclass.
            values: the values.
            origin: the source of the values, for errors.

        Raises:
            PlanError: if the version, the schema or the digest is wrong.
        """
        given = values if isinstance(values, dict) else {}
        version = given.get("schema", "none")
        if version != self.schema:
            raise PlanError(
                f"this TensorOpt reads {self.name} of schema {self.schema}. Got {origin} of schema "
                f"{version}. {self.remedy}"
            )
        rule = f"{self.name} follow their schema. Got in {origin}"
        value = from_values(cls, content_of(given), rule, self.remedy)
        if given.get("digest") != digest_of(given):
            raise PlanError(
                f"{self.name} stay as they were written. Got {origin}, which was changed "
                f"afterwards. {self.remedy}"
            )
        return value


def content_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a file without its schema's number and digest."""
    return {name: value for name, value in values.items() if name not in _OF_THE_FILE}
