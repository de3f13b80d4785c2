"""Measure a machine: collectives, overheads and operators. Results are saved regularly."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from collectives import Group
from collectives.bandwidth.matrices import KINDS, RUNS, measured_bytes
from collectives.bandwidth.measure import measure_call, measure_collective
from collectives.bandwidth.shared_chain import SharedChain
from tensoropt.cost.cluster import Device
from tensoropt.cost.machine_profile import MeasuredCollective, Overheads, Profile
from tensoropt.cost.measured_operator_times import work_key
from tensoropt.cost.measuring.measure_operators import (
    ROUNDS,
    TENSORFLOW,
    Lowering,
    measure_operator,
    timed_in_turn,
)
from tensoropt.cost.operator_time import LocalOperator, OperatorWork, roofline_time
from tensoropt.cost.slowdown_in_steps import MeasuredStep
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import Runs

__all__ = ["Measurer", "Progress", "WantedCollective", "partitions"]

Progress = Callable[[str, int, int], None]
"""Called before every measurement with its name, its number and the count of all."""

_LEAST_CALLS = 3
"""Calls of a slow collective in a measurement."""
_SAVED_EVERY_SECONDS = 2.0
_DISPATCHED = 64
"""Operators in the chain whose dispatch is timed."""
_STEPS = 15
"""Repetitions of the empty step."""
_CROWDED_ROUNDS = 5
"""Repetitions of an operator if ranks share cores."""
_COPIED_BYTES = 2**14
"""Below this size latency dominates, and the contiguity of pieces makes no difference."""


Price = Callable[[str, tuple[int, ...], int], float]
"""Returns the seconds of a collective of a kind along some axes, by the bytes of one rank."""


class WantedCollective(NamedTuple):
    """A collective to measure; see `MeasuredCollective`."""

    kind: str
    runs: Runs
    axes: tuple[int, ...]
    wanted_bytes: int


def partitions(mesh: Mesh) -> Iterator[tuple[int, ...]]:
    """Yield every set of mesh axes along which groups can run: the device partitionings."""
    axes = range(len(mesh.axes))
    for count in range(1, len(mesh.axes) + 1):
        yield from itertools.combinations(axes, count)


class Measurer:
    """Adds missing measurements to a profile. Every rank of ``everyone`` makes the same calls.

    Args:
        everyone: all ranks.
        profile: the measurements so far, the same on all ranks.
        path: file in which rank 0 saves the profile every few seconds.
        config: configuration of the sessions.
        progress: called before every measurement.
        lowering: the kernels that steps run.
    """

    def __init__(
        self,
        everyone: Group,
        profile: Profile,
        path: Path,
        config: tf.compat.v1.ConfigProto,
        progress: Progress,
        lowering: Lowering = TENSORFLOW,
    ) -> None:
        self.profile = profile
        self.measured = 0
        self._everyone = everyone
        self._mesh = Mesh(profile.mesh)
        self._path = path
        self._config = config
        self._progress = progress
        self._lowering = lowering
        self._saved = monotonic()
        setting = profile.setting
        self._crowded = max(setting.ranks_per_host) > setting.cores_per_host

    def wanted(self, largest_bytes: int) -> list[WantedCollective]:
        """Return the collectives of a whole profile that are not measured yet.

        They are every collective over every device partitioning, at sizes 2^i up to the largest.
        """
        known = {
            (each.kind, each.runs, each.axes, each.wanted_bytes)
            for each in self.profile.collectives
        }
        wanted = []
        for axes in partitions(self._mesh):
            for kind in KINDS:
                run_kinds = RUNS.get(kind, ("",))
                for runs in run_kinds:
                    for size in _sizes(largest_bytes, self._mesh.pieces(axes), runs, self._crowded):
                        if size >= _COPIED_BYTES or runs == run_kinds[0]:
                            wanted.append(WantedCollective(kind, runs, axes, size))
        return [collective for collective in wanted if collective not in known]

    def collectives(
        self, wanted: Sequence[WantedCollective], seconds: float = inf, cost: Price | None = None
    ) -> list[WantedCollective]:
        """Measure collectives in a given order, for a limited time.

        Args:
            wanted: the collectives, the same on all ranks in the same order.
            seconds: the time for measuring.
            cost: gives a rough time of each collective; one that would exceed the time is left out.

        Returns:
            The collectives that are left.
        """
        shared: SharedChain | None = None
        left: list[WantedCollective] = []
        until = monotonic() + seconds
        for number, collective in enumerate(wanted):
            kind, runs, axes, size = collective
            expected = 0.0 if cost is None else _LEAST_CALLS * cost(kind, axes, size)
            late = np.array([monotonic() + expected > until])
            if seconds < inf and self._everyone.broadcast(late)[0]:
                left.append(collective)
                continue
            self._progress(f"{kind} {list(axes)}", number, len(wanted))
            partition = self._mesh.partition(axes)
            if self._crowded:
                shared = shared or SharedChain(self._everyone, self._config)
                bytes_, time = shared.measure(partition, kind, size, runs)
            else:
                bytes_, time = measure_collective(
                    self._everyone, partition, kind, size, self._config, runs=runs
                )
            measured = MeasuredCollective(
                kind=kind,
                runs=runs,
                axes=axes,
                wanted_bytes=size,
                bytes=bytes_,
                nanoseconds=max(1, round(time.seconds * 1e9)),
                spread=round(time.spread, 4),
                outliers=time.outliers,
            )
            self._add(replace(self.profile, collectives=(*self.profile.collectives, measured)))
        if shared is not None:
            shared.close()
        return left

    def overheads(self, agree: Callable[[], None]) -> None:
        """Measure the time of operators, collectives and steps besides their work.

        Args:
            agree: the call by which the ranks agree before every run.
        """
        if self.profile.overheads is not None:
            return
        self._progress("overheads", 0, 1)
        dispatch, step = self._steps(agree)
        call = measure_call(self._everyone, self._config, self._crowded)
        overheads = Overheads(dispatch, round(call.seconds * 1e9), step)
        self._add(replace(self.profile, overheads=overheads))

    def operators(
        self,
        script: tf.Graph,
        operators: Sequence[LocalOperator],
        mesh: Mesh,
        device: Device,
        seconds: float,
    ) -> int:
        """Measure operators at local shapes, in order, until the time is over.

        An operator is left if one that takes as long as the longest so far would exceed the time.

        Args:
            script: the graph with the operators.
            operators: the operators, the same on all ranks in the same order.
            mesh: the devices that they are split over.
            device: gives a rough time of each operator.
            seconds: time for measuring.

        Returns:
            The number of operators that are left.
        """
        known = {work_key(each.work) for each in self.profile.operators}
        missing = [
            each
            for each in operators
            if work_key(each.work) not in known and _digest(each.work) not in self.profile.skipped
        ]
        done = len(operators) - len(missing)
        begun = last = monotonic()
        longest = 0.0
        for number, local in enumerate(missing):
            now = monotonic()
            longest, last = max(longest, now - last), now
            if self._everyone.broadcast(np.array([now + longest > begun + seconds]))[0]:
                return len(missing) - number
            self._progress(local.work.operator, done + number, len(operators))
            forward = OperatorWork(
                local.work.family, local.work.dtype, local.work.flops, local.work.bytes
            )
            estimate = roofline_time(device, forward).forward / 1e9
            measured = measure_operator(
                self._everyone,
                script,
                local,
                mesh,
                estimate,
                self._config,
                self._lowering,
                _CROWDED_ROUNDS if self._crowded else ROUNDS,
                self._crowded,
            )
            if isinstance(measured, str):
                reason = f"{local.work.operator}: {measured}"
                skipped = {**self.profile.skipped, _digest(local.work): reason}
                self._add(replace(self.profile, skipped=skipped))
            else:
                self._add(replace(self.profile, operators=(*self.profile.operators, measured)))
        return 0

    def add_steps(self, steps: Sequence[MeasuredStep]) -> None:
        """Add measured training steps."""
        if steps:
            self._add(replace(self.profile, steps=(*self.profile.steps, *steps)))

    def finish(self) -> None:
        """Mark the profile as complete, and save it."""
        if self.measured or not self.profile.complete:
            self.profile = replace(self.profile, complete=True)
            self.save()

    def save(self) -> None:
        """Write the file, on rank 0."""
        if self._everyone.rank == 0:
            self.profile.save(self._path)
        self._saved = monotonic()

    def _add(self, profile: Profile) -> None:
        self.profile = profile
        self.measured += 1
        if monotonic() - self._saved > _SAVED_EVERY_SECONDS:
            self.save()

    def _steps(self, agree: Callable[[], None]) -> tuple[int, int]:
        """Return the nanoseconds of starting an operator, and of a step that computes nothing."""
        with tf.Graph().as_default() as graph:
            first = tf.compat.v1.placeholder_with_default(tf.constant(0.0), [])
            last = first
            for _ in range(_DISPATCHED):
                last = tf.identity(last)
            with tf.compat.v1.Session(graph=graph, config=self._config) as session:
                empty, full = session.make_callable(first.op), session.make_callable(last.op)

                def step() -> None:
                    agree()
                    empty()

                runs = (empty, full, step)
                seconds = timed_in_turn(self._everyone, runs, _STEPS, self._crowded)
        one_start, chained, step_seconds = np.median(seconds, axis=0)
        dispatch = max(0.0, chained - one_start) / _DISPATCHED
        return round(dispatch * 1e9), round(step_seconds * 1e9)


def _sizes(largest_bytes: int, group: int, runs: str, crowded: bool = False) -> list[int]:
    """Return powers of 2 from 4 bytes up. Of those that are measured at the same size, the last
    stays.

    If ranks share cores, every second power is left out where latency dominates, and for
    collectives with several kinds of runs. The bandwidth is interpolated there.
    """
    largest = largest_bytes.bit_length() - 1
    sizes = [
        2**i
        for i in range(2, largest + 1)
        if not crowded or (largest - i) % 2 == 0 or not (runs or 2**i < _COPIED_BYTES)
    ]
    return list({measured_bytes(size, group, runs): size for size in sizes}.values())


def _digest(work: OperatorWork) -> str:
    """Return the name of a work that could not be timed."""
    return hashlib.sha256(repr(work_key(work)).encode()).hexdigest()[:16]
