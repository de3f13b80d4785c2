"""Work that may fail on any rank: afterwards all ranks go on, or all raise the same error."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tensoropt import errors
from tensoropt.errors import RankMismatchError, TensorOptError
from tensoropt.execution.agreement.agreement import Agreement, reason

__all__ = ["do_on_all_ranks"]

_ERROR_TYPES = {
    errno.ENOENT: tf.errors.NotFoundError,
    errno.EACCES: tf.errors.PermissionDeniedError,
    errno.EPERM: tf.errors.PermissionDeniedError,
    errno.EROFS: tf.errors.PermissionDeniedError,
    errno.ENOSPC: tf.errors.ResourceExhaustedError,
    errno.EDQUOT: tf.errors.ResourceExhaustedError,
}
"""TensorFlow's types of errors, by the operating system's error number."""


def do_on_all_ranks(
    agreement: Agreement, call: str, work: Callable[[], Any], rule: str = "", remedy: str = ""
) -> list[Any]:
    """Do some work on every rank, and wait for all ranks. All ranks call this.

    Args:
        agreement: the agreement between the ranks.
        call: the name of the work, the same on all ranks.
        work: returns a JSON value. It may make calls that need all ranks, if all ranks make them.
        rule: the rule that an error states if a file cannot be read or written.
        remedy: the remedy that this error states.

    Returns:
        The value of each rank's work, by rank.

    Raises:
        Exception: on every rank, if the work failed on a rank. It has the type of the lowest failed
            rank's error: one of TensorOpt, TensorFlow or Python.
        RankMismatchError: on every rank, if a rank makes another call.
    """
    error, outcome = None, {}
    try:
        outcome = {"value": work()}
    except RankMismatchError:
        raise  # All ranks raise this error.
    except Exception as caught:
        error, outcome = caught, {"error": _as_json(caught)}
    outcomes = agreement.gather(call, outcome)
    failed = [rank for rank, of_rank in enumerate(outcomes) if "error" in of_rank]
    if not failed:
        return [of_rank["value"] for of_rank in outcomes]
    first = outcomes[failed[0]]["error"]
    if rule and "code" in first:
        text = reason(first["text"]).rstrip(".")
        first["text"] = f"{rule} Got {text} on rank {failed[0]}. {remedy}"
    raise _from_json(first) from error


def _as_json(error: Exception) -> dict[str, Any]:
    if isinstance(error, OSError) and not isinstance(error, TensorOptError):
        kind = _ERROR_TYPES.get(error.errno or 0, tf.errors.UnknownError)
        error = kind(None, None, str(error))
    if isinstance(error, tf.errors.OpError):
        return {"code": error.error_code, "text": error.message}
    return {"kind": type(error).__name__, "text": str(error)}


def _from_json(value: dict[str, Any]) -> Exception:
    text = value["text"]
    if "code" in value:
        kind = tf.compat.v1.errors.exception_type_from_error_code(value["code"])
        error: Exception = kind(None, None, text)
        return error
    kinds = {kind.__name__: kind for kind in (TypeError, ValueError)}
    kind = kinds.get(value["kind"]) or getattr(errors, value["kind"], None)
    return RuntimeError(f"{value['kind']}: {text}") if kind is None else kind(text)
