"""Work that the first rank does for all."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from collectives import Group
from tensoropt import errors
from tensoropt.errors import RankMismatchError, TensorOptError
from tensoropt.execution.agreement.name_counters import catch_up, name_counters

__all__ = ["on_first_rank"]

_OWN_WORDS_SECONDS = 2.0  # within which the first rank ends the job with what it raises


def on_first_rank(group: Group, work: Callable[[], Any]) -> Any:
    """Do some work on the first rank of a group; every rank returns its result or raises its error.

    The work may build graphs: graphs that all ranks build afterwards still have the same names.

    Args:
        group: collective, all its ranks call.
        work: returns a JSON value; called on the first rank only.

    Raises:
        TensorOptError: of the same kind and text as the first rank's.
        RankMismatchError: on the others, where the first rank raises anything else and goes on.
    """
    answer: dict[str, Any] = {}
    if group.rank == 0:
        try:
            answer = {"found": work()}
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
        time.sleep(_OWN_WORDS_SECONDS)
        raise RankMismatchError(
            "what the first rank works out for all, all go on with. Got on it "
            f"{answer['left']}; leave a script by an error that is not caught, or on all ranks."
        )
    if group.rank > 0:
        catch_up(answer["names"])
    if "error" in answer:
        raise getattr(errors, answer["error"])(answer["text"])
    return answer["found"]
