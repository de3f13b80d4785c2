"""A stage's forward pass again, for its backward pass, where it keeps only what it receives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tensoropt.graph.operator import TensorName
from tensoropt.transformations.staged.stage_graph import StageGraph

__all__ = ["forward_again"]


def forward_again(step: StageGraph, names: Iterable[str], after: Sequence[str]) -> dict[str, str]:
    """Add a stage's operators of a microbatch to it again; what reads none of them waits.

    They have the values of the first time, as what is drawn follows from the microbatch. Operators
    that change something are left out.

    Args:
        step: the graph; the stage is its current one.
        names: of the operators, in topological order.
        after: names of what is waited for.

    Returns:
        The operators' new names.
    """
    found: dict[str, str] = {}
    for name in names:
        operator = step.operators[name]
        if operator.mutates:
            continue
        read = [TensorName(found.get(t.operator, t.operator), t.index) for t in operator.inputs]
        inputs = tuple(read)
        controls = tuple(after) if inputs == operator.inputs else ()
        found[name] = f"again/{name}"
        step.add(replace(operator, name=found[name], inputs=inputs, control_inputs=controls))
    return found
