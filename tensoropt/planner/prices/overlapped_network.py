"""The network beside computation, as a timeline of the step.

The network carries one collective after another, in the order in which a step begins them.
Computation waits for most of them, but not for two kinds:

- Weights are there when the step begins, so those that operators need whole are gathered one after
  another. Computation waits only where an operator's weights have not come yet.
- The backward pass makes the gradients of the last layers first. The network takes buckets of them,
  while computation goes on.

Meanwhile the processor's work for the network slows computation. A collective for which computation
waits, such as a statistic of batch normalisation, comes after those that were begun before it. The
step ends when computation and network have ended.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from tensoropt.cost.operator_time import OperatorTime

__all__ = ["OverlappedNetwork"]


class OverlappedNetwork:
    """Collects the operators of a step in their order, and what the network carries beside them.

    Attributes:
        network_nanoseconds: time of all these collectives on the network.
    """

    def __init__(self) -> None:
        self.network_nanoseconds = 0
        self._forward = self._passes = self._updates = 0.0
        self._backward: dict[str, float] = {}  # of the last microbatch, by operator
        self._held = 0.0  # where the forward pass has waited last
        self._weights: list[tuple[float, float, int, int]] = []
        self._sums: list[tuple[frozenset[str], int, int]] = []
        self._waits: set[str] = set()

    def compute(self, name: str, time: OperatorTime, runs: int, is_update: bool) -> None:
        """Add an operator that runs ``runs`` times; updates of variables come last."""
        if is_update:
            self._updates += runs * time.total
            return
        self._forward += time.forward
        self._passes += runs * time.total
        self._backward[name] = time.backward

    def gather(self, nanoseconds: int, processor: int = 0) -> None:
        """Add the gathering of a weight for the next operator.

        Args:
            nanoseconds: its time on the network.
            processor: the nanoseconds that computation beside it loses.
        """
        self._weights.append((self._held, self._forward, nanoseconds, min(processor, nanoseconds)))
        self.network_nanoseconds += nanoseconds

    def hold(self) -> None:
        """Add a collective in the forward pass for which the next operator waits. Its time is no
        part of those here, and weights of later operators are gathered after it."""
        self._held = self._forward

    def add(self, readers: Iterable[str], nanoseconds: int, processor: int = 0) -> None:
        """Add the sum of the gradients that some operators make by their weights.

        Args:
            readers: the operators.
            nanoseconds, processor: see `gather`.
        """
        self._sums.append((frozenset(readers), nanoseconds, min(processor, nanoseconds)))
        self.network_nanoseconds += nanoseconds

    def wait(self, name: str) -> None:
        """Add a collective in the backward pass of an operator; its time is no part of those here.

        Args:
            name: the operator. Gradients of operators before it are computed after the collective.
        """
        self._waits.add(name)

    def hidden_nanoseconds(self, busy: int) -> int:
        """Return the time by which the step is shorter than ``busy`` and these collectives added.

        Args:
            busy: nanoseconds of the step besides these collectives.
        """
        if not self.network_nanoseconds:
            return 0
        stretch = busy / max(self._passes + self._updates, 1)
        carried = [
            (stretch * begun, [stretch * needed], nanoseconds, processor)
            for begun, needed, nanoseconds, processor in self._weights
        ]
        before, made = 0.0, dict[str, float]()
        for name, backward in self._backward.items():
            made[name] = self._passes - before  # the backward pass of operators before it follows
            before += backward
        waits = sorted(stretch * made.get(name, self._passes) for name in self._waits)
        for readers, nanoseconds, processor in self._sums:
            ready = max((made.get(name, self._passes) for name in readers), default=self._passes)
            carried.append((stretch * ready, waits, nanoseconds, processor))
        end = computed = 0.0
        for ready, stops, nanoseconds, processor in carried:
            now = max(computed, ready)
            end += now - computed + nanoseconds
            stop = bisect_left(stops, now)
            most = stops[stop] if stop < len(stops) else busy
            computed = min(now + nanoseconds - processor, most)
        return busy + self.network_nanoseconds - round(end + busy - computed)
