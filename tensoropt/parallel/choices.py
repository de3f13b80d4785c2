"""What can be chosen for a graph: the configurations of each group of tied operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tensoropt.graph.coarsen import Group, groups
from tensoropt.graph.operator import Graph
from tensoropt.parallel.configuration import Configuration, configurations
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import (
    derivation_of,
    follower_configuration,
    loader_configuration,
    redundant,
)
from tensoropt.tdl import Derivation

__all__ = ["Choices", "configurations_of", "strategy_choices"]

Choice = Mapping[str, Configuration]


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """The choices of one group.

    Attributes:
        leader: the operator whose configuration is chosen.
        members: all operators of the group, in the order of the graph.
        options: per choice the configuration of every member.
    """

    leader: str
    members: tuple[str, ...]
    options: tuple[Choice, ...]


def strategy_choices(
    graph: Graph,
    mesh: Mesh,
    batch_placeholders: frozenset[str] = frozenset(),
    derivations: Mapping[str, Derivation] | None = None,
) -> tuple[Choices, ...]:
    """All choices of a graph, a group each; a strategy is one option of every group.

    A loader has one option: data parallelism where it holds the batch. Constants are in no
    group: every rank has them, and takes its piece when a program is built.
    """
    if derivations is None:
        derivations = {operator.name: derivation_of(operator) for operator in graph}
    found = []
    for group in groups(graph):
        if len(group.members) == 1 and graph[group.leader].is_constant:
            continue
        candidates = _candidates(graph, mesh, group, derivations, batch_placeholders)
        options = (_option(graph, group, candidate, derivations) for candidate in candidates)
        kept = tuple(option for option in options if option is not None)
        found.append(Choices(group.leader, group.members, kept))
    return tuple(found)


def configurations_of(
    choices: Sequence[Choices], strategy: Sequence[int]
) -> dict[str, Configuration]:
    """The configuration of every operator, for one option number per group."""
    return {
        name: configuration
        for group, number in zip(choices, strategy, strict=True)
        for name, configuration in group.options[number].items()
    }


def _candidates(
    graph: Graph,
    mesh: Mesh,
    group: Group,
    derivations: Mapping[str, Derivation],
    batch_placeholders: frozenset[str],
) -> Sequence[Configuration]:
    derivation = derivations[group.leader]
    if graph[group.leader].is_placeholder:
        return [loader_configuration(derivation, mesh, group.leader in batch_placeholders)]
    return configurations(derivation, mesh)


def _option(
    graph: Graph, group: Group, candidate: Configuration, derivations: Mapping[str, Derivation]
) -> Choice | None:
    """Every member's configuration with the leader's, None where one cannot follow."""
    leader = derivations[group.leader]
    option: dict[str, Configuration] = {}
    for name in group.members:
        derivation = derivations[name]
        if name == group.leader:
            option[name] = candidate
        elif _is_loose(graph, group, name):
            option[name] = redundant(derivation)
        else:
            followed = follower_configuration(leader, candidate, derivation)
            if followed is None:
                return None
            option[name] = followed
    return option


def _is_loose(graph: Graph, group: Group, name: str) -> bool:
    """Whether an operator does no work, and lies as x's gradient does whatever its indices are.

    So do the gradient by an activation, and the slices of a sparse gradient.
    """
    tag = graph[name].gradient
    return tag is not None and (tag.part != "dense" or not graph[group.leader].is_variable)
