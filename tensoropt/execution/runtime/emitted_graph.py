"""An emitted part of the script's graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import tensorflow as tf

from collectives.sequence import Sequence
from tensoropt.execution.stages.program_emitter import ProgramEmitter
from tensoropt.graph.from_tensorflow import called_functions, function_closure, has_operation
from tensoropt.graph.operator import Graph, Operator
from tensoropt.tdl.ops.random import STATEFUL
from tensoropt.tensorflow_private import op_def_registry

__all__ = ["EmittedGraph", "Extents", "holds_state"]

Extents = tuple[int | None, ...]

_STATE_OF_A_RUN = frozenset({"StackV2", "TensorArrayV3"})


@dataclass(frozen=True, slots=True, eq=False)
class EmittedGraph:
    """An emitted part of the script's graph. Several programs may fetch from it.

    Attributes:
        graph: see `Program`.
        roots: the operators for which it was emitted.
        shapes: the shapes of fed tensors, with None for an extent of any size.
        emitter: the emitter of its operators.
        sequence: its collectives, in order.
        holds_state: whether its operators have state in the session other than variables.
    """

    graph: Graph
    roots: frozenset[str]
    shapes: Mapping[str, Extents]
    emitter: ProgramEmitter
    sequence: Sequence
    holds_state: bool

    def has(self, roots: frozenset[str]) -> bool:
        """Whether a run of these roots can fetch from it: it has them, and they include its own."""
        return roots >= self.roots and all(map(self.emitter.knows, roots))


def holds_state(script: tf.Graph, operator: Operator) -> bool:
    """Whether an operator has state in the session: a table, or the counter of a random kernel."""
    if operator.is_variable or operator.synthetic or operator.type in _STATE_OF_A_RUN:
        return False
    if "seed2" in operator.attributes and operator.type not in STATEFUL:
        return True
    if not has_operation(script, operator.name):  # It is the placeholder of a fed output.
        return False
    called = called_functions(script.get_operation_by_name(operator.name).node_def.attr)
    bodies = function_closure(script, called).values()
    if any("seed2" in node.attr for body in bodies for node in body.node_def):
        return True
    dtypes = [spec.dtype for spec in operator.outputs]
    handles = any(dtype == "resource" or dtype.endswith("_ref") for dtype in dtypes)
    return handles and bool(op_def_registry.get(operator.type).is_stateful)
