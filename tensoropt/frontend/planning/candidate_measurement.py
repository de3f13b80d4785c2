"""``find_strategy(validate=k)``: measure candidate plans, and adopt the fastest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from time import perf_counter
from typing import Any

import tensorflow as tf

from tensoropt.errors import InfeasibleError, OptionError, TensorOptError
from tensoropt.frontend.job.first_rank import on_first_rank
from tensoropt.frontend.job.job import Job
from tensoropt.frontend.job.plan_executor import early_values, ranks_of
from tensoropt.frontend.measuring.trial_run import TrialRun, TrialSetting
from tensoropt.frontend.planning.search_progress import interruptible, others_ignore_interrupt
from tensoropt.plan import Plan
from tensoropt.plan.validation_result import Trial, Validation
from tensoropt.planner.choose import Candidates
from tensoropt.planner.request import Request

__all__ = ["validated_plan"]

_LEAST_STEPS = 5  # per candidate
_MOST_STEPS = 25  # per candidate
_SECONDS = 2.0
"""After the least steps, the timing of candidates that run in turns stops at this total time."""

_DATA_PARALLELISM = "data parallelism"


@dataclass(slots=True)
class _Trials:
    """The candidates so far, in the order of their trials.

    Attributes:
        runs: the trial runs.
        names: a name for each candidate.
        times: for each candidate, (seconds, seconds in collectives) of every step on this rank.
        remarks: candidates that could not be measured, and the reasons.
    """

    runs: list[TrialRun] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    times: list[list[tuple[float, float]]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @property
    def kept(self) -> list[int]:
        """Numbers of the candidates that can be adopted."""
        return [number for number, run in enumerate(self.runs) if not run.dropped]

    @property
    def count(self) -> int:
        """Number of candidates whose steps were measured or failed."""
        return len(self.kept) + len(self.failures)

    @property
    def failures(self) -> list[str]:
        """Error texts of the candidates whose steps failed."""
        return [run.failure for run in self.runs if run.failure]


def validated_plan(
    job: Job,
    script: tf.Graph,
    request: Request,
    option: str,
    asked: int,
    feeds: Mapping[str, Any],
) -> Plan:
    """The candidate with the fastest steps on this machine. Collective: every rank calls it.

    Args:
        job: the job that will run the plan.
        script: the script's graph.
        request: the step, the devices and the limits of the search.
        option: "mini_time" or "mini_parallelism".
        asked: number of frontier points to measure.
        feeds: values fed to the steps, by `fed_operator`.

    Raises:
        InfeasibleError: no strategy fits the memory limit, predicted or measured.
        OptionError: the steps of all candidates fail.
    """
    candidates: list[Candidates] = []  # one on the first rank, none on the others
    everyone = job.group
    if list(everyone.ranks) != sorted(everyone.ranks):
        everyone = everyone.subgroup(sorted(everyone.ranks))

    def search() -> dict[str, Any]:
        candidates.append(Candidates(request, option))
        return candidates[0].data_parallel().to_json()

    with others_ignore_interrupt(everyone):
        rival = Plan.from_json(on_first_rank(everyone, interruptible(search)))
    values = early_values(job, script)
    outcome: list[Plan | TensorOptError] = []
    world, group, agreement = ranks_of(job, rival)
    if world is not None:
        limit = request.memory_limit_bytes
        limit = rival.cluster.device.memory_bytes if limit is None else limit
        setting = TrialSetting(job, script, world, group, agreement, values, feeds, limit)
        try:
            outcome.append(_Measurement(setting, candidates, asked, rival).adopted())
        except TensorOptError as error:
            outcome.append(error)

    def result() -> dict[str, Any]:
        if isinstance(outcome[0], TensorOptError):
            raise outcome[0]
        return outcome[0].to_json()

    return Plan.from_json(on_first_rank(everyone, result))


def _parts_text(plan: Plan) -> str:
    stages = f", {len(plan.stages)} stages" * bool(plan.stages)
    return stages + f", {plan.microbatches} microbatches" * (plan.microbatches > 1)


class _Measurement:
    """Trials of candidate plans. Every rank that the candidates use makes the same calls.

    Args:
        setting: the job, machine and values that the candidates run with.
        candidates: on the first rank, a list with the candidates of the frontier.
        asked: number of frontier points to measure.
        data_parallel: the data-parallel plan, measured as well.
    """

    def __init__(
        self,
        setting: TrialSetting,
        candidates: Sequence[Candidates],
        asked: int,
        data_parallel: Plan,
    ) -> None:
        self._setting = setting
        self._candidates = candidates
        self._asked = asked
        self._trials = _Trials()
        self._points = int(on_first_rank(setting.group, lambda: len(candidates[0])))
        self._data_parallel = data_parallel
        self._plans: list[Plan] = []  # of the first frontier points
        self._fits_at_once = self._all_fit_memory()

    def adopted(self) -> Plan:
        """The plan of the fastest candidate, with the measurements.

        Raises:
            InfeasibleError: no candidate could be adopted.
            OptionError: the steps of all candidates fail.
        """
        only = self._point(0)
        if self._points == 1 and only.runs_as(self._data_parallel):
            return replace(only, validation=self._unmeasured(only))
        try:
            self._try_all()
            if self._fits_at_once:
                self._time(self._trials.kept)
        finally:
            for run in self._trials.runs:
                run.close()
        validation, plan = self._verdict()
        return replace(plan, validation=validation)

    def _unmeasured(self, only: Plan) -> Validation:
        trial = Trial(
            f"the only point, which is {_DATA_PARALLELISM}",
            only.executed_nanoseconds,
            only.memory_bytes,
        )
        remark = "there is one strategy to choose from: nothing was measured"
        return Validation(self._asked, (trial,), 0, (remark,))

    def _point(self, number: int) -> Plan:
        """The plan of a frontier point; points must be asked for in order."""
        if number == len(self._plans):
            self._plans.append(self._from_first_rank(lambda: self._candidates[0][number]))
        return self._plans[number]

    def _from_first_rank(self, plan: Callable[[], Plan]) -> Plan:
        """The plan that a function returns on the first rank, sent to every rank."""
        return Plan.from_json(on_first_rank(self._setting.group, lambda: plan().to_json()))

    def _all_fit_memory(self) -> bool:
        """Whether all candidates fit the memory at the same time."""
        count = min(self._asked, self._points)
        plans = [self._point(number) for number in range(count)]
        hardware, job = self._setting.job.hardware, self._setting.job
        sharing = max(hardware.ranks_per_host) if job.is_mpi else plans[0].devices
        room = min(
            self._setting.memory_limit_bytes / plans[0].cluster.safety_factor,
            hardware.memory_bytes_per_host / sharing / 2,
        )
        return sum(plan.memory_bytes for plan in [*plans, self._data_parallel]) <= room

    def _try_all(self) -> None:
        """Try frontier points until the asked number has run, then data parallelism."""
        trials, rival = self._trials, self._data_parallel
        number = 0
        while trials.count < self._asked and number < self._points:
            plan = self._point(number)
            name = f"frontier point {number + 1} of {self._points}{_parts_text(plan)}"
            if plan.runs_as(rival):
                name += f", which is {_DATA_PARALLELISM}"
            self._try(name, plan)
            number += 1
        if trials.count < self._asked:
            trials.remarks.append(
                f"{self._asked} points of the frontier were to be measured, but "
                + (f"{self._points} fit" if self._points > 1 else "1 fits")
                + " the memory limit"
                + (f", and {len(trials.kept)} when measured" if number > len(trials.kept) else "")
            )
        limit = rival.memory_limit_bytes
        if any(run.plan.runs_as(rival) for run in trials.runs):
            return
        if limit is not None and rival.memory_bytes > limit:
            trials.remarks.append(
                f"{_DATA_PARALLELISM} was not measured: it is predicted to take "
                f"{rival.memory_bytes / 2**20:,.1f} MiB of the {limit / 2**20:,.1f} MiB that a "
                "plan may"
            )
            return
        self._try(_DATA_PARALLELISM, rival)

    def _try(self, name: str, plan: Plan) -> None:
        run = TrialRun(self._setting, plan)
        self._trials.runs.append(run)
        self._trials.names.append(name)
        self._trials.times.append([])
        if run.start() and not self._fits_at_once:
            self._time([len(self._trials.runs) - 1])
            run.close()

    def _time(self, numbers: Sequence[int]) -> None:
        """Time candidates in turns, so that other load on the machine affects all alike."""
        started = perf_counter()
        for done in range(_MOST_STEPS):
            slowest = max(self._setting.group.allgather_object(perf_counter() - started))
            if done >= _LEAST_STEPS and slowest > _SECONDS:
                break
            for number in numbers if done % 2 == 0 else reversed(numbers):
                self._trials.times[number].append(self._trials.runs[number].step())

    def _verdict(self) -> tuple[Validation, Plan]:
        """The median times on the slowest rank, and the plan of the fastest candidate."""
        tried = self._trials
        if not self._fits_at_once and len(tried.kept) > 1:
            tried.remarks.append(
                "candidates were measured one after another: together they do not fit the memory"
            )
        everyone = self._setting.group.allgather_object(tried.times)
        trials = []
        for number, (name, run) in enumerate(zip(tried.names, tried.runs, strict=True)):
            trial = Trial(name, run.plan.executed_nanoseconds, run.plan.memory_bytes)
            steps = list(zip(*(times[number] for times in everyone), strict=True))
            if steps and not run.dropped:
                seconds, network = (
                    median(max(rank[which] for rank in step) for step in steps) for which in (0, 1)
                )
                trial = replace(
                    trial,
                    steps=len(steps),
                    measured_seconds=seconds,
                    measured_network_seconds=network,
                )
            peak, dropped = run.peak_bytes, run.dropped
            trials.append(replace(trial, measured_peak_bytes=peak, dropped=dropped))
        fastest = min(
            (number for number, trial in enumerate(trials) if trial.measured_seconds is not None),
            key=lambda number: trials[number].measured_seconds or 0.0,
            default=None,
        )
        if fastest is None and tried.failures:
            raise OptionError(tried.failures[0])
        if fastest is None:
            raise InfeasibleError(
                "a plan also fits the memory limit when measured. Got none that does: "
                + "; ".join(map(str, trials))
                + ". Raise memory_limit_bytes, take a smaller batch or more devices, or measure "
                "costs with `tensoropt profile`."
            )
        remarks = tuple(tried.remarks)
        return Validation(self._asked, tuple(trials), fastest, remarks), tried.runs[fastest].plan
