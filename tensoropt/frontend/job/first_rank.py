"""What one rank finds out for all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from collectives import Group
from tensoropt import errors
from tensoropt.errors import TensorOptError
from tensoropt.frontend.job.name_counters import catch_up, name_counters

__all__ = ["on_first_rank"]


def on_first_rank(group: Group, work: Callable[[], Any]) -> Any:
    """What some work comes to on the first rank of a group, on every rank of it; its error, too.

    The work may build graphs: names in those that all ranks build afterwards are still the same.

    Args:
        group: all ranks of it call.
        work: returns what JSON can hold; only the first rank does it.

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
