"""What can be chosen for a graph: the configurations of each group of tied operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from tensoropt.graph.coarsen import leaders
from tensoropt.graph.operator import Graph
from tensoropt.graph.unrolled import same_in_every_step
from tensoropt.parallel.assignments import NO_INDEX, assignment_of, assignments
from tensoropt.parallel.configuration import KEPT, Configuration
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.numbered import Numbered
from tensoropt.parallel.options import Follower, Options, following
from tensoropt.parallel.strategy import derivation_of, loader_configuration
from tensoropt.tdl import Derivation

__all__ = ["Choices", "configurations_of", "strategy_choices"]


@dataclass(frozen=True, slots=True)
class _Group:
    """Operators with one configuration between them.

    Attributes:
        leader: the operator whose configuration it is: the first variable, if there is one.
        members: all operators of the group, the leader included, in the order of the graph.
    """

    leader: str
    members: tuple[str, ...]


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
    options: Options


def strategy_choices(
    graph: Graph,
    mesh: Mesh,
    batch_placeholders: frozenset[str] = frozenset(),
    derivations: Mapping[str, Derivation] | None = None,
    kept: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    leader_of: Mapping[str, str] | None = None,
) -> tuple[Choices, ...]:
    """All choices of a graph, a group each; a strategy is one option of every group.

    Args:
        graph: the graph.
        mesh: the devices.
        batch_placeholders: placeholders loaded data parallel.
        derivations: of the operators, where they are known already.
        kept: per operator what may be kept of its outputs; all copies where it says nothing. A
            group is offered what all its members are.
        leader_of: `tensoropt.graph.coarsen.leaders` of the graph, where they are known already.

    The steps of an unrolled recurrence are one group for each operator of the recurrent layer:
    a layer has one configuration, as in the paper, where it is one operator. A loader has one
    option: data parallelism where it holds the batch. Constants are in no
    group: every rank has them, and takes its piece when a program is built.
    """
    if derivations is None:
        derivations = {operator.name: derivation_of(operator) for operator in graph}
    numbered = Numbered()
    number = {name: numbered.of(derivation) for name, derivation in derivations.items()}
    alike: dict[Hashable, tuple[Follower, ...]] = {}
    equal: dict[tuple[bytes, int, int], Follower] = {}
    found = []
    for group in _groups(graph, number, leaders(graph) if leader_of is None else leader_of):
        if len(group.members) == 1 and graph[group.leader].is_constant:
            continue
        loader = graph[group.leader].is_placeholder
        key = (
            group.members.index(group.leader),
            (loader, group.leader in batch_placeholders) if loader else None,
            tuple((number[name], _is_loose(graph, group, name)) for name in group.members),
            ways := _offered_to_all(group, kept),
        )
        if key not in alike:
            followers = _followers(graph, mesh, group, derivations, batch_placeholders)
            tiled = [
                Follower(np.tile(each.assigned, (len(ways), 1)), each.indices) for each in followers
            ]
            alike[key] = tuple(
                equal.setdefault((each.assigned.tobytes(), len(each.assigned), each.indices), each)
                for each in tiled
            )
        options = Options(group.members, alike[key], ways)
        found.append(Choices(group.leader, group.members, options))
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


def _offered_to_all(group: _Group, kept: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    offered = {kept.get(name, ("both",)) for name in group.members}
    return tuple(way for way in KEPT if all(way in ways for ways in offered))


def _groups(
    graph: Graph, derivations: Mapping[str, int], leader_of: Mapping[str, str]
) -> list[_Group]:
    """Groups of tied operators; of those that do the same in every step of a recurrence, one.

    ``derivations`` numbers those that differ.
    """

    def signature(name: str) -> Hashable:
        return graph[name].type, derivations[name]

    first = same_in_every_step(graph, signature, leader_of)
    tied = Counter(leader_of.values())
    members: dict[str, list[str]] = {}
    leader: dict[str, str] = {}
    for name, own in leader_of.items():
        key = first[name] if tied[own] == 1 else own
        leader.setdefault(key, own)
        members.setdefault(key, []).append(name)
    return [_Group(leader[key], tuple(names)) for key, names in members.items()]


def _followers(
    graph: Graph,
    mesh: Mesh,
    group: _Group,
    derivations: Mapping[str, Derivation],
    batch_placeholders: frozenset[str],
) -> tuple[Follower, ...]:
    """How every member is configured under the leader's configurations that all can follow."""
    leader = derivations[group.leader]
    if graph[group.leader].is_placeholder:
        loaded = loader_configuration(leader, mesh, group.leader in batch_placeholders)
        candidates = assignment_of(loaded, mesh)
    else:
        candidates = assignments(leader, mesh)
    possible = np.ones(len(candidates), dtype=bool)
    columns = []
    for name in group.members:
        if name == group.leader or derivations[name] == leader:
            columns.append(candidates)
        elif _is_loose(graph, group, name):
            columns.append(np.full_like(candidates, NO_INDEX))
        else:
            column, follows = following(leader, candidates, derivations[name])
            columns.append(column)
            possible &= follows
    return tuple(
        Follower(column[possible], len(derivations[name].indices))
        for name, column in zip(group.members, columns, strict=True)
    )


def _is_loose(graph: Graph, group: _Group, name: str) -> bool:
    """Whether an operator does no work, and lies as x's gradient does whatever its indices are.

    So do the gradient by an activation, and the slices of a sparse gradient.
    """
    tag = graph[name].gradient
    return tag is not None and (tag.part != "dense" or not graph[group.leader].is_variable)
