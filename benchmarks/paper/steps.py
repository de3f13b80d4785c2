"""Training steps as they were imported, kept: a worker that finds one needs no TensorFlow."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass
from pathlib import Path

from tensoropt.graph.backward_reads import BackwardReads
from tensoropt.graph.operator import Graph

__all__ = ["Step", "kept_step"]


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """What a search needs of a `benchmarks.training_step.TrainingStep`.

    Attributes:
        graph: the logical graph.
        batch_placeholders: loaded data parallel.
        reads: what the backward pass reads.
        parameters_gb: of float32, in 2**30 bytes.
    """

    graph: Graph
    batch_placeholders: frozenset[str]
    reads: BackwardReads
    parameters_gb: float


def kept_step(model: str, folder: Path, digest: str) -> Step:
    """A training step of a model of `benchmarks.paper.models.MODELS`.

    Args:
        model: its name.
        folder: where steps are kept; read only by who wrote them.
        digest: of the code that they follow from.
    """
    path = folder / f"{model}-{digest}.step"
    if path.exists():
        found = pickle.loads(path.read_bytes())
        assert isinstance(found, Step)
        return found
    from benchmarks.paper.models import training_step  # TensorFlow

    step = training_step(model)
    kept = Step(step.graph, step.batch_placeholders, step.reads, step.parameters_gb)
    unfinished = path.with_suffix(f".{os.getpid()}")
    unfinished.write_bytes(pickle.dumps(kept))
    unfinished.replace(path)  # several workers may make one
    return kept
