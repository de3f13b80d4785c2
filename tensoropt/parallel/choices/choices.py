"""The options of a graph: the configurations of each group of tied operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from tensoropt.arrays import BoolArray, Int8Array
from tensoropt.errors import InfeasibleError
from tensoropt.graph.operator import Graph
from tensoropt.graph.tied_operators import leaders
from tensoropt.graph.unrolled import same_in_every_step
from tensoropt.parallel.assignments import NO_INDEX, assignment_of, assignments
from tensoropt.parallel.choices.kinds import kinds_of
from tensoropt.parallel.choices.options import Follower, Options, following
from tensoropt.parallel.choices.pins import MeshPins
from tensoropt.parallel.choices.uneven import uneven_extents
from tensoropt.parallel.choices.value_numbers import ValueNumbers
from tensoropt.parallel.choices.weights_as_read import Reading, layout_as_read
from tensoropt.parallel.configuration import KEPT, Configuration, fitted
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import loader_configuration
from tensoropt.tdl import Derivation

__all__ = ["Choices", "configurations_of", "same_steps", "strategy_choices"]


@dataclass(frozen=True, slots=True)
class _Group:
    """Operators that share one configuration.

    Attributes:
        leader: the operator whose configuration is chosen: the first variable, if there is one.
        members: all operators of the group, the leader included, in the order of the graph.
        weights: groups of weights that are stored in the layout in which a member reads them, each
            with the input that reads it.
    """

    leader: str
    members: tuple[str, ...]
    weights: tuple[tuple[_Group, Reading], ...] = ()

    @property
    def all_members(self) -> tuple[str, ...]:
        """The members, followed by those of the weights."""
        return (*self.members, *(name for group, _ in self.weights for name in group.members))


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """The options of one group.

    Attributes:
        leader: the operator whose configuration is chosen.
        members: all operators of the group, in the order of the graph, followed by ``weights``.
        options: for each option the configuration of every member.
        weights: weights that are stored in the layout in which a member reads them, and the
            operators tied to these weights.
    """

    leader: str
    members: tuple[str, ...]
    options: Options
    weights: frozenset[str] = frozenset()

    def kept(self, name: str) -> tuple[str, ...]:
        """Return the choices of kept copies (`KEPT`) of a member's outputs, one per block of
        options.

        The options are numbered in blocks. Each block has all splits with one choice of kept
        copies. All copies of weights are kept in every block.
        """
        kept = self.options.kept
        return ("both",) * len(kept) if name in self.weights else kept


def strategy_choices(
    graph: Graph,
    mesh: Mesh,
    batch_placeholders: frozenset[str] = frozenset(),
    derivations: Mapping[str, Derivation] | None = None,
    kept: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    leader_of: Mapping[str, str] | None = None,
    as_read: Mapping[str, Reading] = MappingProxyType({}),
    same: Mapping[str, str] | None = None,
    fixed: Mapping[str, Configuration] = MappingProxyType({}),
    pins: MeshPins | None = None,
    uneven: Collection[int] = (),
) -> tuple[Choices, ...]:
    """Return the options of each group of a graph. A strategy is one option of every group.

    The copies of an operator in the steps of an unrolled recurrence form one group, so a recurrent
    layer has one configuration, as in the paper. A placeholder has one option, in which its batch
    is split. Constants are in no group, since every rank has them whole.

    Args:
        graph: the graph.
        mesh: the devices.
        batch_placeholders: placeholders whose first dimension is the batch.
        derivations: derivations of the operators. By default they are computed here, and some
            operators may then read partial sums.
        kept: the choices of kept copies (`KEPT`) of each operator; only "both" by default. A group
            has the choices that all its members have.
        leader_of: by default `tensoropt.graph.tied_operators.leaders` of the graph.
        as_read: `tensoropt.parallel.choices.weights_as_read.readings` of the graph, if weights are
            stored in the layout in which they are read, and form no groups of their own.
        same: `same_steps` of the graph, computed here by default.
        fixed: operators whose splits are decided, by name. Axes that do not divide an extent here
            are dropped.
        pins: the pins on this mesh. An operator none of whose options keeps its pins has all
            options.
        uneven: further extents that may be split into uneven pieces.

    Raises:
        InfeasibleError: a group has no option with the decided splits of its members.
    """
    if derivations is None:
        derivations = kinds_of(graph, partial_operands=True).derivations
    numbers = ValueNumbers()
    number = {name: numbers.of(derivation) for name, derivation in derivations.items()}
    followers_of: dict[Hashable, tuple[Follower, ...]] = {}
    equal: dict[tuple[bytes, int, int], Follower] = {}
    choices = []
    leader_of = leaders(graph) if leader_of is None else leader_of
    same = same_steps(graph, number, leader_of) if same is None else same
    offered = uneven_extents(graph, mesh, batch_placeholders).union(uneven)
    if pins is not None:
        offered |= pins.uneven_extents(derivations)
    for group in _with_weights(_groups(leader_of, same), as_read):
        if len(group.members) == 1 and graph[group.leader].is_constant:
            continue
        is_placeholder = graph[group.leader].is_placeholder
        key = (
            (is_placeholder, group.leader in batch_placeholders) if is_placeholder else None,
            _signature(graph, group, number),
            kept_choices := _common_choices(group, kept),
            tuple(fixed.get(name) for name in group.all_members) if fixed else None,
            pins.of(group.all_members) if pins is not None else None,
        )
        if key not in followers_of:
            followers = _followers(
                graph, mesh, group, derivations, batch_placeholders, fixed, offered, pins
            )
            blocks = len(kept_choices)
            tiled = [
                Follower(np.tile(each.assigned, (blocks, 1)), each.indices) for each in followers
            ]
            followers_of[key] = tuple(
                equal.setdefault((each.assigned.tobytes(), len(each.assigned), each.indices), each)
                for each in tiled
            )
        options = Options(group.all_members, followers_of[key], kept_choices)
        weights = frozenset(group.all_members[len(group.members) :])
        choices.append(Choices(group.leader, group.all_members, options, weights))
    return tuple(choices)


def same_steps(
    graph: Graph, derivations: Mapping[str, int], leader_of: Mapping[str, str]
) -> Mapping[str, str]:
    """Return `tensoropt.graph.unrolled.same_in_every_step`, comparing types and derivations.

    ``derivations`` has the number of each operator's derivation, equal for equal derivations.
    """

    def signature(name: str) -> Hashable:
        return graph[name].type, derivations[name]

    return same_in_every_step(graph, signature, leader_of)


def configurations_of(
    choices: Sequence[Choices], strategy: Sequence[int]
) -> dict[str, Configuration]:
    """Return the configuration of every operator, given the number of each group's option."""
    return {
        name: configuration
        for group, number in zip(choices, strategy, strict=True)
        for name, configuration in group.options[number].items()
    }


def _common_choices(group: _Group, kept: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    choices_of_members = {kept.get(name, ("both",)) for name in group.members}
    return tuple(way for way in KEPT if all(way in choices for choices in choices_of_members))


def _groups(leader_of: Mapping[str, str], first: Mapping[str, str]) -> list[_Group]:
    """Return the groups of tied operators.

    An operator that is tied to no other is grouped with its copies in all steps of a recurrence.
    ``first`` has the copy in the first step.
    """
    tied = Counter(leader_of.values())
    members: dict[str, list[str]] = {}
    leader: dict[str, str] = {}
    for name, own_leader in leader_of.items():
        key = first[name] if tied[own_leader] == 1 else own_leader
        leader.setdefault(key, own_leader)
        members.setdefault(key, []).append(name)
    return [_Group(leader[key], tuple(names)) for key, names in members.items()]


def _with_weights(groups: Sequence[_Group], as_read: Mapping[str, Reading]) -> list[_Group]:
    """Merge each group of weights into the group of its reader."""
    group_of = {name: number for number, group in enumerate(groups) for name in group.members}
    joined = list(groups)
    for group in groups:
        if group.leader in as_read:
            reading = as_read[group.leader]
            number = group_of[reading.operator]
            weights = (*joined[number].weights, (group, reading))
            joined[number] = replace(joined[number], weights=weights)
    return [group for group in joined if group.leader not in as_read]


def _signature(graph: Graph, group: _Group, number: Mapping[str, int]) -> Hashable:
    """Return a key of all that the configurations of a group's members depend on.

    ``number`` has the number of each operator's derivation.
    """
    return (
        group.members.index(group.leader),
        tuple((number[name], _follows_always(graph, group, name)) for name in group.members),
        tuple(
            (_signature(graph, weights, number), number[reading.operator], reading.number)
            for weights, reading in group.weights
        ),
    )


def _followers(
    graph: Graph,
    mesh: Mesh,
    group: _Group,
    derivations: Mapping[str, Derivation],
    batch_placeholders: frozenset[str],
    fixed: Mapping[str, Configuration],
    offered: frozenset[int],
    pins: MeshPins | None,
) -> tuple[Follower, ...]:
    """Return each member's configurations, for the leader's configurations that all can follow."""
    leader = derivations[group.leader]
    if graph[group.leader].is_placeholder:
        loaded = loader_configuration(leader, mesh, group.leader in batch_placeholders)
        candidates = assignment_of(loaded, mesh)
    else:
        candidates = assignments(leader, mesh, offered)
    columns, possible = _columns(graph, mesh, group, derivations, candidates)
    for weights, reading in group.weights:
        read = columns[reading.operator]
        stored = layout_as_read(read, derivations[reading.operator], reading.number)
        columns_of_weights, can_follow = _columns(graph, mesh, weights, derivations, stored)
        columns |= columns_of_weights
        possible &= can_follow
    for name in fixed.keys() & columns.keys() if fixed else ():
        wanted = fitted(fixed[name], derivations[name], mesh)
        possible &= (columns[name] == assignment_of(wanted, mesh)).all(axis=1)
        if not possible.any():
            raise InfeasibleError(
                "the decided splits of operators that share a configuration agree. Got "
                f"{fixed[name]} for {name!r}, which no option of {group.leader!r} has; decide "
                "other splits, or leave them open."
            )
    if pins is not None:
        possible = _pinned(possible, group, columns, pins)
    return tuple(
        Follower(columns[name][possible], len(derivations[name].indices))
        for name in group.all_members
    )


def _pinned(
    possible: BoolArray, group: _Group, columns: Mapping[str, Int8Array], pins: MeshPins
) -> BoolArray:
    """Return the possible options that keep the pins of all members that can keep theirs."""
    for name in group.all_members:
        if name in pins.of_operator:
            allowed = possible & pins.allows(name, columns[name])
            possible = allowed if allowed.any() else possible
    return possible


def _columns(
    graph: Graph,
    mesh: Mesh,
    group: _Group,
    derivations: Mapping[str, Derivation],
    candidates: Int8Array,
) -> tuple[dict[str, Int8Array], BoolArray]:
    """Return the configurations of each member under K configurations of the leader.

    Returns:
        int8[K, axes] for each member, and bool[K], whether all members can follow.
    """
    leader = derivations[group.leader]
    possible = np.ones(len(candidates), dtype=bool)
    columns = {}
    for name in group.members:
        if name == group.leader or derivations[name] == leader:
            columns[name] = candidates
        elif _follows_always(graph, group, name):
            columns[name] = np.full_like(candidates, NO_INDEX)
        else:
            columns[name], follows = following(leader, candidates, derivations[name], mesh)
            possible &= follows
    return columns, possible


def _follows_always(graph: Graph, group: _Group, name: str) -> bool:
    """Whether an operator can follow every configuration because it does no work.

    This holds for gradients by activations and for the slices of sparse gradients. They have the
    layout of x's gradient whatever their indices are.
    """
    tag = graph[name].gradient
    return tag is not None and (tag.part != "dense" or not graph[group.leader].is_variable)
