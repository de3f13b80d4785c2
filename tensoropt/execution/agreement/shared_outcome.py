"""Work that may fail on any rank: all ranks go on, or all raise the same error."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tensoropt import errors
from tensoropt.errors import RankMismatchError, TensorOptError
from tensoropt.execution.agreement.agreement import Agreement, reason

__all__ = ["together"]

_KIND_OF = {
    errno.ENOENT: tf.errors.NotFoundError,
    errno.EACCES: tf.errors.PermissionDeniedError,
    errno.EPERM: tf.errors.PermissionDeniedError,
    errno.EROFS: tf.errors.PermissionDeniedError,
    errno.ENOSPC: tf.errors.ResourceExhaustedError,
    errno.EDQUOT: tf.errors.ResourceExhaustedError,
}
"""TensorFlow's kinds of errors, by the operating system's error number."""


def together(
    agreement: Agreement, call: str, work: Callable[[], Any], rule: str = "", remedy: str = ""
) -> list[Any]:
    """Do some work on every rank, and wait for all.

    Args:
        agreement: between the ranks; each of them calls.
        call: names the work; the same on all ranks.
        work: returns a JSON value. It may make calls that need all ranks, if all ranks make them.
        rule: the rule that is broken if a file cannot be read or written.
        remedy: the remedy for that.

    Returns:
        What each rank's work returned, by rank.

    Raises:
        Exception: on every rank, of the kind of the first failed rank's: TensorOpt's,
            TensorFlow's or Python's own.
        RankMismatchError: if the ranks are not all in this call.
    """
    error, said = None, {}
    try:
        said = {"found": work()}
    except RankMismatchError:
        raise  # as all ranks do
    except Exception as caught:
        error, said = caught, {"error": _as_json(caught)}
    everyone = agreement.gather(call, said)
    failed = [rank for rank, each in enumerate(everyone) if "error" in each]
    if not failed:
        return [each["found"] for each in everyone]
    first = everyone[failed[0]]["error"]
    if rule and "code" in first:
        text = reason(first["text"]).rstrip(".")
        first["text"] = f"{rule} Got {text} on rank {failed[0]}. {remedy}"
    raise _from_json(first) from error


def _as_json(error: Exception) -> dict[str, Any]:
    if isinstance(error, OSError) and not isinstance(error, TensorOptError):
        kind = _KIND_OF.get(error.errno or 0, tf.errors.UnknownError)
        error = kind(None, None, str(error))
    if isinstance(error, tf.errors.OpError):
        return {"code": error.error_code, "text": error.message}
    return {"kind": type(error).__name__, "text": str(error)}


def _from_json(said: dict[str, Any]) -> Exception:
    text = said["text"]
    if "code" in said:
        kind = tf.compat.v1.errors.exception_type_from_error_code(said["code"])
        found: Exception = kind(None, None, text)
        return found
    kinds = {kind.__name__: kind for kind in (TypeError, ValueError)}
    kind = kinds.get(said["kind"]) or getattr(errors, said["kind"], None)
    return RuntimeError(f"{said['kind']}: {text}") if kind is None else kind(text)
