"""Times of messages between stages, and of sums of gradients among replicas."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.cost.cluster import Cluster, Level
from tensoropt.cost.collective_time import Span, collective_seconds, whole_nanoseconds

__all__ = ["Links"]

_MANY = 2**40  # bytes of a message whose time is that of the bandwidth alone


@dataclass(frozen=True, slots=True)
class Links:
    """The links of a cluster of equal machines.

    Attributes:
        machine: the number of devices of a machine.
        within: the links between devices of a machine.
        across: the links between machines; equal to ``within`` on one machine.
        overhead_seconds: the time to start a collective.
        message_seconds: the time to start a message. A message waits for its data alone, not for
            other ranks.
    """

    machine: int
    within: Level
    across: Level
    overhead_seconds: float
    message_seconds: float

    @classmethod
    def of(cls, cluster: Cluster) -> Links:
        """The links of a cluster: its innermost level is a machine, its outermost the network."""
        inner = cluster.levels[-1]
        machine = inner.count or 1
        return cls(
            machine,
            inner,
            cluster.levels[0],
            cluster.collective_overhead_seconds,
            cluster.device.operator_overhead_seconds,
        )

    def send_nanoseconds(self, bytes_: int, devices: int, across: bool, tensors: int) -> int:
        """Return the time in which every device of a stage sends its tensors to a neighbour stage.

        Args:
            bytes_: the bytes that one device sends. With 0 bytes, no message is sent.
            devices: the devices of the stage. Devices of one machine share its link to the network.
            across: whether the neighbour is on another machine.
            tensors: the number of tensors; each is a message of its own.
        """
        amounts = (np.array(amount, dtype=np.int64) for amount in (bytes_, devices, tensors))
        sizes, users, messages = amounts
        return int(self.sends_nanoseconds(sizes, users, across, messages))

    def sends_nanoseconds(
        self, bytes_: Int64Array, devices: Int64Array, across: bool, tensors: Int64Array
    ) -> Int64Array:
        """Return the times of `send_nanoseconds` for several stages, one for each element."""
        link = self.across if across else self.within
        users = np.minimum(devices, self.machine) if across and link.shared_by_group else 1
        moving = users * bytes_ / link.bandwidth_bytes_per_second
        starting = tensors * (self.message_seconds + link.latency_seconds)
        nanoseconds = np.maximum(np.rint((starting + moving) * 1e9), 1).astype(np.int64)
        return np.where(bytes_ == 0, 0, nanoseconds)

    def allreduce_nanoseconds(self, bytes_: int, devices: int, copies: int) -> int:
        """Return the time of an allreduce over the replicas of a stage.

        All other stages sum at the same time and share the links between machines.

        Args:
            bytes_: the bytes that each device adds. With 0 bytes, nothing is summed.
            devices: the neighbouring devices that hold the same variables.
            copies: how many groups of these devices there are, on different machines.
        """
        inside = min(devices, self.machine)
        outside = copies * -(-devices // self.machine)
        if bytes_ == 0 or inside * outside == 1:
            return 0
        return whole_nanoseconds(self._sum_seconds(bytes_, inside, outside))

    def sums_nanoseconds(self, bytes_: Int64Array, inside: int, outside: int) -> Int64Array:
        """Return the times of allreduces of several sizes, int64 in the shape of ``bytes_``.

        Args:
            bytes_: int64[any], the bytes that each device adds. With 0 bytes, nothing is summed.
            inside: the devices of one machine that take part.
            outside: the machines that take part, with ``inside`` devices each.
        """
        if inside * outside == 1:
            return np.zeros_like(bytes_)
        start = self._sum_seconds(0, inside, outside)
        rate = (self._sum_seconds(_MANY, inside, outside) - start) / _MANY
        nanoseconds = np.maximum(np.rint((start + rate * bytes_) * 1e9), 1).astype(np.int64)
        return np.where(bytes_ == 0, 0, nanoseconds)

    def _sum_seconds(self, bytes_: int, inside: int, outside: int) -> float:
        """Return the time of one allreduce. It is a linear function of the bytes."""
        link = self.within
        spans = [Span(inside, 1, link.latency_seconds, *(2 * [link.bandwidth_bytes_per_second]))]
        link = self.across
        share = link.bandwidth_bytes_per_second / (self.machine if link.shared_by_group else 1)
        spans.append(Span(outside, inside, link.latency_seconds, share, share))
        used = [span for span in spans if span.members > 1]
        return self.overhead_seconds + collective_seconds("allreduce", used, bytes_)
