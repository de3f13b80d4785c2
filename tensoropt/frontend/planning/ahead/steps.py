"""The steps that the first rank has planned, and the process that searches their next plans.

The process begins at a checkpoint, when the job is known to be healthy. It reads a file that has
no name, and ends when a pipe does that the rank alone holds open: with the rank, however it ends.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import tempfile
import threading
import weakref
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import tensorflow as tf

from collectives.transport.launch import TRANSPORT_VARIABLE
from tensoropt.elastic.hosts import NextStart, read_starts
from tensoropt.elastic.rank_variables import (
    PLAN_AHEAD_VARIABLE,
    PLAN_VARIABLE,
    TRACE_VARIABLE,
    at_checkpoint,
)
from tensoropt.errors import TensorOptError
from tensoropt.execution.native.library import SWITCH
from tensoropt.frontend.job.job import Job, at_shutdown
from tensoropt.frontend.planning.ahead.message import Message, Step, step_of, write_message
from tensoropt.frontend.planning.ahead.next_job import next_job
from tensoropt.frontend.planning.kept_plans import KeptPlan, script_descriptions
from tensoropt.graph.from_tensorflow import OWN_GRADIENT
from tensoropt.planner.optional_space import first_line
from tensoropt.planner.options.planning_options import PlanningOptions
from tensoropt.planner.request import Request
from tensoropt.quiet.standard_error import LOG_VARIABLE

__all__ = ["note_step"]

_COMMAND = ("-m", "tensoropt.elastic.idle_priority")
_MODULE = "tensoropt.frontend.planning.ahead"
_ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"), "1"
)
_ALONE = {TRANSPORT_VARIABLE: "single", "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
_OF_RANKS = (LOG_VARIABLE, PLAN_AHEAD_VARIABLE, PLAN_VARIABLE, TRACE_VARIABLE)
_END_SECONDS = 2.0  # for a file that is being written
_LINE = "tensoropt: "


@dataclass(frozen=True, slots=True)
class _Noted:
    """A planned step, and its graph unless it has been freed."""

    step: Step
    graph: weakref.ref[tf.Graph]


_noted: list[_Noted] = []  # steps that the next process gets
_of: tuple[Job, Sequence[NextStart]] | None = None  # the job of these steps, and its next starts
_said: set[str] = set()
_beside: _Process | None = None


def note_step(job: Job, options: PlanningOptions, request: Request) -> None:
    """Note a step of the default graph, to search its plans for the next start beside the job.

    Nothing happens unless ``tensoropt run --plan-ahead`` asks for it, or on other ranks than the
    first. If the next start could not use the plans, a line says why, once.
    """
    global _of
    present, *starts = read_starts(os.environ.get(PLAN_AHEAD_VARIABLE, "")) or [()]
    if not starts or not job.is_mpi or job.group.rank or job.dry_run is not None:
        return
    script = tf.compat.v1.get_default_graph()
    reason = _why_not(job, options, request, present)
    if reason:
        if reason not in _said:
            _say(f"no plan is searched ahead: {reason}")
            _said.add(reason)
        return
    if all(_is_kept(job, options, request, start) for start in starts):
        return
    if not _noted:
        at_checkpoint(_begin)
    _of = job, starts
    _noted.append(_Noted(step_of(options, request), weakref.ref(script)))


def _why_not(job: Job, options: PlanningOptions, request: Request, present: NextStart) -> str:
    """The reason why the next start could not use a plan that is searched ahead; empty if it
    could."""
    counts = tuple(Counter(rank.host for rank in job.hardware.ranks).values())
    if counts != present:
        return f"the machines have {counts} ranks, in their order, not {present}"
    if options.validate:
        return "plans of validate= are measured, not kept"
    if job.paces:
        return "ranks compute at different speeds, which each start measures anew"
    if script_descriptions():
        return "the script describes operators, which another process does not know"
    if any(OWN_GRADIENT in operator.attributes for operator in request.graph):
        return "the step has gradients of its own, which another process does not know"
    if KeptPlan.of(request, options.option, job.transport).path is None:
        return "no plans are kept"
    return ""


def _is_kept(job: Job, options: PlanningOptions, request: Request, start: NextStart) -> bool:
    """Whether an earlier start has kept the plan of a next start, and its links."""
    try:
        there, links_path = next_job(_message(job, (start,)), start)
        request = replace(
            request,
            devices=there.devices,
            cluster_at=there.cluster_at,
            profile_at=there.profile_at,
        )
        file = KeptPlan.of(request, options.option, job.transport)
    except TensorOptError:
        return False  # the process says why
    return links_path is None and file.is_kept(options.point)


def _message(job: Job, starts: Sequence[NextStart], steps: Sequence[Step] = ()) -> Message:
    hardware, library = job.hardware, job.group.library
    return Message(
        tuple(starts), hardware.ranks, job.cluster, job.links, library, job.transport, tuple(steps)
    )


def _begin() -> None:
    """Search plans of the noted steps; if a process does so already, at the next checkpoint.

    The script is saving its checkpoint meanwhile, so a failure is a line.
    """
    global _beside
    if _of is None:
        return  # the job has ended
    if _beside is not None and _beside.is_alive():
        at_checkpoint(_begin)
        return
    noted, _noted[:] = [(each.step, each.graph()) for each in _noted], []
    steps = [(step, graph) for step, graph in noted if graph is not None]
    if steps:
        message = _message(*_of, [step for step, _ in steps])
        try:
            _beside = _Process(message, [graph for _, graph in steps])
            _beside.start()
        except (OSError, RuntimeError) as error:  # no descriptor or thread is left
            _beside = None
            _say(f"plans are not searched ahead: {first_line(error)}")


class _Process(threading.Thread):
    """The searching process, and the thread that starts it and passes its lines on.

    Args:
        message: the steps and machines.
        graphs: the graph of each step.
    """

    def __init__(self, message: Message, graphs: Sequence[tf.Graph]) -> None:
        super().__init__(name="plans ahead", daemon=True)
        self._message, self._graphs = message, graphs
        self._reading, life = os.pipe()
        self._life = os.fdopen(life, "wb")
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = False

    def run(self) -> None:
        """Search, and write a line for each plan and for a failure."""
        try:
            reason = self._searched()
        except Exception as error:
            reason = first_line(error)
        finally:
            self._graphs = ()
            os.close(self._reading)
        if reason and not self._is_over:
            _say(f"plans are not searched ahead: {reason}")
        self._life.close()

    def end(self) -> None:
        """End the process, after a file that it is writing."""
        self._is_over = True
        self._life.close()
        if self._process is not None:
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()

    def _searched(self) -> str:
        """Run the process; return the reason of its failure, empty if it does not fail."""
        environment = {**os.environ, **_ONE_THREAD, **_ALONE}
        for name in _OF_RANKS:
            environment.pop(name, None)
        if tf.config.list_physical_devices("GPU"):
            environment[SWITCH] = "0"  # the kernels of the job, though the process sees no GPU
        with tempfile.TemporaryFile() as request:
            write_message(self._message, self._graphs, request)
            request.seek(0)
            if self._is_over:
                return ""
            process = self._process = subprocess.Popen(
                [sys.executable, *_COMMAND, str(self._reading), _MODULE],
                stdin=request,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                pass_fds=(self._reading,),
            )
        last = ""
        assert process.stdout is not None
        with process.stdout as output:
            for content in output:
                last = content.decode("utf-8", "replace").strip() or last
                if last.startswith(_LINE):
                    _say(last.removeprefix(_LINE))
        status = process.wait()
        return f"the process ended with status {status}: {last}" if status else ""


def _say(text: str) -> None:
    sys.stderr.write(f"{_LINE}{text}\n")
    sys.stderr.flush()


def _end() -> None:
    """Forget the noted steps, and end the process."""
    global _beside, _of
    _noted.clear()
    _of = None
    beside, _beside = _beside, None
    if beside is not None:
        beside.end()


at_shutdown(_end)
atexit.register(_end)
