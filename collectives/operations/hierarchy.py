"""A collective of ranks on several machines, as collectives within machines and across them.

All ranks of a machine go across at once, each with a slice of its own, so that machines send each
other as much as if each were one rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from collectives.buffers import dimension
from collectives.group import Group
from collectives.operations.kinds.allgather import Allgather
from collectives.operations.kinds.allreduce import Allreduce
from collectives.operations.kinds.alltoall import Alltoall
from collectives.operations.kinds.reduce_scatter import ReduceScatter
from collectives.operations.local import Cut, Pad, Reshape
from collectives.operations.operation import Collective, Local
from collectives.operations.stages import CollectiveStage, LocalStage, Place, Stage

__all__ = ["Grid", "Part", "in_hierarchy"]

_KINDS: dict[type[Collective], str] = {
    Allgather: "allgather",
    Allreduce: "allreduce",
    Alltoall: "alltoall",
    ReduceScatter: "reduce_scatter",
}


@dataclass(frozen=True, slots=True)
class Part:
    """One of the stages that make a collective.

    Attributes:
        stage: what is done.
        shape: of the results.
        kind: of a collective; empty for what a rank does alone.
        is_within: whether its groups are on a machine each.
    """

    stage: Stage
    shape: tuple[int, ...]
    kind: str = ""
    is_within: bool = True


@dataclass(frozen=True, slots=True)
class Grid:
    """Where the members of a group are: as many on each of several machines.

    Attributes:
        machines: number of machines.
        inside: number of members on each.
        is_by_machine: whether members of one machine come one after another in the group; else
            the first member of each machine comes first, then the second of each, and so on.
    """

    machines: int
    inside: int
    is_by_machine: bool

    @classmethod
    def of(cls, hosts: Sequence[str]) -> Grid | None:
        """That of members on these machines; None where they are on one, each on its own, or in
        no such order."""
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
        """Rows and columns, where a group's positions are the places of a matrix in order."""
        return (self.machines, self.inside) if self.is_by_machine else (self.inside, self.machines)

    def levels(self, group: Group) -> tuple[Group, Group]:
        """The members on this one's machine, and those that have its place on each machine."""
        columns = self.sizes[1]
        row, column = divmod(group.rank, columns)
        in_row = group.subgroup(group.ranks[row * columns : (row + 1) * columns])
        in_column = group.subgroup(group.ranks[column::columns])
        return (in_row, in_column) if self.is_by_machine else (in_column, in_row)


def in_hierarchy(
    collective: Collective, groups: Sequence[Group], shape: Sequence[int | None]
) -> list[Part] | None:
    """The stages that make what a collective makes, in order.

    Reductions add up in another order, and half precision is rounded on each level; all members
    have the same bits.

    Args:
        collective: the same of all groups.
        groups: of each rank of this process.
        shape: of what each rank gives.

    Returns:
        None on every member where there are none: for an exchange, members that lie in no `Grid`,
        a shape that is unknown, has no elements or does not divide.
    """
    grid = Grid.of(groups[0].hosts)
    known = [extent for extent in shape if extent]
    if grid is None or len(known) != len(shape):
        return None
    stages, rank, size = _Stages(groups, grid), len(known), len(groups[0].ranks)
    match collective:
        case Allreduce(reducer):
            _allreduce(stages, reducer, known)
        case ReduceScatter(dim, reducer) if not known[dimension(dim, rank)] % size:
            _reduce_scatter(stages, dimension(dim, rank), reducer, known)
        case Allgather(dim):
            _allgather(stages, dimension(dim, rank), known)
        case Alltoall(cut, joined) if not known[dimension(cut, rank)] % size:
            _alltoall(stages, dimension(cut, rank), dimension(joined, rank), known)
        case _:
            return None
    return stages.found


class _Stages:
    """Collects stages, in order."""

    def __init__(self, groups: Sequence[Group], grid: Grid) -> None:
        levels = [grid.levels(group) for group in groups]
        self.grid = grid
        self.found: list[Part] = []
        self._within = tuple(within for within, _ in levels)
        self._across = tuple(across for _, across in levels)
        self._places = (Place(0, 1),) * len(levels)

    def alone(self, operation: Local, shape: Sequence[int]) -> None:
        self.found.append(Part(LocalStage(operation, self._places), tuple(shape)))

    def reshape(self, shape: Sequence[int]) -> None:
        self.alone(Reshape(tuple(shape)), shape)

    def within(self, collective: Collective, shape: Sequence[int]) -> None:
        """Among the members on a machine."""
        self._add(collective, self._within, shape, True)

    def across(self, collective: Collective, shape: Sequence[int]) -> None:
        """Among those with one place on each machine."""
        self._add(collective, self._across, shape, False)

    def _add(
        self,
        collective: Collective,
        groups: tuple[Group, ...],
        shape: Sequence[int],
        is_within: bool,
    ) -> None:
        stage, kind = CollectiveStage(collective, groups), _KINDS[type(collective)]
        self.found.append(Part(stage, tuple(shape), kind, is_within))

    def cut(self, extent: int) -> list[int]:
        """A dimension in rows and columns of shards."""
        rows, columns = self.grid.sizes
        return [rows, columns, extent // (rows * columns)]

    @property
    def dims(self) -> tuple[int, int]:
        """Which of rows and columns are the members on a machine, and which the machines."""
        return (1, 0) if self.grid.is_by_machine else (0, 1)


def _allreduce(stages: _Stages, reducer: str, shape: list[int]) -> None:
    """Each member reduces a slice of its machine's, then of all machines'."""
    size, inside = prod(shape), stages.grid.inside
    slice_ = -(-size // inside)
    padded = slice_ * inside
    stages.reshape([size])
    if padded != size:
        stages.alone(Pad(0, padded), [padded])
    stages.within(ReduceScatter(0, reducer), [slice_])
    stages.across(Allreduce(reducer), [slice_])
    stages.within(Allgather(0), [padded])
    if padded != size:
        stages.alone(Cut(0, size), [size])
    stages.reshape(shape)


def _reduce_scatter(stages: _Stages, dim: int, reducer: str, shape: list[int]) -> None:
    """Each member reduces its machine's shards for those with its place, who share them."""
    before, (extent, *after) = shape[:dim], shape[dim:]
    cut, (inside, outside) = stages.cut(extent), stages.dims
    stages.reshape([*before, *cut, *after])
    cut[inside] = 1
    stages.within(ReduceScatter(dim + inside, reducer), [*before, *cut, *after])
    cut[outside] = 1
    stages.across(ReduceScatter(dim + outside, reducer), [*before, *cut, *after])
    stages.reshape([*before, cut[-1], *after])


def _allgather(stages: _Stages, dim: int, shape: list[int]) -> None:
    """A shard goes to one member on each machine, which has it for the others there."""
    before, (extent, *after) = shape[:dim], shape[dim:]
    (inside, outside), sizes = stages.dims, stages.grid.sizes
    joined = [1, 1, extent]
    stages.reshape([*before, *joined, *after])
    joined[outside] = sizes[outside]
    stages.across(Allgather(dim + outside), [*before, *joined, *after])
    joined[inside] = sizes[inside]
    stages.within(Allgather(dim + inside), [*before, *joined, *after])
    stages.reshape([*before, prod(joined), *after])


def _alltoall(stages: _Stages, split_dim: int, concat_dim: int, shape: list[int]) -> None:
    """Each member gets its machine's shards for those with its place, who then exchange them: a
    message to each machine instead of one to each member."""
    made: list[int] = []
    for dim, extent in enumerate(shape):
        if dim == concat_dim:
            join_at = len(made)
            made += [1, 1]
        if dim == split_dim:
            cut_at = len(made)
        made += stages.cut(extent) if dim == split_dim else [extent]
    result = list(shape)
    result[split_dim] //= prod(stages.grid.sizes)
    result[concat_dim] *= prod(stages.grid.sizes)
    stages.reshape(made)
    for move, level in zip((stages.within, stages.across), stages.dims, strict=True):
        made[cut_at + level], made[join_at + level] = 1, stages.grid.sizes[level]
        move(Alltoall(cut_at + level, join_at + level), made)
    stages.reshape(result)
