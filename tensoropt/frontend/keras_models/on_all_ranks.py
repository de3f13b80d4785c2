"""Saving of Keras models: the first rank writes files, and reads one variable after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensoropt.frontend.keras_models.keras_package import variables_of
from tensoropt.frontend.saving.tensorflow_files import on_first_rank

__all__ = ["write_on_first_rank"]

_ENDINGS = (".h5", ".hdf5", ".keras")


def write_on_first_rank(model: Any) -> None:
    """Make a model's ``save``, ``save_weights`` and ``export`` write on the first rank.

    The other ranks send it the variables that it reads. An error of the first rank is raised on all
    ranks.
    """
    for name in ("save", "save_weights", "export"):
        setattr(model, name, _written(model, name, getattr(model, name)))


def _written(model: Any, name: str, write: Callable[..., None]) -> Callable[..., None]:
    def call(*args: Any, **kwargs: Any) -> None:
        on_first_rank(
            f"model.{name} of {model.name!r}",
            lambda: write(*args, **kwargs),
            variables_of(model),
            keeps=not _reads_once(args, kwargs),
        )

    return call


def _reads_once(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether Keras writes a file of its own, for which it reads one variable after the other."""
    paths = map(str, (*args[:1], *kwargs.values()))
    return any(path.endswith(_ENDINGS) for path in paths)
