"""What can be chosen for a graph: the configurations of each group of tied operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from tensoropt.arrays import BoolArray, Int8Array
from tensoropt.graph.coarsen import leaders
from tensoropt.graph.operator import Graph
from tensoropt.graph.unrolled import same_in_every_step
from tensoropt.parallel.assignments import NO_INDEX, assignment_of, assignments
from tensoropt.parallel.choices.kinds import Kinds
from tensoropt.parallel.choices.numbered import Numbered
from tensoropt.parallel.choices.options import Follower, Options, following
from tensoropt.parallel.choices.weights_as_read import Reading, layout_as_read
from tensoropt.parallel.configuration import KEPT, Configuration
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import loader_configuration
from tensoropt.tdl import Derivation

__all__ = ["Choices", "configurations_of", "same_steps", "strategy_choices"]


@dataclass(frozen=True, slots=True)
class _Group:
    """Operators with one configuration between them.

    Attributes:
        leader: the operator whose configuration it is: the first variable, if there is one.
        members: all operators of the group, the leader included, in the order of the graph.
        weights: groups of variables that lie as one of the members reads them, and where.
    """

    leader: str
    members: tuple[str, ...]
    weights: tuple[tuple[_Group, Reading], ...] = ()

    @property
    def whole(self) -> tuple[str, ...]:
        """The members, and then those of weights."""
        return (*self.members, *(name for group, _ in self.weights for name in group.members))


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """The choices of one group.

    Attributes:
        leader: the operator whose configuration is chosen.
        members: all operators of the group, in the order of the graph; then weights that lie as
            one of these reads them, with what is tied to them.
        options: per choice the configuration of every member.
        weights: those weights, and what is tied to them.
    """

    leader: str
    members: tuple[str, ...]
    options: Options
    weights: frozenset[str] = frozenset()

    def kept(self, name: str) -> tuple[str, ...]:
        """What may be kept of a member's outputs, the same splits for each: of weights, all."""
        ways = self.options.kept
        return ("both",) * len(ways) if name in self.weights else ways


def strategy_choices(
    graph: Graph,
    mesh: Mesh,
    batch_placeholders: frozenset[str] = frozenset(),
    derivations: Mapping[str, Derivation] | None = None,
    kept: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    leader_of: Mapping[str, str] | None = None,
    as_read: Mapping[str, Reading] = MappingProxyType({}),
    same: Mapping[str, str] | None = None,
) -> tuple[Choices, ...]:
    """All choices of a graph, a group each; a strategy is one option of every group.

    Args:
        graph: the graph.
        mesh: the devices.
        batch_placeholders: placeholders loaded data parallel.
        derivations: of the operators, where they are known already; else some may read partial
            sums.
        kept: per operator what may be kept of its outputs; all copies where it says nothing. A
            group is offered what all its members are.
        leader_of: by default `tensoropt.graph.coarsen.leaders` of the graph.
        as_read: `tensoropt.parallel.choices.weights_as_read.readings` of the graph, where weights
            lie as they are read and form no groups of their own.
        same: `same_steps` of the graph, where they are known already.

    The steps of an unrolled recurrence are one group for each operator of the recurrent layer:
    a layer has one configuration, as in the paper, where it is one operator. A loader has one
    option: data parallelism where it holds the batch. Constants are in no
    group: every rank has them, and takes its piece when a program is built.
    """
    if derivations is None:
        derivations = Kinds(graph, partial_operands=True).derivations
    numbered = Numbered()
    number = {name: numbered.of(derivation) for name, derivation in derivations.items()}
    alike: dict[Hashable, tuple[Follower, ...]] = {}
    equal: dict[tuple[bytes, int, int], Follower] = {}
    found = []
    leader_of = leaders(graph) if leader_of is None else leader_of
    same = same_steps(graph, number, leader_of) if same is None else same
    for group in _with_weights(_groups(leader_of, same), as_read):
        if len(group.members) == 1 and graph[group.leader].is_constant:
            continue
        loader = graph[group.leader].is_placeholder
        key = (
            (loader, group.leader in batch_placeholders) if loader else None,
            _likeness(graph, group, number),
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
        options = Options(group.whole, alike[key], ways)
        weights = frozenset(group.whole[len(group.members) :])
        found.append(Choices(group.leader, group.whole, options, weights))
    return tuple(found)


def same_steps(
    graph: Graph, derivations: Mapping[str, int], leader_of: Mapping[str, str]
) -> Mapping[str, str]:
    """`tensoropt.graph.unrolled.same_in_every_step` by type and iteration space.

    ``derivations`` numbers those that differ.
    """

    def signature(name: str) -> Hashable:
        return graph[name].type, derivations[name]

    return same_in_every_step(graph, signature, leader_of)


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


def _groups(leader_of: Mapping[str, str], first: Mapping[str, str]) -> list[_Group]:
    """Groups of tied operators; of those that do the same in every step of a recurrence, one."""
    tied = Counter(leader_of.values())
    members: dict[str, list[str]] = {}
    leader: dict[str, str] = {}
    for name, own in leader_of.items():
        key = first[name] if tied[own] == 1 else own
        leader.setdefault(key, own)
        members.setdefault(key, []).append(name)
    return [_Group(leader[key], tuple(names)) for key, names in members.items()]


def _with_weights(groups: Sequence[_Group], as_read: Mapping[str, Reading]) -> list[_Group]:
    """Groups of weights become part of those that read them."""
    place = {name: number for number, group in enumerate(groups) for name in group.members}
    found = list(groups)
    for group in groups:
        if group.leader in as_read:
            reading = as_read[group.leader]
            number = place[reading.operator]
            weights = (*found[number].weights, (group, reading))
            found[number] = replace(found[number], weights=weights)
    return [group for group in found if group.leader not in as_read]


def _likeness(graph: Graph, group: _Group, number: Mapping[str, int]) -> Hashable:
    """What the configurations of a group's members depend on; ``number`` is of derivations."""
    return (
        group.members.index(group.leader),
        tuple((number[name], _is_loose(graph, group, name)) for name in group.members),
        tuple(
            (_likeness(graph, weights, number), number[reading.operator], reading.number)
            for weights, reading in group.weights
        ),
    )


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
    columns, possible = _columns(graph, group, derivations, candidates)
    for weights, reading in group.weights:
        read = columns[reading.operator]
        stored = layout_as_read(read, derivations[reading.operator], reading.number)
        more, follow = _columns(graph, weights, derivations, stored)
        columns |= more
        possible &= follow
    return tuple(
        Follower(columns[name][possible], len(derivations[name].indices)) for name in group.whole
    )


def _columns(
    graph: Graph, group: _Group, derivations: Mapping[str, Derivation], candidates: Int8Array
) -> tuple[dict[str, Int8Array], BoolArray]:
    """int8[K, axes] for each member under K configurations of the leader, and bool[K], which of
    these all can follow."""
    leader = derivations[group.leader]
    possible = np.ones(len(candidates), dtype=bool)
    columns = {}
    for name in group.members:
        if name == group.leader or derivations[name] == leader:
            columns[name] = candidates
        elif _is_loose(graph, group, name):
            columns[name] = np.full_like(candidates, NO_INDEX)
        else:
            columns[name], follows = following(leader, candidates, derivations[name])
            possible &= follows
    return columns, possible


def _is_loose(graph: Graph, group: _Group, name: str) -> bool:
    """Whether an operator does no work, and lies as x's gradient does whatever its indices are.

    So do the gradient by an activation, and the slices of a sparse gradient.
    """
    tag = graph[name].gradient
    return tag is not None and (tag.part != "dense" or not graph[group.leader].is_variable)
