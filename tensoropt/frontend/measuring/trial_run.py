"""A trial run of a plan: a few steps that change nothing that the script has built.

The trial has variables, a session and counters of random operators of its own. The inputs of its
steps are given, so that no data pipeline advances.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from collectives import Group
from tensoropt.execution.agreement.agreement import Agreement
from tensoropt.execution.lowering.draws import Draws
from tensoropt.execution.runtime.executor import Executor
from tensoropt.execution.world.guard import Guard
from tensoropt.execution.world.mpi_world import MPIWorld
from tensoropt.execution.world.world import World
from tensoropt.frontend.job.job import Job
from tensoropt.frontend.job.plan_executor import plan_executor, ranks_in_order, session_config
from tensoropt.frontend.measuring.step_meter import Meter, allocated_bytes
from tensoropt.frontend.measuring.step_timing import TimedStep, timed_step
from tensoropt.plan import Plan

__all__ = ["TrialRun", "TrialSetting"]

_LONGEST_REASON = 300  # characters


@dataclass(frozen=True, slots=True, eq=False)
class TrialSetting:
    """The setting in which all candidates run.

    Attributes:
        job: the script's job.
        script: the script's graph.
        world: the devices of candidates without stages.
        group: the ranks of that world.
        agreement: the agreement between them.
        values: values of the variables that are assigned already, by operator.
        feeds: values fed to each step, by `fed_operator`.
        memory_limit_bytes: memory limit of one device.
    """

    job: Job
    script: tf.Graph
    world: World
    group: Group
    agreement: Agreement
    values: Mapping[str, Any]
    feeds: Mapping[str, Any]
    memory_limit_bytes: int

    def world_of(self, plan: Plan) -> World:
        """The devices of a candidate; a plan with stages gets a world without collectives."""
        if not plan.stages or not self.job.is_mpi:
            return self.world
        ranks = ranks_in_order(self.group.ranks, plan)
        group = self.group if ranks == self.group.ranks else self.group.subgroup(ranks)
        return MPIWorld(plan.mesh, group, "host")


class TrialRun:
    """One candidate. Every rank of the setting's group makes the same calls.

    Args:
        setting: the setting in which it runs.
        plan: the candidate.

    Attributes:
        dropped: the reason why it cannot be adopted; empty if it can.
        failure: the error of a step that failed for another reason than memory; else empty.
        peak_bytes: measured peak memory of a device; None before `start`, and if no allocator
            counts it.
    """

    def __init__(self, setting: TrialSetting, plan: Plan) -> None:
        self._setting = setting
        self.plan = plan
        self.dropped = ""
        self.failure = ""
        self.peak_bytes: int | None = None
        self._executor: Executor | None = None
        self._draws = Draws()

    def start(self) -> bool:
        """Build the executor, assign the variables, run two steps, and measure the second's memory.

        Returns:
            Whether the plan may be adopted: False if a step fails on some rank, or uses more memory
            than the limit.
        """
        setting = self._setting
        _make_devices(session_config(setting.job))
        before = allocated_bytes()
        for work in (self._open, self._assign, self._run, self._metered):
            self._attempt(work)
            if self.dropped:
                return False
        step_bytes = None
        if self.peak_bytes is not None and before is not None:
            step_bytes = self.peak_bytes - before
        peaks = setting.group.allgather_object(step_bytes)
        self.peak_bytes = None if None in peaks else max(peaks)
        if self.peak_bytes is not None and self.peak_bytes > setting.memory_limit_bytes:
            self.dropped = (
                f"its steps took {self.peak_bytes / 2**20:,.1f} MiB of the "
                f"{setting.memory_limit_bytes / 2**20:,.1f} MiB that a device has"
            )
            self.close()
        return not self.dropped

    def step(self) -> tuple[float, float]:
        """The seconds of one step on this rank, and the seconds in collectives."""
        self._setting.group.barrier()
        assert self._executor is not None
        with Meter(self._executor.world, counts_memory=False) as meter:
            self._run()
        return meter.step_seconds(), meter.network_seconds()

    def timed(self) -> TimedStep:
        """The times of one step and of its collectives; each rank must be a process of its own."""
        world = self._setting.world
        assert isinstance(world, MPIWorld)
        return timed_step(world, self._setting.group, self._run)

    def close(self) -> None:
        """Free the executor."""
        if self._executor is not None:
            self._executor.close()
            self._executor = None
            gc.collect()

    def _open(self) -> None:
        setting = self._setting
        self._executor = plan_executor(
            setting.job, setting.script, self.plan, setting.world_of(self.plan), setting.agreement
        )

    def _assign(self) -> None:
        assert self._executor is not None
        self._executor.variables.assign(self._setting.values)

    def _run(self) -> None:
        assert self._executor is not None
        self._executor.run([], self.plan.roots, self._setting.feeds, self._draws)

    def _metered(self) -> None:
        assert self._executor is not None
        with Meter(self._executor.world) as meter:
            self._run()
        self.peak_bytes = meter.peak_bytes()

    def _attempt(self, work: Callable[[], None]) -> None:
        """Call a function that may fail on some rank; all ranks then drop the plan.

        Ranks of stages take part in different collectives, between which they cannot agree. There a
        rank that fails ends the job, as in training.
        """
        world = self._setting.world
        if self.plan.stages and self._setting.job.is_mpi:
            try:
                work()
            except Exception as error:
                # Not one of TensorOpt's errors, which all ranks raise together.
                rank = self._setting.group.rank
                raise RuntimeError(_failed(rank, _reason(error))) from error
            return
        guard = Guard(self._setting.group)
        failure: list[str] | None = None
        if isinstance(world, MPIWorld):
            world.guard = guard
        try:
            with guard.step():
                work()
        except (tf.errors.ResourceExhaustedError, MemoryError) as error:
            failure = ["memory", _reason(error)]
        except Exception as error:
            failure = ["peer", ""] if guard.heard else ["error", _reason(error)]
        finally:
            if isinstance(world, MPIWorld):
                world.guard = None
        everyone = self._setting.group.allgather_object(failure)
        failures = {rank: reason for rank, reason in enumerate(everyone) if reason is not None}
        if not failures:
            return
        with contextlib.suppress(tf.errors.OpError):  # closing may run out of memory, too
            self.close()
        for rank, (kind, text) in failures.items():
            if kind == "error":
                self.dropped = f"its step failed on rank {rank}: {text}"
                self.failure = _failed(rank, text)
                return
        ranks = [rank for rank, (kind, _) in failures.items() if kind == "memory"]
        self.dropped = f"memory ran out on rank {ranks[0]}: {failures[ranks[0]][1]}"


def _make_devices(config: tf.compat.v1.ConfigProto) -> None:
    """Make TensorFlow create this process's devices with a configuration of sessions.

    The first request for devices sets the number of threads of all sessions. A request for memory
    statistics gives no configuration, so that there would be one thread for each core.
    """
    with tf.Graph().as_default() as graph, tf.compat.v1.Session(graph=graph, config=config):
        pass


def _failed(rank: int, text: str) -> str:
    return (
        f"strategies are measured with steps that run. Got an error of the step on rank {rank}: "
        f"{text} If the generated batch is the cause, pass find_strategy(feed_dict=...) with a "
        "batch of the training data; validate=0 measures nothing."
    )


def _reason(error: BaseException) -> str:
    """The message of an error, without the lines of the script that TensorFlow adds to it."""
    text = str(getattr(error, "message", None) or error)
    _, _, after = text.rpartition("\nNode: ")
    text = after.partition("\n")[2] or text
    text = text.partition("\n\t [[")[0].partition("Traceback (most recent call last)")[0]
    text = " ".join(text.split())
    short = text if len(text) <= _LONGEST_REASON else text[:_LONGEST_REASON] + " ..."
    return f"{type(error).__name__}: {short}"
