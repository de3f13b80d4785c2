"""Sums of gradients that run beside computation, as a timeline of the step.

The backward pass makes the gradients of the last layers first. The network takes buckets of them
one after another, while computation goes on, slowed by the processor's work for the network. A
collective for which computation waits, such as a statistic of batch normalisation, comes after the
buckets that were begun before it. The step ends when computation and network have ended.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from tensoropt.cost.operator_time import OperatorTime

__all__ = ["OverlappedSums"]


class OverlappedSums:
    """Collects the operators of a step in their order, and the sums of its gradients.

    Attributes:
        network_nanoseconds: time of all sums on the network.
    """

    def __init__(self) -> None:
        self.network_nanoseconds = 0
        self._passes = self._updates = 0
        self._backward: dict[str, float] = {}  # of the last microbatch, by operator
        self._sums: list[tuple[frozenset[str], int, int]] = []
        self._waits: set[str] = set()

    def compute(self, name: str, time: OperatorTime, runs: int, is_update: bool) -> None:
        """Add an operator that runs ``runs`` times; updates of variables come last."""
        if is_update:
            self._updates += runs * time.total
            return
        self._passes += runs * time.total
        self._backward[name] = time.backward

    def add(self, readers: Iterable[str], nanoseconds: int, processor: int = 0) -> None:
        """Add the sum of the gradients that some operators make by their weights.

        Args:
            readers: the operators.
            nanoseconds: its time on the network.
            processor: the nanoseconds that computation beside it loses.
        """
        self._sums.append((frozenset(readers), nanoseconds, min(processor, nanoseconds)))
        self.network_nanoseconds += nanoseconds

    def wait(self, name: str) -> None:
        """Add a collective in the backward pass of an operator, whose time is no part of the sums.

        Args:
            name: the operator. Gradients of operators before it are computed after the collective.
        """
        self._waits.add(name)

    def hidden_nanoseconds(self, busy: int) -> int:
        """Return the time by which the step is shorter than ``busy`` and the sums together.

        Args:
            busy: nanoseconds of the step besides these sums.
        """
        if not self._sums:
            return 0
        before, made = 0.0, dict[str, float]()
        for name, nanoseconds in self._backward.items():
            made[name] = self._passes - before  # the backward pass of operators before it follows
            before += nanoseconds
        stretch = busy / max(self._passes + self._updates, 1)
        waits = sorted(stretch * made.get(name, self._passes) for name in self._waits)
        end = computed = 0.0
        for readers, nanoseconds, processor in self._sums:
            ready = max((made.get(name, self._passes) for name in readers), default=self._passes)
            alone = max(0.0, stretch * ready - computed)
            end += alone + nanoseconds
            wait = bisect_left(waits, max(computed + alone, stretch * ready))
            most = waits[wait] if wait < len(waits) else busy
            computed = min(computed + alone + nanoseconds - processor, most)
        return busy + self.network_nanoseconds - round(end + busy - computed)
