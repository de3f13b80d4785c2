"""A stage for every operator of a step, from the stages of what is computed by microbatch.

A variable, with what is updated with it and by it, is where it is read first. What is computed once
of one stage's tensors is there; what joins stages (sums of losses, a norm over all gradients) is in
the last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from tensoropt.errors import GraphError
from tensoropt.graph.coarsen import leaders
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.transformations.microbatches.batch_cut import BatchCut

__all__ = ["SHARED", "assign", "assign_at_once", "assign_forward", "is_shared"]

SHARED = -1
"""In place of a stage: of constants and what is fed, which every stage has that reads it."""


def assign_forward(cut: BatchCut, planned: Mapping[str, int], last: int) -> dict[str, int]:
    """The stage of every operator that is computed by microbatch, but for what is fed.

    Args:
        cut: how a step falls into microbatches.
        planned: stages of a plan's operators, by name; others follow what they read.
        last: the last stage.
    """
    found: dict[str, int] = {}
    for name in cut.indices:
        operator = cut.graph[name]
        if not operator.is_placeholder:
            read = [found[t.operator] for t in operator.inputs if t.operator in found]
            stage = planned.get(name, SHARED)
            found[name] = stage if stage != SHARED else max(read, default=last)
    return found


def assign_at_once(
    graph: Graph, planned: Mapping[str, int], homes: Mapping[str, int], last: int
) -> dict[str, int]:
    """The stage of every operator of a graph without gradients, of which nothing is cut.

    What is in no plan is where it is that it reads; what reads nothing, as random initial values,
    where it is read.

    Args:
        graph: the operators.
        planned: stages of a plan's operators, by name.
        homes: stages of variables; others are in the last.
        last: the last stage.

    Raises:
        GraphError: if there are gradients.
    """
    leader_of = leaders(graph)
    held = {leader_of[name]: homes[name] for name in homes if name in graph}
    found: dict[str, int | None] = {}
    for operator in graph:
        name, leader = operator.name, leader_of[operator.name]
        if operator.gradient is not None:
            raise GraphError(
                "gradients of a pipeline are of what is computed by microbatch. Got "
                f"{name!r} in a run that is fed no batch."
            )
        if is_shared(operator):
            found[name] = SHARED
        elif graph[leader].is_variable:
            found[name] = held.get(leader, last)
        elif planned.get(name, SHARED) != SHARED:
            found[name] = planned[name]
        else:
            made = [t for t in operator.inputs if found[t.operator] not in (SHARED, None)]
            stages = _of_tensors(graph, made, found)
            found[name] = last if len(stages) > 1 else next(iter(stages), None)
    for operator in reversed(list(graph)):
        stage = found[operator.name]
        for tensor in operator.inputs if stage is not None else ():
            if found[tensor.operator] is None:
                found[tensor.operator] = stage
    return {name: last if stage is None else stage for name, stage in found.items()}


def assign(
    cut: BatchCut,
    stages: Mapping[str, int],
    homes: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, int]:
    """The stage of every operator.

    Args:
        cut: how the step falls into microbatches.
        stages: of the operators that are computed by microbatch, but for what is fed.
        homes: of variables that are somewhere already.

    Raises:
        GraphError: if a stage reads what a later one makes.
    """
    graph = cut.graph
    for name in stages:
        for tensor in graph[name].inputs:
            if stages.get(tensor.operator, 0) > stages[name]:
                raise GraphError(
                    "a stage of a pipeline reads what it or stages before it make. Got "
                    f"{name!r} in stage {stages[name]}, which reads {str(tensor)!r} of stage "
                    f"{stages[tensor.operator]}."
                )
    last = max([*stages.values(), *homes.values()])
    first = _first_readers(cut, stages)
    leader_of = leaders(graph)
    held: dict[str, int] = {}
    for operator in graph:
        stage = first.get(operator.name)
        if operator.is_variable and stage is not None:
            leader = leader_of[operator.name]
            held[leader] = min(held.get(leader, last), stage)
    held |= {leader_of[name]: homes[name] for name in homes if name in graph}
    _hold_with_gradients(cut, stages, held, leader_of, first, last)
    for operator in graph:
        if operator.is_variable:
            held.setdefault(leader_of[operator.name], last)
    return {
        name: last if stage is None else stage
        for name, stage in _stages_by(cut, stages, held, leader_of, first, last).items()
    }


def is_shared(operator: Operator) -> bool:
    """Whether every stage has an operator that reads it: a constant that waits for nothing, or what
    is fed."""
    return operator.is_placeholder or (operator.is_constant and not operator.control_inputs)


def _stages_by(
    cut: BatchCut,
    stages: Mapping[str, int],
    held: Mapping[str, int],
    leader_of: Mapping[str, str],
    first: Mapping[str, int],
    last: int,
) -> dict[str, int | None]:
    """The stage of every operator, as far as it follows from where variables are."""
    graph = cut.graph
    found: dict[str, int | None] = {}
    for operator in graph:
        name = operator.name
        leader = leader_of[name]
        if is_shared(operator):
            found[name] = SHARED
        elif name in stages and name not in cut.before:
            found[name] = stages[name]
        elif graph[leader].is_variable:
            found[name] = held.get(leader)
        elif operator.gradient is not None:
            found[name] = found[operator.gradient.x.operator]
        else:
            made = [t for t in operator.inputs if found[t.operator] != SHARED]
            of_inputs = _of_tensors(graph, made, found)
            found[name] = first.get(name, last) if not made else of_inputs.pop()
            if of_inputs:
                found[name] = last
    return found


def _of_tensors(
    graph: Graph, tensors: Sequence[TensorName], found: Mapping[str, int | None]
) -> set[int | None]:
    """The stages of the larger ones of some tensors; scalars are moved to the others."""
    large = [t for t in tensors if graph.spec(t).elements > 1 or -1 in graph.spec(t).shape]
    return {found[tensor.operator] for tensor in large or tensors}


def _hold_with_gradients(
    cut: BatchCut,
    stages: Mapping[str, int],
    held: dict[str, int],
    leader_of: Mapping[str, str],
    first: Mapping[str, int],
    last: int,
) -> None:
    """Hold what no microbatch reads (an optimizer's slots) where that is which changes it."""
    found = _stages_by(cut, stages, held, leader_of, first, last)
    for operator in cut.graph:
        leader = leader_of[operator.name]
        if not operator.mutates or leader in held:
            continue
        read = [
            tensor
            for number, tensor in enumerate(operator.inputs)
            if number not in operator.mutates and found[tensor.operator] not in (SHARED, None)
        ]
        of_inputs = _of_tensors(cut.graph, read, found)
        if len(of_inputs) == 1:
            (stage,) = of_inputs
            assert stage is not None, "left out"
            held[leader] = stage


def _first_readers(cut: BatchCut, stages: Mapping[str, int]) -> dict[str, int]:
    """Of what is computed once the first stage that needs it."""
    found: dict[str, int] = {}
    for operator in reversed(list(cut.graph)):
        name = operator.name
        if operator.gradient is not None:
            continue
        stage = stages[name] if name in stages else found.get(name)
        if stage is None:
            continue
        for tensor in operator.inputs:
            if tensor.operator not in stages:
                found[tensor.operator] = min(found.get(tensor.operator, stage), stage)
    return found
