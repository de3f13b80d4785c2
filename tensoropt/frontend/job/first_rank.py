"""Work that the first rank does for all ranks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from collectives import Group
from tensoropt import errors
from tensoropt.errors import RankMismatchError, TensorOptError
from tensoropt.execution.agreement.name_counters import advance_name_counters, name_counters

__all__ = ["on_first_rank"]

_LAST_WORDS_SECONDS = 2.0  # time for the first rank to end the job with its error


def on_first_rank(group: Group, work: Callable[[], Any]) -> Any:
    """Do some work on the first rank of a group; every rank returns its result or raises its error.

    The work may build graphs: graphs that all ranks build afterwards still have the same names.

    Args:
        group: the group; all its ranks must call this.
        work: returns a JSON value; called only on the first rank.

    Raises:
        TensorOptError: the first rank's error, with the same class and text.
        RankMismatchError: on the other ranks, if the first rank raises any other error and goes on.
    """
    answer: dict[str, Any] = {}
    if group.rank == 0:
        try:
            answer = {"result": work()}
        except TensorOptError as error:
            answer = {"error": type(error).__name__, "text": str(error)}
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            group.allgather_object({"left": f"{type(error).__name__}: {error}"})
            raise
        answer["names"] = name_counters()
    answer = group.allgather_object(answer)[0]
    if "left" in answer:
        time.sleep(_LAST_WORDS_SECONDS)
        raise RankMismatchError(
            "all ranks continue with the first rank's result. Got an error on the first rank, "
            f"{answer['left']}; let the error end the script, or raise it on all ranks."
        )
    if group.rank > 0:
        advance_name_counters(answer["names"])
    if "error" in answer:
        raise getattr(errors, answer["error"])(answer["text"])
    return answer["result"]
