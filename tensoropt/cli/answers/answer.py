"""An answer of a subcommand: text for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

from tensoropt.converters import to_values
from tensoropt.report.text_table import Report, write

__all__ = ["Answer", "write_answer"]

_SCHEMA = 1
"""The version of the answers without a version of their own."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a subcommand.

    Attributes:
        value: the dataclass that ``--json`` writes.
        parts: the text, one part below the other.
        status: the exit status of the command.
        as_json: whether JSON is the text for people, too.
    """

    value: Any
    parts: tuple[Report | str, ...]
    status: int = 0
    as_json: bool = False


def write_answer(answer: Answer, as_json: bool) -> None:
    """Write an answer to standard output, as JSON with its ``schema`` or as text.

    The JSON of a plan is that of its file.
    """
    if not (as_json or answer.as_json):
        write(*answer.parts)
        return
    value = answer.value
    own = getattr(value, "to_json", None)
    values = {"schema": _SCHEMA, **to_values(value)} if own is None else own()
    sys.stdout.write(f"{json.dumps(values, indent=1)}\n")
    sys.stdout.flush()
