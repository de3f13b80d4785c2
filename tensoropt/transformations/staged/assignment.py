"""A stage for every operator of a step, from the stages of operators in microbatches.

A variable is in the stage that first reads it, with the operators that update it and with its
slots. An operator outside of microbatches is in the stage of its inputs, if these are in one stage.
Operators that join stages (sums of losses, a norm over all gradients) are in the last stage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from tensoropt.errors import GraphError
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.graph.tied_operators import leaders
from tensoropt.transformations.microbatches.batch_cut import BatchCut

__all__ = ["SHARED", "assign", "assign_at_once", "assign_forward", "is_shared"]

SHARED = -1
"""The value in place of a stage for an operator of every stage that reads it: a constant, or a fed
placeholder."""


def assign_forward(cut: BatchCut, planned: Mapping[str, int], last: int) -> dict[str, int]:
    """The stage of every operator in microbatches, except fed placeholders.

    Args:
        cut: the division of the step into microbatches.
        planned: stages of a plan's operators, by name; other operators follow their inputs.
        last: the last stage.
    """
    stages: dict[str, int] = {}
    for name in cut.indices:
        operator = cut.graph[name]
        if not operator.is_placeholder:
            read = [stages[t.operator] for t in operator.inputs if t.operator in stages]
            stage = planned.get(name, SHARED)
            stages[name] = stage if stage != SHARED else max(read, default=last)
    return stages


def assign_at_once(
    graph: Graph, planned: Mapping[str, int], homes: Mapping[str, int], last: int
) -> dict[str, int]:
    """The stage of every operator of a graph that has no gradients and no microbatches.

    An operator that is not in the plan is in the stage of its inputs. An operator without inputs,
    such as a random initial value, is in the stage of its reader.

    Args:
        graph: the operators.
        planned: stages of a plan's operators, by name.
        homes: stages of variables; other variables are in the last stage.
        last: the last stage.

    Raises:
        GraphError: if there are gradients.
    """
    leader_of = leaders(graph)
    held = {leader_of[name]: homes[name] for name in homes if name in graph}
    assigned: dict[str, int | None] = {}
    for operator in graph:
        name, leader = operator.name, leader_of[operator.name]
        if operator.gradient is not None:
            raise GraphError(
                "gradients of a pipeline are computed in microbatches. Got "
                f"{name!r} in a run that is fed no batch."
            )
        if is_shared(operator):
            assigned[name] = SHARED
        elif graph[leader].is_variable:
            assigned[name] = held.get(leader, last)
        elif planned.get(name, SHARED) != SHARED:
            assigned[name] = planned[name]
        else:
            inputs = [t for t in operator.inputs if assigned[t.operator] not in (SHARED, None)]
            stages = _of_tensors(graph, inputs, assigned)
            assigned[name] = last if len(stages) > 1 else next(iter(stages), None)
    for operator in reversed(list(graph)):
        stage = assigned[operator.name]
        for tensor in operator.inputs if stage is not None else ():
            if assigned[tensor.operator] is None:
                assigned[tensor.operator] = stage
    return {name: last if stage is None else stage for name, stage in assigned.items()}


def assign(
    cut: BatchCut,
    stages: Mapping[str, int],
    homes: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, int]:
    """The stage of every operator.

    Args:
        cut: the division of the step into microbatches.
        stages: stages of the operators in microbatches, except fed placeholders.
        homes: stages of variables that are in a stage already.

    Raises:
        GraphError: if a stage reads a tensor of a later one.
    """
    graph = cut.graph
    for name in stages:
        for tensor in graph[name].inputs:
            if stages.get(tensor.operator, 0) > stages[name]:
                raise GraphError(
                    "a stage of a pipeline reads tensors of its own and earlier stages. Got "
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
    """Whether every stage has its own copy of an operator that it reads: a fed placeholder, or a
    constant without control inputs."""
    return operator.is_placeholder or (operator.is_constant and not operator.control_inputs)


def _stages_by(
    cut: BatchCut,
    stages: Mapping[str, int],
    held: Mapping[str, int],
    leader_of: Mapping[str, str],
    first: Mapping[str, int],
    last: int,
) -> dict[str, int | None]:
    """The stage of every operator, as far as the stages of variables determine it."""
    graph = cut.graph
    assigned: dict[str, int | None] = {}
    for operator in graph:
        name = operator.name
        leader = leader_of[name]
        if is_shared(operator):
            assigned[name] = SHARED
        elif name in stages and name not in cut.before:
            assigned[name] = stages[name]
        elif graph[leader].is_variable:
            assigned[name] = held.get(leader)
        elif operator.gradient is not None:
            assigned[name] = assigned[operator.gradient.x.operator]
        else:
            inputs = [t for t in operator.inputs if assigned[t.operator] != SHARED]
            of_inputs = _of_tensors(graph, inputs, assigned)
            assigned[name] = first.get(name, last) if not inputs else of_inputs.pop()
            if of_inputs:
                assigned[name] = last
    return assigned


def _of_tensors(
    graph: Graph, tensors: Sequence[TensorName], assigned: Mapping[str, int | None]
) -> set[int | None]:
    """The stages of the given tensors that are no scalars; the stages of all if all are scalars.

    An operator is put in the stage of its large inputs, to which scalars are transferred.
    """
    large = [t for t in tensors if graph.spec(t).elements > 1 or -1 in graph.spec(t).shape]
    return {assigned[tensor.operator] for tensor in large or tensors}


def _hold_with_gradients(
    cut: BatchCut,
    stages: Mapping[str, int],
    held: dict[str, int],
    leader_of: Mapping[str, str],
    first: Mapping[str, int],
    last: int,
) -> None:
    """Assign variables that no microbatch reads (an optimizer's slots) to the stage of the gradient
    that updates them."""
    assigned = _stages_by(cut, stages, held, leader_of, first, last)
    for operator in cut.graph:
        leader = leader_of[operator.name]
        if not operator.mutates or leader in held:
            continue
        read = [
            tensor
            for number, tensor in enumerate(operator.inputs)
            if number not in operator.mutates and assigned[tensor.operator] not in (SHARED, None)
        ]
        of_inputs = _of_tensors(cut.graph, read, assigned)
        if len(of_inputs) == 1:
            (stage,) = of_inputs
            assert stage is not None, "inputs without a stage are left out above"
            held[leader] = stage


def _first_readers(cut: BatchCut, stages: Mapping[str, int]) -> dict[str, int]:
    """The first stage that needs each operator outside of microbatches."""
    first: dict[str, int] = {}
    for operator in reversed(list(cut.graph)):
        name = operator.name
        if operator.gradient is not None:
            continue
        stage = stages[name] if name in stages else first.get(name)
        if stage is None:
            continue
        for tensor in operator.inputs:
            if tensor.operator not in stages:
                first[tensor.operator] = min(first.get(tensor.operator, stage), stage)
    return first
