"""One imported training step of a model, ready for a search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import tensoropt as tf
from examples.models import Model, parameter_count
from tensoropt.frontend.inputs.shapes import fed_shapes, training_roots
from tensoropt.graph.backward_reads import BackwardReads
from tensoropt.graph.from_tensorflow import import_graph
from tensoropt.graph.from_tensorflow.backward_reads import backward_reads
from tensoropt.graph.operator import Graph

__all__ = ["TrainingStep", "gradient_descent_step"]


@dataclass(frozen=True, slots=True, eq=False)
class TrainingStep:
    """One step of plain gradient descent.

    Attributes:
        graph: the logical graph.
        batch_placeholders: placeholders that are loaded data parallel.
        parameters: number of parameters.
        reads: the tensors that the backward pass reads.
    """

    graph: Graph
    batch_placeholders: frozenset[str]
    parameters: int
    reads: BackwardReads

    @property
    def parameters_gb(self) -> float:
        """The size of the parameters in float32, in 2**30 bytes."""
        return self.parameters * 4 / 2**30


def gradient_descent_step(build: Callable[[], Model | None], batch_size: int) -> TrainingStep:
    """Build a model with its gradients and import it.

    Variables are described in the graph and never allocated, and nothing runs.

    Args:
        build: makes the forward graph in the default graph; or the whole step, and returns None.
        batch_size: first dimension of the fed values.
    """
    # In graph mode, TensorOpt's names build into the default graph.
    script = tf.Graph()
    with script.as_default():
        model = build()
        if model is not None:
            tf.train.GradientDescentOptimizer(0.1).minimize(model.loss)
        parameters = parameter_count()
        fed, batched = fed_shapes(script, batch_size, None)
        graph = import_graph(script, training_roots(script, None), fed)
        reads = backward_reads(script, graph)
    return TrainingStep(graph, batched & {operator.name for operator in graph}, parameters, reads)
