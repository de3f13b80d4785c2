"""Backups of Keras's ``BackupAndRestore``, of which the supervisor of the job is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tensoropt.elastic.control_lines import tell_checkpoint

__all__ = ["told_backups"]

_KIND = "BackupAndRestore"
_METHODS = ("_save_model", "_backup")  # of Keras, and of tf_keras


@contextmanager
def told_backups(callbacks: Any) -> Iterator[None]:
    """A context in which the supervisor is told of each backup. The first rank calls this.

    Args:
        callbacks: the argument of ``fit``.
    """
    given = getattr(callbacks, "callbacks", callbacks)
    given = given if isinstance(given, (list, tuple)) else [given]
    backups = [each for each in given if any(kind.__name__ == _KIND for kind in type(each).__mro__)]
    wrapped = [(each, name) for each in backups for name in _METHODS if hasattr(each, name)]
    for each, name in wrapped:
        setattr(each, name, _telling(getattr(each, name)))
    try:
        yield
    finally:
        for each, name in wrapped:
            delattr(each, name)


def _telling(method: Callable[..., Any]) -> Callable[..., Any]:
    def save(*args: Any, **kwargs: Any) -> None:
        method(*args, **kwargs)
        tell_checkpoint()

    return save
