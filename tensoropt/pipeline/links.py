"""What stages of a pipeline send each other, and sums of gradients among replicas, in time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.cost.cluster import Cluster, Level
from tensoropt.cost.collective_time import Span, collective_seconds, whole_nanoseconds

__all__ = ["Links"]

_MANY = 2**40  # bytes, of which the time follows a link's bandwidth


@dataclass(frozen=True, slots=True)
class Links:
    """The links of machines that are alike, with some devices each.

    Attributes:
        machine: devices of one.
        within: links between its devices.
        across: links between machines; those within where there is one machine.
        overhead_seconds: of starting one collective.
        message_seconds: of starting one message, which waits for nobody but its data.
    """

    machine: int
    within: Level
    across: Level
    overhead_seconds: float
    message_seconds: float

    @classmethod
    def of(cls, cluster: Cluster) -> Links:
        """Of a cluster: its innermost level is a machine, the outermost is between machines."""
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
        """Of what each of a stage's devices sends to the next or the last stage, one message for
        each tensor.

        Args:
            bytes_: of one device; nothing is sent of 0.
            devices: of the stage; those of a machine share its link to others.
            across: whether the other stage is on another machine.
            tensors: how many.
        """
        if bytes_ == 0:
            return 0
        link = self.across if across else self.within
        users = min(devices, self.machine) if across and link.shared_by_group else 1
        moving = users * bytes_ / link.bandwidth_bytes_per_second
        starting = tensors * (self.message_seconds + link.latency_seconds)
        return whole_nanoseconds(starting + moving)

    def allreduce_nanoseconds(self, bytes_: int, devices: int, copies: int) -> int:
        """Of a sum over replicas, while all other stages' replicas do the same.

        Args:
            bytes_: that each device holds; of 0 nothing is summed.
            devices: side by side that hold the same.
            copies: of them, on other machines.
        """
        inside = min(devices, self.machine)
        outside = copies * -(-devices // self.machine)
        if bytes_ == 0 or inside * outside == 1:
            return 0
        return whole_nanoseconds(self._sum_seconds(bytes_, inside, outside))

    def sums_nanoseconds(self, bytes_: Int64Array, inside: int, outside: int) -> Int64Array:
        """Of sums of several sizes, each among some devices of each of some machines.

        Args:
            bytes_: int64[any], that each device holds; of 0 nothing is summed.
            inside: devices of a machine that hold the same.
            outside: machines, or copies of these devices.
        """
        if inside * outside == 1:
            return np.zeros_like(bytes_)
        start = self._sum_seconds(0, inside, outside)
        rate = (self._sum_seconds(_MANY, inside, outside) - start) / _MANY
        taken = np.maximum(np.rint((start + rate * bytes_) * 1e9), 1).astype(np.int64)
        return np.where(bytes_ == 0, 0, taken)

    def _sum_seconds(self, bytes_: int, inside: int, outside: int) -> float:
        """Linear in bytes."""
        link = self.within
        spans = [Span(inside, 1, link.latency_seconds, *(2 * [link.bandwidth_bytes_per_second]))]
        link = self.across
        share = link.bandwidth_bytes_per_second / (self.machine if link.shared_by_group else 1)
        spans.append(Span(outside, inside, link.latency_seconds, share, share))
        crossed = [span for span in spans if span.members > 1]
        return self.overhead_seconds + collective_seconds("allreduce", crossed, bytes_)
