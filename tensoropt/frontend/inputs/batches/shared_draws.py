"""Random numbers that are the same on all ranks, because they shuffle the data that ranks feed."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import tensorflow as tf

from tensoropt.frontend.job.job import current
from tensoropt.tensorflow_private import context

__all__ = ["generator_states", "set_generators", "share_draws"]


def share_draws(call: str) -> None:
    """Copy the first rank's state of Python's and NumPy's global generators and TensorFlow's seed.

    Args:
        call: the call of the script that all ranks make.

    Nothing changes if the script has set seeds on all ranks. If it has not set TensorFlow's seed, a
    seed of this job is set.
    """
    job = current()
    if not job.is_mpi:
        return
    generators, seed = job.agreement.gather(call, [generator_states(), context.global_seed()])[0]
    set_generators(generators)
    if seed is None:
        seed = job.seed
    if seed != context.global_seed():
        tf.random.set_seed(seed)


def generator_states() -> str:
    """The states of Python's and NumPy's global generators, as JSON."""
    state: Any = np.random.get_state(legacy=True)
    return json.dumps([random.getstate(), [state[0], state[1].tolist(), *state[2:]]])


def set_generators(states: str) -> None:
    """Set the states that `generator_states` has returned."""
    python, numpy = json.loads(states)
    random.setstate((python[0], tuple(python[1]), python[2]))
    np.random.set_state((numpy[0], np.array(numpy[1], np.uint32), *numpy[2:]))
