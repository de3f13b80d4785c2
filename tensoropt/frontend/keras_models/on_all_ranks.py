"""What a Keras model writes: all ranks put its variables together, and the first one writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensoropt.frontend.keras_models.keras_package import variables_of
from tensoropt.frontend.saving.tensorflow_files import on_first_rank

__all__ = ["write_on_first_rank"]


def write_on_first_rank(model: Any) -> None:
    """Let a model's ``save``, ``save_weights`` and ``export`` write on the first rank, while the
    others wait for it; all raise what it raises."""
    for name in ("save", "save_weights", "export"):
        setattr(model, name, _written(model, name, getattr(model, name)))


def _written(model: Any, name: str, write: Callable[..., None]) -> Callable[..., None]:
    def call(*args: Any, **kwargs: Any) -> None:
        on_first_rank(
            f"model.{name} of {model.name!r}",
            lambda: write(*args, **kwargs),
            variables_of(model),
        )

    return call
