"""Random numbers that are the same on all ranks: they shuffle data, and ranks feed the same."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import tensorflow as tf

from tensoropt.frontend.job.job import current
from tensoropt.tensorflow_private import context

__all__ = ["share_draws"]


def share_draws(call: str) -> None:
    """Let Python's and NumPy's global generators be as the first rank's are, and TensorFlow's seed.

    Args:
        call: of the script, which all ranks make.

    Where the script has set seeds on all ranks nothing changes. Where it has not set TensorFlow's,
    one is set that no other job has.
    """
    job = current()
    if not job.is_mpi:
        return
    own: Any = np.random.get_state(legacy=True)
    said = [random.getstate(), [own[0], own[1].tolist(), *own[2:]], context.global_seed()]
    python, numpy, seed = job.agreement.gather(call, said)[0]
    random.setstate((python[0], tuple(python[1]), python[2]))
    np.random.set_state((numpy[0], np.array(numpy[1], np.uint32), *numpy[2:]))
    if seed is None:
        seed = job.seed
    if seed != context.global_seed():
        tf.random.set_seed(seed)
