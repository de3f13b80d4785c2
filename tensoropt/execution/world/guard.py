"""Steps that may fail on one rank without leaving the others waiting for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from collectives import Group

__all__ = ["Guard", "PeerFailure"]


class PeerFailure(Exception):
    """Another rank has failed in the same step."""


class Guard:
    """Before each collective of a step, and at its end, the ranks agree that none has failed.

    A rank that fails reports it in its next turn. Up to then every rank takes part in as many turns
    as every other, so all hear of it, wherever they are. A turn costs a small collective, so this
    is for steps whose success is in doubt and whose time does not matter.

    Args:
        group: all ranks that run the step.

    Attributes:
        heard: whether the last step ended because of another rank.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self._is_over = False
        self.heard = False

    def enter(self, bytes_: int) -> None:
        """Before a collective that needs buffers of so many bytes.

        Raises:
            MemoryError: if this rank does not have them.
            PeerFailure: if another rank has failed.
        """
        try:
            np.empty(bytes_, np.uint8)
        except MemoryError:
            self._turn(is_well=False)
            raise
        self._turn(is_well=True)

    @contextmanager
    def step(self) -> Iterator[None]:
        """Around a step, all of whose collectives call `enter` first. Every rank calls.

        Raises:
            PeerFailure: if the step went well here, but not on another rank.
        """
        self._is_over = self.heard = False
        try:
            yield
        except BaseException:
            if not self._is_over:
                self._turn(is_well=False)
            raise
        self._turn(is_well=True)

    def _turn(self, is_well: bool) -> None:
        """Say how this rank is and hear of the others. After a failure there are no more turns.

        Raises:
            PeerFailure: if this rank is well, but another is not.
        """
        failures = self._group.allreduce(np.array([not is_well], np.int32), "max")
        self._is_over = bool(failures[0])
        self.heard = self._is_over and is_well
        if self.heard:
            raise PeerFailure("another rank has failed in this step")
