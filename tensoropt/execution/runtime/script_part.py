"""The part of a script that a run needs, after a plan's substitutions; look-ups in its graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import tensorflow as tf

from tensoropt.execution.edges.checks import checks_of
from tensoropt.execution.runtime.emitted_graph import Extents
from tensoropt.graph.backward_reads import BackwardReads
from tensoropt.graph.batch_norm import BatchNorm, with_batch_norm
from tensoropt.graph.from_tensorflow import INITIALISED_TYPES, backward_reads, import_graph
from tensoropt.graph.operator import Graph
from tensoropt.graph.ordering import changes_last, reads_first, statistics_last
from tensoropt.transformations.rewritten.application import Rewrite, reads_of, rewritten

__all__ = ["ScriptPart", "initializers_of", "operator_names", "part_of_script", "shape_and_type"]


@dataclass(frozen=True, slots=True, eq=False)
class ScriptPart:
    """The part of a script that a run needs.

    Attributes:
        graph: the operators, after the plan's substitutions.
        unset: names of the variables that have no value before this part initialises them.
        checked: names of the operators that check values, see `Checks`.
        reads: finds the tensors that the gradients of the operators read.
    """

    graph: Graph
    unset: frozenset[str]
    checked: frozenset[str]
    reads: Callable[[], BackwardReads]


def part_of_script(
    script: tf.Graph,
    roots: Sequence[str],
    shapes: Mapping[str, Extents],
    rewrites: Sequence[Rewrite],
    batch_norm: BatchNorm,
    imported: Graph | None = None,
) -> ScriptPart:
    """Return the part of a script that some roots need.

    All variables that the part does not initialise have a value before the program runs. So an
    operator that asks whether a variable is initialised becomes a constant. All ranks have the same
    order of reads and changes of variables.

    Args:
        script: the script's graph.
        roots: names of the operators that are run or fetched.
        shapes: the shapes of fed tensors.
        rewrites: the plan's substitutions, in their order.
        batch_norm: whether batch normalisation takes statistics of the batch or of a shard of it.
        imported: the script's graph for these roots and shapes, if it is imported already.
    """
    graph = imported or import_graph(script, roots, shapes)
    initializers = initializers_of(script)
    unset = frozenset(
        op.name for op in graph if op.is_variable and initializers.get(op.name) in graph
    )
    if any(op.type in INITIALISED_TYPES for op in graph):
        graph = import_graph(script, roots, shapes, unset)
    unrewritten = graph
    graph = rewritten(graph, rewrites, roots)
    graph = with_batch_norm(reads_first(graph, unset), batch_norm)
    graph = statistics_last(graph)
    checked = checks_of(script, graph)
    graph = changes_last(graph) if checked else graph

    def reads() -> BackwardReads:
        original = backward_reads(script, unrewritten)
        return reads_of(graph, original) if rewrites else original

    return ScriptPart(graph, unset, checked, reads)


def operator_names(script: tf.Graph) -> set[str]:
    """The names of all operators."""
    return {operation.name for operation in script.get_operations()}


def shape_and_type(script: tf.Graph, variable: str) -> tuple[tuple[int, ...], tf.DType]:
    """A variable's shape and the dtype of its values."""
    operation = script.get_operation_by_name(variable)
    shape = tf.TensorShape(operation.get_attr("shape"))
    return tuple(int(n) for n in shape), tf.as_dtype(operation.get_attr("dtype")).base_dtype


def initializers_of(script: tf.Graph) -> dict[str, str]:
    """The name of the initializer of each variable, by the variable's operator."""
    initializers: dict[str, str] = {}
    for collection in (
        tf.compat.v1.GraphKeys.GLOBAL_VARIABLES,
        tf.compat.v1.GraphKeys.LOCAL_VARIABLES,
    ):
        for variable in script.get_collection(collection):
            handle = variable.handle if hasattr(variable, "handle") else variable.op.outputs[0]
            initializer = variable.initializer
            if initializer is not None:
                initializers[handle.op.name] = initializer.name
    return initializers
