"""Divides a collective of ranks on several machines into collectives within and across machines.

All ranks of a machine communicate across machines at the same time, each with its own slice of the
data. So machines send each other as many bytes as if each machine were one rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from collectives.buffers import dimension
from collectives.group import Group
from collectives.operations.calls import CollectiveCall, LocalCall, OperationCall, Position
from collectives.operations.kinds.allgather import Allgather
from collectives.operations.kinds.allreduce import Allreduce
from collectives.operations.kinds.alltoall import Alltoall
from collectives.operations.kinds.reduce_scatter import ReduceScatter
from collectives.operations.local import Cut, Pad, Reshape
from collectives.operations.operation import Collective, Local

__all__ = ["Grid", "LevelCall", "in_hierarchy"]

_KINDS: dict[type[Collective], str] = {
    Allgather: "allgather",
    Allreduce: "allreduce",
    Alltoall: "alltoall",
    ReduceScatter: "reduce_scatter",
}


@dataclass(frozen=True, slots=True)
class LevelCall:
    """One of the calls that together have the effect of a collective.

    Attributes:
        call: the call.
        shape: shape of the results.
        kind: kind of the collective; empty for a local operation.
        is_within: whether each of its groups is on one machine.
    """

    call: OperationCall
    shape: tuple[int, ...]
    kind: str = ""
    is_within: bool = True


@dataclass(frozen=True, slots=True)
class Grid:
    """The machines of a group's members; each machine has the same number of members.

    Attributes:
        machines: number of machines.
        inside: number of members on each machine.
        is_by_machine: whether the group lists machine after machine. Otherwise it lists the first
            members of all machines, then the second members, and so on.
    """

    machines: int
    inside: int
    is_by_machine: bool

    @classmethod
    def of(cls, hosts: Sequence[str]) -> Grid | None:
        """The grid of members on these machines.

        None if all members are on one machine, if each is on its own machine, or if the machines do
        not follow one of the two orders.
        """
        machines = len(set(hosts))
        inside = len(hosts) // machines
        if 1 in (machines, inside) or machines * inside != len(hosts):
            return None
        in_turns = list(hosts[:machines]) * inside == list(hosts)
        one_by_one = all(
            len(set(hosts[first : first + inside])) == 1 for first in range(0, len(hosts), inside)
        )
        return cls(machines, inside, one_by_one) if in_turns or one_by_one else None

    @property
    def sizes(self) -> tuple[int, int]:
        """Rows and columns of the matrix whose elements, row by row, are the group's members."""
        return (self.machines, self.inside) if self.is_by_machine else (self.inside, self.machines)

    def levels(self, group: Group) -> tuple[Group, Group]:
        """The group of this member's machine, and the group with one member of each machine."""
        columns = self.sizes[1]
        row, column = divmod(group.rank, columns)
        in_row = group.subgroup(group.ranks[row * columns : (row + 1) * columns])
        in_column = group.subgroup(group.ranks[column::columns])
        return (in_row, in_column) if self.is_by_machine else (in_column, in_row)


def in_hierarchy(
    collective: Collective, groups: Sequence[Group], shape: Sequence[int | None]
) -> list[LevelCall] | None:
    """The calls within and across machines that have the effect of a collective, in order.

    Reductions add numbers in another order, and half precision is rounded on each level. All
    members still get the same bits.

    Args:
        collective: the collective, the same for all groups.
        groups: the group of each rank of this process.
        shape: shape of each rank's array.

    Returns:
        The calls. None, on every member, for an exchange, for members that form no `Grid`, and for
        a shape that is unknown, has no elements or cannot be divided.
    """
    grid = Grid.of(groups[0].hosts)
    known = [extent for extent in shape if extent]
    if grid is None or len(known) != len(shape):
        return None
    calls, rank, size = _Calls(groups, grid), len(known), len(groups[0].ranks)
    match collective:
        case Allreduce():
            _allreduce(calls, collective, known)
        case ReduceScatter(dim, reducer) if not known[dimension(dim, rank)] % size:
            _reduce_scatter(calls, dimension(dim, rank), reducer, known)
        case Allgather(dim):
            _allgather(calls, dimension(dim, rank), known)
        case Alltoall(cut, joined) if not known[dimension(cut, rank)] % size:
            _alltoall(calls, dimension(cut, rank), dimension(joined, rank), known)
        case _:
            return None
    return calls.made


class _Calls:
    """Collects calls, in order."""

    def __init__(self, groups: Sequence[Group], grid: Grid) -> None:
        levels = [grid.levels(group) for group in groups]
        self.grid = grid
        self.made: list[LevelCall] = []
        self._within = tuple(within for within, _ in levels)
        self._across = tuple(across for _, across in levels)
        self._positions = (Position(0, 1),) * len(levels)

    def local(self, operation: Local, shape: Sequence[int]) -> None:
        self.made.append(LevelCall(LocalCall(operation, self._positions), tuple(shape)))

    def reshape(self, shape: Sequence[int]) -> None:
        self.local(Reshape(tuple(shape)), shape)

    def within(self, collective: Collective, shape: Sequence[int]) -> None:
        """Add a collective of the members on each machine."""
        self._add(collective, self._within, shape, True)

    def across(self, collective: Collective, shape: Sequence[int]) -> None:
        """Add a collective of groups with one member of each machine."""
        self._add(collective, self._across, shape, False)

    def _add(
        self,
        collective: Collective,
        groups: tuple[Group, ...],
        shape: Sequence[int],
        is_within: bool,
    ) -> None:
        call, kind = CollectiveCall(collective, groups), _KINDS[type(collective)]
        self.made.append(LevelCall(call, tuple(shape), kind, is_within))

    def cut(self, extent: int) -> list[int]:
        """The sizes of a dimension that is divided into rows and columns of shards."""
        rows, columns = self.grid.sizes
        return [rows, columns, extent // (rows * columns)]

    @property
    def dims(self) -> tuple[int, int]:
        """The numbers of the matrix dimensions of a machine's members and of the machines."""
        return (1, 0) if self.grid.is_by_machine else (0, 1)


def _allreduce(calls: _Calls, collective: Allreduce, shape: list[int]) -> None:
    """Each member reduces one slice within its machine, then across the machines."""
    size, inside = prod(shape), calls.grid.inside
    slice_ = -(-size // inside)
    padded = slice_ * inside
    calls.reshape([size])
    if padded != size:
        calls.local(Pad(0, padded), [padded])
    calls.within(ReduceScatter(0, collective.reducer), [slice_])
    calls.across(collective, [slice_])
    calls.within(Allgather(0), [padded])
    if padded != size:
        calls.local(Cut(0, size), [size])
    calls.reshape(shape)


def _reduce_scatter(calls: _Calls, dim: int, reducer: str, shape: list[int]) -> None:
    """A reduce-scatter within each machine gives each member the shards of its group across
    machines; a reduce-scatter in that group finishes.
    """
    before, (extent, *after) = shape[:dim], shape[dim:]
    cut, (inside, outside) = calls.cut(extent), calls.dims
    calls.reshape([*before, *cut, *after])
    cut[inside] = 1
    calls.within(ReduceScatter(dim + inside, reducer), [*before, *cut, *after])
    cut[outside] = 1
    calls.across(ReduceScatter(dim + outside, reducer), [*before, *cut, *after])
    calls.reshape([*before, cut[-1], *after])


def _allgather(calls: _Calls, dim: int, shape: list[int]) -> None:
    """A shard goes to one member on each machine, which passes it on within the machine."""
    before, (extent, *after) = shape[:dim], shape[dim:]
    (inside, outside), sizes = calls.dims, calls.grid.sizes
    joined = [1, 1, extent]
    calls.reshape([*before, *joined, *after])
    joined[outside] = sizes[outside]
    calls.across(Allgather(dim + outside), [*before, *joined, *after])
    joined[inside] = sizes[inside]
    calls.within(Allgather(dim + inside), [*before, *joined, *after])
    calls.reshape([*before, prod(joined), *after])


def _alltoall(calls: _Calls, split_dim: int, concat_dim: int, shape: list[int]) -> None:
    """An all-to-all within each machine gives each member the shards for its group across machines;
    an all-to-all in that group finishes.

    So a member sends one message to each machine instead of one to each member.
    """
    divided: list[int] = []
    for dim, extent in enumerate(shape):
        if dim == concat_dim:
            join_at = len(divided)
            divided += [1, 1]
        if dim == split_dim:
            cut_at = len(divided)
        divided += calls.cut(extent) if dim == split_dim else [extent]
    result = list(shape)
    result[split_dim] //= prod(calls.grid.sizes)
    result[concat_dim] *= prod(calls.grid.sizes)
    calls.reshape(divided)
    for move, level in zip((calls.within, calls.across), calls.dims, strict=True):
        divided[cut_at + level], divided[join_at + level] = 1, calls.grid.sizes[level]
        move(Alltoall(cut_at + level, join_at + level), divided)
    calls.reshape(result)
