"""What a Keras model writes: all ranks put its variables together, and the first one writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensoropt.execution.shared_outcome import together
from tensoropt.frontend.job.job import current
from tensoropt.frontend.keras_models.keras_package import variables_of
from tensoropt.frontend.steps.variable_values import only_read

__all__ = ["write_on_first_rank"]


def write_on_first_rank(model: Any) -> None:
    """Let a model's ``save``, ``save_weights`` and ``export`` write on the first rank, while the
    others wait for it; all raise what it raises."""
    for name in ("save", "save_weights", "export"):
        setattr(model, name, _written(model, name, getattr(model, name)))


def _written(model: Any, name: str, write: Callable[..., None]) -> Callable[..., None]:
    def call(*args: Any, **kwargs: Any) -> None:
        job = current()
        with only_read(variables_of(model)):
            if not job.is_mpi:
                write(*args, **kwargs)
                return

            def work() -> None:
                if job.group.rank == 0:
                    write(*args, **kwargs)

            together(
                job.agreement,
                f"model.{name} of {model.name!r}",
                work,
                "a model is written where the first rank can write.",
                "Free some space, or name another path.",
            )

    return call
