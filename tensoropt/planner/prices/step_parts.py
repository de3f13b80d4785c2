"""The parts of a step's time, and the moves of tensors that add to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tensoropt.cost.model import ClusterCostModel
from tensoropt.parallel.resharding import LOCAL_KINDS, StepTraffic
from tensoropt.plan.details.move import Move, MoveStep, Purpose

__all__ = ["Reason", "StepTime"]


@dataclass(frozen=True, slots=True)
class Reason:
    """The tensors of a move and their readers, see `tensoropt.plan.details.Move`.

    Attributes:
        readers: may grow while the step is followed.
    """

    purpose: Purpose
    tensors: Sequence[str]
    readers: Sequence[str] = ()


@dataclass(slots=True)
class StepTime:
    """The time of a step on one device, in nanoseconds.

    Attributes:
        operators: the forward pass, the backward pass, and the recomputation of outputs that are
            not kept.
        sums: adding up the gradients of tensors with several readers.
        copies: the local steps of reshardings, which are operators of their own.
        network: collectives, from the arrival of the last device.
        hidden: the part of ``network`` in which the device computes. The processor's work for
            collectives beside computation is no part of it.
        calls: the number of calls of collectives. All collectives of a resharding are one call.
        coordination: calling all collectives, and waiting for the other devices.
        start: the fixed time of every step.
    """

    operators: int = 0
    sums: int = 0
    copies: int = 0
    network: int = 0
    hidden: int = 0
    calls: int = 0
    coordination: int = 0
    start: int = 0
    _moved: list[tuple[Reason, tuple[MoveStep, ...], int, int]] = field(
        default_factory=list, compare=False, repr=False
    )

    @property
    def total(self) -> int:
        """The whole step."""
        computing = self.operators + self.sums + self.copies
        return computing + self.network - self.hidden + self.coordination + self.start

    @property
    def moves(self) -> tuple[Move, ...]:
        """The moves, in the order in which they were added. Their network times add up to
        ``network``."""
        return tuple(
            Move(reason.purpose, tuple(reason.tensors), tuple(reason.readers), steps, times, time)
            for reason, steps, times, time in self._moved
        )

    def move(
        self,
        cost: ClusterCostModel,
        steps: Iterable[StepTraffic],
        reason: Reason,
        times: int = 1,
        overlap: Callable[[int, int], None] | None = None,
    ) -> None:
        """Add a resharding; its collectives are one call.

        Args:
            cost: prices its steps.
            steps: its steps.
            reason: the tensors that it moves.
            times: how often it is made.
            overlap: notes the nanoseconds that it takes beside computation, and those that
                computation then loses; None if computation waits for it.
        """
        local = network = beside = processor = 0
        recorded = []
        for kind, axes, bytes_, runs in steps:
            recorded.append(MoveStep(kind, axes, bytes_))
            if kind in LOCAL_KINDS:
                local += cost.collective_nanoseconds(kind, axes, bytes_)
            else:
                seconds = cost.network_seconds(kind, axes, bytes_, runs)
                network += max(1, round(seconds * 1e9))
            if overlap is not None:
                part = cost.beside_computation(kind, axes, bytes_)
                beside += round(part.seconds * 1e9)
                processor += round(part.processor_seconds * 1e9)
        if overlap is not None and beside:
            overlap(beside, processor)
        self.copies += times * local
        self.network += times * network
        self.calls += times * (network > 0)
        if times * network:
            self._moved.append((reason, tuple(recorded), times, times * network))
