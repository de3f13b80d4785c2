"""Work that the first rank does for all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from collectives import Group
from tensoropt import errors
from tensoropt.errors import TensorOptError
from tensoropt.execution.name_counters import catch_up, name_counters

__all__ = ["on_first_rank"]


def on_first_rank(group: Group, work: Callable[[], Any]) -> Any:
    """Do some work on the first rank of a group; every rank returns its result or raises its error.

    The work may build graphs: graphs that all ranks build afterwards still have the same names.

    Args:
        group: collective, all its ranks call.
        work: returns a JSON value; called on the first rank only.

    Raises:
        TensorOptError: of the same kind and text as the first rank's.
    """
    answer: dict[str, Any] = {}
    if group.rank == 0:
        try:
            answer = {"found": work()}
        except TensorOptError as error:
            answer = {"error": type(error).__name__, "text": str(error)}
        answer["names"] = name_counters()
    answer = group.allgather_object(answer)[0]
    if group.rank > 0:
        catch_up(answer["names"])
    if "error" in answer:
        raise getattr(errors, answer["error"])(answer["text"])
    return answer["found"]
