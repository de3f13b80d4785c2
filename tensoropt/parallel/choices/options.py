"""The options of a group of tied operators, stored as arrays and converted on access."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from tensoropt.arrays import BoolArray, Int8Array
from tensoropt.parallel.assignments import NO_INDEX, configuration_of, index_pieces
from tensoropt.parallel.configuration import Configuration, piece_limits
from tensoropt.parallel.mesh import Mesh
from tensoropt.tdl.derivation import Derivation

__all__ = ["Choice", "Follower", "Options", "following"]


Choice = Mapping[str, Configuration]
"""An option of a group: a configuration for each member."""


@dataclass(frozen=True, slots=True, eq=False)
class Follower:
    """The configurations of one member of a group, without its name.

    It is compared by identity. Members of a graph with equal configurations share one object.

    Attributes:
        assigned: int8[K, axes], the index that every axis splits under each option.
        indices: number of indices of the member.
    """

    assigned: Int8Array
    indices: int


class Options(Sequence[Choice]):
    """A sequence of options. The configurations of an option are built on access.

    Args:
        members: names of the operators.
        followers: the configurations of each member.
        kept: the choices of kept copies (`KEPT`). The options are in blocks, one for each choice.
    """

    __slots__ = ("_followers", "_kept", "_members")

    def __init__(
        self,
        members: Sequence[str],
        followers: Sequence[Follower],
        kept: tuple[str, ...] = ("both",),
    ) -> None:
        self._members = tuple(members)
        self._followers = tuple(followers)
        self._kept = kept

    @property
    def kept(self) -> tuple[str, ...]:
        """The choices of kept copies of the members' outputs. Each has the same splits."""
        return self._kept

    @property
    def followers(self) -> tuple[Follower, ...]:
        """The configurations of each member, in the order of the members."""
        return self._followers

    def __len__(self) -> int:
        return len(self._followers[0].assigned)

    @overload
    def __getitem__(self, number: int) -> Choice: ...

    @overload
    def __getitem__(self, number: slice) -> tuple[Choice, ...]: ...

    def __getitem__(self, number: int | slice) -> Choice | tuple[Choice, ...]:
        if isinstance(number, slice):
            return tuple(self[each] for each in range(*number.indices(len(self))))
        if not -len(self) <= number < len(self):
            raise IndexError(f"options are numbered from 0 to {len(self) - 1}. Got {number}.")
        kept = self._kept[number % len(self) * len(self._kept) // len(self)]
        return {
            name: configuration_of(follower.assigned[number], follower.indices, kept)
            for name, follower in zip(self._members, self._followers, strict=True)
        }


def following(
    leader: Derivation, assigned: Int8Array, follower: Derivation, mesh: Mesh
) -> tuple[Int8Array, BoolArray]:
    """Return `follower_configuration` for all of a leader's configurations at once.

    Returns:
        int8[K, axes], the follower's configurations, and bool[K], whether it can follow.
    """
    is_redundant = (assigned == NO_INDEX).all(axis=1)
    if tuple(i.extent for i in leader.indices) != tuple(i.extent for i in follower.indices):
        return np.full_like(assigned, NO_INDEX), is_redundant
    allowed = [index.splittable and index.reducer is None for index in follower.indices]
    follows = np.array([*allowed, True])[assigned].all(axis=1)
    pieces = index_pieces(assigned, len(allowed), mesh)[:, :-1]
    limits, most = np.array(piece_limits(follower, mesh), np.int64).reshape(-1, 2).T
    divided = (limits % pieces == 0) | (pieces <= most)
    return assigned, follows & divided.all(axis=1)
