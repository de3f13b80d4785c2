"""Measured times of collectives inside a TensorFlow graph, while all groups communicate.

In a training step TensorFlow runs collectives between operators that compute. The measurement
imitates that: one graph has a chain of collectives, and between two of them an operator reads and
writes as much memory as the caches hold. The network time of a collective is the time of the rank
that arrives last, because that rank does not wait for another. If ranks share cores, the network
time is the processor time spent in the collective (`shared_seconds`). `measure_call` measures the
remaining cost: calling Python, and waiting for the other ranks. `measure_links` measures less, in
seconds, between machines.
"""

from collectives.bandwidth.links import (
    LinkTiming,
    across_machines,
    measure_links,
    within_machines,
)
from collectives.bandwidth.matrices import KINDS, RUNS, SHORT_RUN_BYTES, measured_bytes
from collectives.bandwidth.measure import measure_call, measure_collective
from collectives.bandwidth.shared_chain import SharedChain
from collectives.bandwidth.timing import Timing, shared_seconds, timing

__all__ = [
    "KINDS",
    "RUNS",
    "SHORT_RUN_BYTES",
    "LinkTiming",
    "SharedChain",
    "Timing",
    "across_machines",
    "measure_call",
    "measure_collective",
    "measure_links",
    "measured_bytes",
    "shared_seconds",
    "timing",
    "within_machines",
]
