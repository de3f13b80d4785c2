"""Recomputation: a stage that keeps only received tensors runs its forward pass again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tensoropt.graph.operator import TensorName
from tensoropt.transformations.staged.stage_graph import StageGraph

__all__ = ["forward_again"]


def forward_again(step: StageGraph, names: Iterable[str], after: Sequence[str]) -> dict[str, str]:
    """Add a stage's operators of a microbatch to the graph again, for its backward pass.

    Random numbers follow from the microbatch, so the values are the same. Operators that change a
    variable are left out.

    Args:
        step: the graph; the stage is its current one.
        names: names of the operators, in topological order.
        after: control inputs of the operators that read no other operator of the pass.

    Returns:
        The operators' new names.
    """
    renamed: dict[str, str] = {}
    for name in names:
        operator = step.operators[name]
        if operator.mutates:
            continue
        read = [TensorName(renamed.get(t.operator, t.operator), t.index) for t in operator.inputs]
        inputs = tuple(read)
        controls = tuple(after) if inputs == operator.inputs else ()
        renamed[name] = f"again/{name}"
        step.add(replace(operator, name=renamed[name], inputs=inputs, control_inputs=controls))
    return renamed
