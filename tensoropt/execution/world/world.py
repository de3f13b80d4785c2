"""A world: the ranks that this process emits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from collectives import Group
from collectives.native.transport import NativeTransport
from collectives.operations.calls import Unwatched, Watch
from collectives.transport.in_process import InProcessTransport
from tensoropt.execution.world.guard import Guard
from tensoropt.execution.world.resharding.resharder import Resharder
from tensoropt.parallel.mesh import Mesh

__all__ = ["Array", "SingleProcessWorld", "World"]

Array = np.ndarray[Any, Any]


class World(Resharder):
    """The ranks that one process emits, of those that a plan is for.

    Args:
        mesh, members: see `Resharder`.
        first: number of its first rank among all ranks of a job; more than 0 for a pipeline's later
            stages.

    Attributes:
        name: "mpi" or "single-process".
        first: see above.
    """

    name = ""

    def __init__(self, mesh: Mesh, members: Sequence[Group], first: int = 0) -> None:
        super().__init__(mesh, members)
        self.first = first

    @property
    def is_stateful(self) -> bool:
        """Whether TensorFlow knows how collectives may be changed; see `TensorTransport`."""
        return self._transport is None or self._transport.is_stateful

    @property
    def is_first_of_machine(self) -> bool:
        """Whether the first rank of a machine is here, which says what holds for all there."""
        return any(member.local_rank() == 0 for member in self._members)

    @property
    def guard(self) -> Guard | None:
        """The guard of a step in which a rank may fail, during such a step; else None."""
        return None

    @property
    def overlaps(self) -> bool:
        """Whether ranks compute while their collectives run; see `TensorTransport`.

        Collectives between machines mostly wait for the network, whatever cores there are.
        """
        return self._transport is not None and (self._transport.overlaps or self._has_network)

    @property
    def waits_in_collectives(self) -> bool:
        """Whether a rank computes nothing while its collectives run, or it waits for a message,
        each an operator."""
        transport, hosts = self._transport, self._members[0].hosts
        if self._has_network and len(set(hosts)) == len(hosts):
            return False
        return isinstance(transport, NativeTransport) and not transport.overlaps

    @property
    def _has_network(self) -> bool:
        return isinstance(self._transport, NativeTransport) and self._transport.has_network

    @property
    def network_seconds(self) -> float:
        """Time spent in collectives between processes so far, waiting for others included."""
        return 0.0

    def share(self, values: Sequence[Array], axes: Sequence[int]) -> list[Array]:
        """Fed values as the first rank along ``axes`` has them (outside the graph)."""
        del axes  # one process has one value of each
        return list(values)

    def sends(self, axes: Sequence[int]) -> bool:
        """Whether `share` along ``axes`` returns the values of this process."""
        del axes
        return True

    def gathered(self, rows: Array) -> Array:
        """The rows of all ranks of the world, in order, from those of the ranks emitted here
        (outside the graph)."""
        return rows  # of one process

    def watch_of_messages(self) -> Watch:
        """The watch that is called when messages to and from other worlds are moved."""
        return Unwatched()


class SingleProcessWorld(World):
    """All N ranks in one graph."""

    name = "single-process"

    def __init__(self, mesh: Mesh, first: int = 0) -> None:
        members = [Group(each) for each in InProcessTransport.all_of(mesh.size)]
        super().__init__(mesh, members, first)
