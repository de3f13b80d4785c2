"""The part of a script that a run needs, after a plan's substitutions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import tensorflow as tf

from tensoropt.execution.edges.checks import checks_of
from tensoropt.execution.runtime.emitted_graph import Extents
from tensoropt.execution.runtime.script_graph import initializers_of
from tensoropt.graph.backward_reads import BackwardReads
from tensoropt.graph.batch_norm import BatchNorm, with_batch_norm
from tensoropt.graph.from_tensorflow import INITIALISED_TYPES, backward_reads, import_graph
from tensoropt.graph.operator import Graph
from tensoropt.graph.ordering import changes_last, reads_first, statistics_last
from tensoropt.transformations.rewritten.application import Rewrite, reads_of, rewritten

__all__ = ["ScriptPart", "part_of_script"]


@dataclass(frozen=True, slots=True, eq=False)
class ScriptPart:
    """The part of a script that a run needs.

    Attributes:
        graph: its operators, after the plan's substitutions.
        unset: names of the variables to which it gives their first value.
        checked: names of its operators that fail on all ranks alike, see `Checks`.
        reads: finds the tensors that gradients of its operators read.
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
    """The part of a script that some roots need.

    A variable that the part does not set has a value before the program runs, so the answer to
    "is it initialised?" is known. Ranks order reads and changes of variables alike.

    Args:
        script: the script's graph.
        roots: names of the operators that are run or fetched.
        shapes: the shapes of fed tensors.
        rewrites: the plan's substitutions, in their order.
        batch_norm: whether batch normalisation takes statistics of the batch or of a shard of it.
        imported: the script's graph for these roots and shapes, if it is at hand.
    """
    graph = imported or import_graph(script, roots, shapes)
    initializers = initializers_of(script)
    unset = frozenset(
        op.name for op in graph if op.is_variable and initializers.get(op.name) in graph
    )
    if any(op.type in INITIALISED_TYPES for op in graph):
        graph = import_graph(script, roots, shapes, unset)
    written = graph
    graph = rewritten(graph, rewrites, roots)
    graph = with_batch_norm(reads_first(graph, unset), batch_norm)
    graph = statistics_last(graph)
    checked = checks_of(script, graph)
    graph = changes_last(graph) if checked else graph

    def reads() -> BackwardReads:
        found = backward_reads(script, written)
        return reads_of(graph, found) if rewrites else found

    return ScriptPart(graph, unset, checked, reads)
