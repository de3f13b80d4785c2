"""The executor: one TensorFlow session per process, one program per set of fetches."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from tensoropt.execution.agreement.agreement import Agreement
from tensoropt.execution.agreement.fed_values import FedValues
from tensoropt.execution.checkpoints.slices import SavedTensor
from tensoropt.execution.edges.checks import first_failure
from tensoropt.execution.lowering.draws import Draws
from tensoropt.execution.lowering.step_options import StepOptions
from tensoropt.execution.runtime.open_dims import OpenDims
from tensoropt.execution.runtime.program import Program
from tensoropt.execution.runtime.programs import Programs
from tensoropt.execution.runtime.script_part import part_of_script
from tensoropt.execution.runtime.step_trace import StepTrace
from tensoropt.execution.runtime.variable_values import VariableValues
from tensoropt.execution.stages.processes import StageProcesses
from tensoropt.execution.stages.stage_ranks import Pipeline
from tensoropt.execution.stages.stage_strategies import StageStrategies
from tensoropt.execution.world.rank_session import RankSession
from tensoropt.execution.world.shares import RowsTable, joined_ranges, rows_table
from tensoropt.graph.operator import Graph, TensorName
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import Strategy
from tensoropt.tensorflow_private import ops

__all__ = ["SAME_ARGUMENTS", "Executor", "Program"]

_SAME_FEEDS = (
    "Feed the whole global batch on every rank, not the rank's share: each rank takes its slice of "
    "the batch. Draw and shuffle batches with the same seed, and run the same steps on all ranks."
)
SAME_ARGUMENTS = (
    "Give every rank the whole batch, not its share, drawn and shuffled alike: make data sets "
    "after tensoropt.parallelize, set seeds (shuffle(seed=...), keras.utils.set_random_seed), and "
    "take workers=1 if a data set draws random numbers in several workers."
)


class Executor:
    """Runs fetches of a script's graph on the stages of a pipeline.

    Args:
        script: the script's graph; it may grow between runs.
        pipeline: the ranks of the stages; a mesh is a pipeline of one stage.
        options: how steps are computed.
        agreement: compares the calls of all ranks before each run.
        trace: records the times at which operators run.
        imported: the script's graph for the first program, if it is imported already.

    Attributes:
        script: see above.
        world: the ranks of the first stage that this process emits.
        stage: the stage that this process emits; None if it emits all stages.
        variables: the values of the script's variables.
    """

    def __init__(
        self,
        script: tf.Graph,
        pipeline: Pipeline,
        options: StepOptions,
        agreement: Agreement,
        trace: StepTrace | None = None,
        imported: Graph | None = None,
    ) -> None:
        self.script = script
        self.world = pipeline.stages[pipeline.here].world
        self._options = options
        self._agreement = agreement
        self._trace = trace
        self._processes = StageProcesses(pipeline, agreement)
        self.stage = self._processes.stage
        self._strategies = StageStrategies(pipeline, options.batch_placeholders)
        self._fed_values = FedValues(options.batch_placeholders, options.check_feeds_every)
        self._draws = Draws()
        self._rows: dict[Any, RowsTable] = {}
        is_split = options.batch_placeholders if self.world.mesh.size > 1 else ()
        any_are_open = pipeline.last == 0 and pipeline.microbatches == 1
        self._open_dims = OpenDims(script, is_split, any_are_open)
        self._session = self._new_session(options.room_bytes)
        self.variables = VariableValues(script, self._strategies, self._processes, self._session)
        self._programs = self._no_programs(imported)
        self._own_programs: Programs | None = None

    def _new_session(self, room_bytes: int = 0) -> RankSession:
        """Return a session with an empty graph. Later sessions share the room of the first one."""
        config, is_stateful = self._options.config, self.world.is_stateful
        return RankSession(tf.Graph(), config, is_stateful, room_bytes)

    def _no_programs(self, imported: Graph | None = None) -> Programs:
        """Return an empty table of programs for the session's graph."""
        return Programs(
            self.script,
            self._options,
            self._strategies,
            self._processes,
            self._session,
            self.variables.store,
            self._open_dims,
            imported,
        )

    def _programs_for(self, own: bool) -> Programs:
        """Return the programs of runs.

        Args:
            own: whether each rank computes everything from values of its own.
        """
        if not own:
            return self._programs
        if self._own_programs is None:
            self._own_programs = Programs(
                self.script,
                replace(self._options, batch_placeholders=frozenset()),
                StageStrategies(self._processes.pipeline.unplanned, frozenset()),
                self._processes,
                self._session,
                self.variables.store,
                self._open_dims,
                are_own=True,
            )
        return self._own_programs

    @property
    def meshes(self) -> tuple[Mesh, ...]:
        """The mesh of each stage."""
        return tuple(stage.world.mesh for stage in self._processes.pipeline.stages)

    def planned(self, stage: int = 0) -> Mapping[str, Configuration]:
        """Return the configurations of planned operators and of variables, on a stage's mesh."""
        return self._strategies.planned(stage)

    def part(self, roots: Sequence[str], shapes: Mapping[str, tuple[int, ...]]) -> Graph:
        """Return the operators that some roots need, after the plan's substitutions."""
        options = self._options
        part = part_of_script(self.script, roots, shapes, options.rewrites, options.batch_norm)
        return part.graph

    def add(
        self,
        configurations: Sequence[Mapping[str, Configuration]],
        batch_placeholders: frozenset[str],
    ) -> None:
        """Add a plan of further operators, before a program that has them is emitted.

        Args:
            configurations: for each stage the configurations on its mesh, by operator name.
                Operators that have a configuration keep it.
            batch_placeholders: further placeholders whose first dimension is the batch.
        """
        batches = self._options.batch_placeholders | batch_placeholders
        self._options = replace(self._options, batch_placeholders=batches)
        self._strategies.add(configurations, batch_placeholders)
        self._fed_values.batches = batches
        if self.world.mesh.size > 1:
            self._open_dims.split(batch_placeholders)

    def configure(self, config: tf.compat.v1.ConfigProto) -> bool:
        """Configure the session, if it is not open yet.

        Returns:
            Whether the session has this configuration.
        """
        self._options = replace(self._options, config=config)
        return self._session.configure(config)

    def run(
        self,
        tensors: Sequence[str],
        operations: Sequence[str],
        feeds: Mapping[str, Any],
        draws: Draws | None = None,
        call: str = "",
        own: bool = False,
    ) -> dict[str, Any]:
        """Run fetches once.

        Args:
            tensors: names of fetched tensors, ``operator:index``.
            operations: names of fetched operators.
            feeds: per placeholder operator the global value, already of its dtype; or for a batch
                this process's rows of it (`rows_of_batch`).
            draws: the counters of the session's random operators; by default this executor's.
            call: the script's call, unless it is a session's run or `tensoropt.run`.
            own: whether each rank has a batch of its own, and computes everything from it. The
                feeds are then shares with all rows. See `runs_own`.

        Returns:
            The logical value of each fetched tensor, the same on every rank. Of own batches, the
            values of all ranks, along a new first dimension.

        Raises:
            RankMismatchError: if some ranks make another call, or only some ranks fail.
            tf.errors.OpError: on every rank, if a check of the script fails on one rank.
            FeedError: if a placeholder that the fetches need is not fed.
        """
        draws = self._draws if draws is None else draws
        self._agree_on_call(tensors, operations, feeds, call)
        shapes = {name: tuple(value.shape) for name, value in feeds.items()}
        program = self._kept_program(tensors, operations, shapes, own)
        if not program.is_ready:
            self._initialise(program, draws)
        feeds = self._processes.same_feeds(feeds, self._options.batch_placeholders)
        try:
            values, drawn = program.run(feeds, draws, self._trace)
        except Exception as error:
            self._agree_on_failure(program, error)
            raise
        draws.advance(drawn)
        return self._processes.broadcast("the values of this run", values, program.owners)

    def _kept_program(
        self,
        tensors: Sequence[str],
        operations: Sequence[str],
        shapes: Mapping[str, tuple[int, ...]],
        own: bool,
    ) -> Program:
        """Return the program of a run; emit it if it is not kept."""
        program = self._programs_for(own).kept.known(tensors, operations, shapes)
        if program is None:
            if self._programs_for(own).are_full:
                self._drop_programs()
            program = self._programs_for(own).program(tensors, operations, shapes)
        return program

    def _agree_on_call(
        self, tensors: Sequence[str], operations: Sequence[str], feeds: Mapping[str, Any], call: str
    ) -> None:
        """Check that all ranks make the same call of `run`."""
        run = f"run({', '.join([*operations, *tensors]) or 'nothing'})"
        word = "argument" if call else "feed_dict of"
        fed = self._fed_values.lines(feeds, word) if self._agreement.compares else []
        if call:
            self._agreement.check(call, [*fed, run], SAME_ARGUMENTS)
        else:
            self._agreement.check(run, fed, _SAME_FEEDS)

    def _agree_on_failure(self, program: Program, error: Exception) -> None:
        """Check that a run that failed on this rank failed alike on all ranks.

        Raises:
            tf.errors.OpError: the script's own error, if a check or a Python function failed.
            RankMismatchError: if other ranks had another error, or none.
        """
        if self.world.guard is not None:  # The guard compares failures itself.
            return
        if program.checks.ended(error):
            reasons = self._agreement.failed_in_checks(error, program.checks.reason(error))
            raise first_failure(reasons) from None
        cause = program.checks.cause()
        self._agreement.failed(cause or error)
        if cause is not None:
            raise cause from error

    def _drop_programs(self) -> None:
        """Free all programs with their graph and session; variables move to a new session."""
        session = self._session
        self._session = self._new_session()
        self.variables.move(self._session)
        self._programs, self._own_programs = self._no_programs(), None
        session.close()
        ops.dismantle_graph(session.graph)
        del session
        gc.collect()  # Emitters have reference cycles.
        self._processes.equalise_names("the variables of stages")

    def program(
        self,
        tensors: Sequence[str],
        operations: Sequence[str],
        shapes: Mapping[str, tuple[int, ...]],
    ) -> Program:
        """Return the program of fetches and shapes of fed tensors; emit it at its first use."""
        return self._programs.program(tensors, operations, shapes)

    def rows_of_batch(
        self,
        tensors: Sequence[str],
        operations: Sequence[str],
        shapes: Mapping[str, tuple[int, ...]],
    ) -> RowsTable:
        """Return the rows that this process reads of batches of the size in ``shapes`` or smaller.

        Rows that several ranks need are read by the first of them, which sends them to the others.
        All ranks call this, since it emits the program of the fetches.

        Args:
            tensors, operations: the fetches; see `run`.
            shapes: the shapes of the fed values. All values with dimensions count as batches.
        """
        program = self.program(tensors, operations, shapes)
        batches = self._options.batch_placeholders
        fed = {
            (*each.kind_of_rows, each.name in batches): each
            for each in program.fed.values()
            if each.operator.outputs[0].shape
        }
        size = max((shape[0] for shape in shapes.values() if shape), default=0)
        key = frozenset(fed), size
        if key not in self._rows:
            self._rows[key] = rows_table(
                [
                    joined_ranges(
                        rows
                        for each in fed.values()
                        for rows in each.rows_at(n, each.name in batches)
                    )
                    for n in range(size + 1)
                ]
            )
        return self._rows[key]

    def runs_own(
        self,
        tensors: Sequence[str],
        operations: Sequence[str],
        shapes: Mapping[str, tuple[int, ...]],
    ) -> bool:
        """Return whether each rank can compute fetches from a batch of its own.

        Each rank must be a process that has all variables whole, and the shapes of the fetches must
        be known. The answer is the same on all ranks.

        Args:
            tensors, operations, shapes: see `rows_of_batch`.
        """
        if len(self._processes.pipeline.stages) > 1 or len(self.world.ranks) > 1:
            return False
        fetched = [TensorName.parse(name) for name in tensors]
        graph = self.part([*(each.operator for each in fetched), *operations], shapes)
        planned = self.planned()
        return all(
            op.name in planned and not any(planned[op.name].splits)
            for op in graph
            if op.is_variable
        ) and all(
            spec.dtype != "string" and all(extent >= 0 for extent in spec.shape)
            for spec in map(graph.spec, fetched)
        )

    def own_program(
        self,
        tensors: Sequence[str],
        operations: Sequence[str],
        shapes: Mapping[str, tuple[int, ...]],
    ) -> Program:
        """Return the program by which each rank computes fetches from a batch of its own.

        All ranks call this, where `runs_own`. The program is emitted if it is not kept.

        Args:
            tensors, operations, shapes: see `rows_of_batch`.
        """
        return self._kept_program(tensors, operations, shapes, own=True)

    def strategy(self, graph: Graph) -> Strategy:
        """Return a strategy that divides all operators of a graph over the first stage's ranks."""
        return self._strategies.strategy(graph)

    def save(
        self,
        saved: Sequence[SavedTensor],
        values: Mapping[str, np.ndarray[Any, Any]],
        prefix: str,
        draws: Draws | None = None,
    ) -> None:
        """Write a checkpoint; each rank writes a part. See `Checkpoints.save`.

        Args:
            saved: the variables to save. Those without a value are initialised.
            values: whole values of tensors that are no variables, by name in the checkpoint.
            prefix: the checkpoint's name, an absolute path.
            draws: see `run`.
        """
        self._give_values(saved, draws)
        self.variables.save(saved, values, prefix)

    def copied(
        self,
        saved: Sequence[SavedTensor],
        values: Mapping[str, np.ndarray[Any, Any]],
        prefix: str,
        draws: Draws | None = None,
    ) -> Callable[[threading.Event], None]:
        """Copy the variables that `save` would write; return the function that writes the copies.

        See `Checkpoints.copied`. The arguments are those of `save`.
        """
        self._give_values(saved, draws)
        return self.variables.copied(saved, values, prefix)

    def _give_values(self, saved: Sequence[SavedTensor], draws: Draws | None) -> None:
        """Create variables that do not exist yet, and initialise those without a value."""
        names = [tensor.variable for tensor in saved]
        self.variables.create(names)
        draws = self._draws if draws is None else draws
        self._run_first(self.variables.initializers(names), draws)

    def close(self) -> None:
        """Free the session and its variables."""
        self._session.close()

    def initializers(self, program: Program) -> list[str]:
        """Return the initializers to run before a program, by their names in the script.

        Their variables count as initialised from then on.
        """
        needed = [op.name for op in program.graph if op.is_variable]
        mutating = {op.name for op in program.graph if op.mutates}
        return self.variables.initializers(needed, mutating)

    def _initialise(self, program: Program, draws: Draws) -> None:
        """Run the initializers of a program's variables that have no value yet.

        The counters of random operators do not advance. So the script draws the same values if it
        runs the initializers itself later.
        """
        self._run_first(self.initializers(program), draws)
        program.is_ready = True

    def _run_first(self, initializers: Sequence[str], draws: Draws) -> None:
        """Run initializers, after the initializers on which they depend."""
        if initializers:
            first = self.program((), initializers, {})
            self._initialise(first, draws)
            first.run({}, draws)
