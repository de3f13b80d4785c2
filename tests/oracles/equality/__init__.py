"""Random strategies against plain TensorFlow on one device: losses and updated variables.

``python -m tests.oracles.equality`` draws strategies of four models at small sizes. It trains under
each of them in one process and under mpirun, and prints the worst difference.
"""

from __future__ import annotations

from tests.oracles.equality.engine import (
    Drawn,
    Script,
    Trained,
    choices_of,
    draw,
    draw_kept,
    executor_of,
    planned_of,
    random_prices,
    train_parallel,
    train_plain,
    worst_error,
)
from tests.oracles.equality.kinds import KINDS, kept_kinds, split_kinds
from tests.oracles.equality.scripts import MODELS, many_lookups, mlp, model_script

__all__ = [
    "KINDS",
    "MODELS",
    "Drawn",
    "Script",
    "Trained",
    "choices_of",
    "draw",
    "draw_kept",
    "executor_of",
    "kept_kinds",
    "many_lookups",
    "mlp",
    "model_script",
    "planned_of",
    "random_prices",
    "split_kinds",
    "train_parallel",
    "train_plain",
    "worst_error",
]
