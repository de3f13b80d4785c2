"""The executor: one TensorFlow session per process, one program per set of fetches."""

from __future__ import annotations

import functools
import gc
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from collectives.operations.tensor_messages import is_sent
from collectives.sequence import Sequence as CollectiveSequence
from tensoropt.errors import FeedError
from tensoropt.execution.agreement.agreement import Agreement
from tensoropt.execution.agreement.fed_values import CHECK_FEEDS_EVERY, FedValues
from tensoropt.execution.checkpoints.checkpoint import Checkpoints
from tensoropt.execution.checkpoints.slices import SavedTensor
from tensoropt.execution.edges.checks import first_failure
from tensoropt.execution.edges.edge import PlanSteps
from tensoropt.execution.edges.whole_variables import read_shards, write
from tensoropt.execution.gradients.custom_gradients import forgotten_afterwards
from tensoropt.execution.lowering.draws import Draws
from tensoropt.execution.lowering.emitter import Emitter
from tensoropt.execution.lowering.microbatches import in_microbatches
from tensoropt.execution.lowering.open_shapes import checked_for_any_size, known_shapes
from tensoropt.execution.passes.operation_order import in_order_of_data
from tensoropt.execution.passes.rank_balance import balance_ranks
from tensoropt.execution.passes.readers_in_order import keep_readers_in_order
from tensoropt.execution.passes.unmerged_gradients import keep_bias_gradients_apart
from tensoropt.execution.passes.updates_in_place import let_updates_wait
from tensoropt.execution.runtime.emitted_graph import EmittedGraph, Extents, holds_state
from tensoropt.execution.runtime.kept_programs import AnySize, KeptPrograms
from tensoropt.execution.runtime.open_dims import OpenDims
from tensoropt.execution.runtime.program import Program
from tensoropt.execution.runtime.replicas import Replicas
from tensoropt.execution.runtime.script_graph import initializers_of, operator_names, shape_and_type
from tensoropt.execution.runtime.script_part import ScriptPart, part_of_script
from tensoropt.execution.runtime.step_trace import StepTrace
from tensoropt.execution.stages.stage_ranks import StageRanks
from tensoropt.execution.stages.staged import StagedEmitter
from tensoropt.execution.world.rank_session import RankSession
from tensoropt.execution.world.variables import VariableStore
from tensoropt.execution.world.world import World
from tensoropt.garbage import collected_later
from tensoropt.graph.batch_norm import BatchNorm
from tensoropt.graph.from_tensorflow import import_graph, output_shapes
from tensoropt.graph.operator import Graph, TensorName
from tensoropt.parallel.any_size import sized
from tensoropt.parallel.buckets import BUCKET_SIZES, OVERLAPPED, BucketSizes
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.following import follow_assigned
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.strategy import Strategy
from tensoropt.tensorflow_private import ops
from tensoropt.transformations.rewritten.application import Rewrite

__all__ = ["Executor", "Program"]

_SAME_FEEDS = (
    "Feed the whole global batch on every rank, not its share: each takes its own slice of it. "
    "Seed what draws or shuffles it alike, and leave out no step on one rank alone."
)
_SAME_ARGUMENTS = (
    "Give every rank the whole batch, not its share, drawn and shuffled alike: make data sets "
    "after tensoropt.parallelize, set seeds (shuffle(seed=...), keras.utils.set_random_seed), and "
    "where a data set draws random numbers in several workers take workers=1."
)


class Executor:
    """Runs fetches of a script's graph under a plan.

    Args:
        script: the script's graph; it may grow between runs.
        world: the ranks that this process emits.
        planned: configurations by operator name.
        batch_placeholders: placeholders loaded data parallel.
        plan_steps: plans a resharding.
        agreement: asks all ranks before each run.
        seed: the job's seed for unseeded random operators; the same on all ranks.
        config: the session's configuration.
        buckets: which sums of weights' gradients travel together.
        trace: takes in when operators run.
        batch_norm: whose statistics batch normalisation takes, the plan's.
        check_feeds_every: see `FedValues`.
        microbatches: in how many parts of the batch gradients are computed, and added up.
        others: what further stages of a pipeline run on, see `StagedExecutor`.
        rewrites: substitutions in what is run, the plan's.
        room_bytes: see `RankSession`.
        imported: the script's graph for what is run first, where that is at hand.
    """

    def __init__(
        self,
        script: tf.Graph,
        world: World,
        planned: Mapping[str, Configuration],
        batch_placeholders: frozenset[str],
        plan_steps: PlanSteps,
        agreement: Agreement,
        seed: int,
        config: tf.compat.v1.ConfigProto | None = None,
        buckets: BucketSizes | None = None,
        trace: StepTrace | None = None,
        batch_norm: BatchNorm = "global",
        check_feeds_every: int = CHECK_FEEDS_EVERY,
        microbatches: int = 1,
        others: Sequence[StageRanks] = (),
        rewrites: Sequence[Rewrite] = (),
        room_bytes: int = 0,
        imported: Graph | None = None,
    ) -> None:
        self.script = script
        self.world = world
        self._stages = (StageRanks(world, planned, plan_steps), *others)
        self._planned = [dict(ranks.configurations) for ranks in self._stages]
        self._batch_placeholders = batch_placeholders
        self._agreement = agreement
        self._seed = seed
        self._buckets = buckets or (OVERLAPPED if world.overlaps else BUCKET_SIZES)
        self._trace = trace
        self._config = tf.compat.v1.ConfigProto() if config is None else config
        self._batch_norm = batch_norm
        self._fed_values = FedValues(batch_placeholders, check_feeds_every)
        self._microbatches = microbatches
        self._rewrites = tuple(rewrites)
        self._imported = imported
        self._variables = VariableStore()
        self._initialised: set[str] = set()
        self._draws = Draws()
        is_split = batch_placeholders if world.mesh.size > 1 else ()
        self._open_dims = OpenDims(script, is_split, microbatches == 1 and not others)
        self._open(room_bytes)

    def _open(self, room_bytes: int = 0) -> None:
        """Begin with a graph without programs; later ones have the room that the first one got."""
        self._target = tf.Graph()
        self._session = RankSession(self._target, self._config, self.world.is_stateful, room_bytes)
        self._programs = KeptPrograms(self._open_dims)
        worlds = [ranks.world for ranks in self._stages]
        self._replicas = [Replicas(world, self._target) for world in worlds]
        own = [world.first + rank for world in worlds for rank in world.ranks]
        self._checkpoints = Checkpoints(self._session, self._target, own, self._agreement)

    def configure(self, config: tf.compat.v1.ConfigProto) -> bool:
        """Let the session be configured so; whether it is, being not open yet or so before."""
        self._config = config
        return self._session.configure(config)

    def run(
        self,
        tensors: Sequence[str],
        operations: Sequence[str],
        feeds: Mapping[str, Any],
        draws: Draws | None = None,
        call: str = "",
    ) -> dict[str, Any]:
        """Run fetches once.

        Args:
            tensors: names of fetched tensors, ``operator:index``.
            operations: names of fetched operators.
            feeds: per placeholder operator the global value, already of its dtype.
            draws: how far the session's random operators have drawn; by default this executor's.
            call: what the script calls, where that is neither a session's run nor `run`.

        Returns:
            The logical value of each fetched tensor, the same on every rank.

        Raises:
            RankMismatchError: if the ranks do not all make this call, or do not all fail in it.
            tf.errors.OpError: on every rank, if a check of the script fails on one.
            FeedError: if a placeholder that the fetches need is not fed.
        """
        shapes = {name: tuple(value.shape) for name, value in feeds.items()}
        run = f"run({', '.join([*operations, *tensors]) or 'nothing'})"
        word = "argument" if call else "feed_dict of"
        fed = self._fed_values.lines(feeds, word) if self._agreement.compares else []
        if call:
            self._agreement.check(call, [*fed, run], _SAME_ARGUMENTS)
        else:
            self._agreement.check(run, fed, _SAME_FEEDS)
        program = self._programs.known(tensors, operations, shapes)
        if program is None:
            if self._programs.are_full(max(len(stage.world.ranks) for stage in self._stages)):
                self._drop_programs()
            program = self.program(tensors, operations, shapes)
        draws = self._draws if draws is None else draws
        if not program.is_ready:
            self._initialise(program, draws)
        feeds = self._fed(feeds)
        try:
            values, drawn = program.run(feeds, draws, self._trace)
        except Exception as error:
            if self.world.guard is not None:  # which sees to it
                raise
            if program.checks.ended(error):
                own = program.checks.reason(error)
                said = self._agreement.failed_in_checks(error, own)
                raise first_failure(said) from None
            cause = program.checks.cause()
            self._agreement.failed(cause or error)
            if cause is not None:
                raise cause from error
            raise
        draws.advance(drawn)
        return self._shared("the values of this run", values, program.owners)

    def _fed(self, feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        """What a run is fed that all ranks are about to make."""
        return feeds

    def _shared(
        self, call: str, values: dict[str, Any], owners: Mapping[str, int]
    ) -> dict[str, Any]:
        """Values on every rank, of those that a rank has.

        Args:
            call: that they are of.
            values: by name; those of others are not among them.
            owners: the ranks that have them.
        """
        del call, owners  # each rank has all
        return values

    def _drop_programs(self) -> None:
        """Free all programs with their graph and session; variables go on in another."""
        session, target = self._session, self._target
        self._open()
        self._variables = self._variables.moved(session.opened, self._session.opened)
        session.close()
        ops.dismantle_graph(target)
        del session, target
        gc.collect()  # the emitters' cycles

    def program(
        self,
        tensors: Sequence[str],
        operations: Sequence[str],
        shapes: Mapping[str, tuple[int, ...]],
    ) -> Program:
        """The program for fetches and feed shapes, emitted at its first use."""
        program = self._programs.known(tensors, operations, shapes)
        if program is None:
            sources = {name: _source(name, shapes) for name in tensors}
            roots = [source.operator for source in sources.values()] + list(operations)
            emit = functools.partial(self._emit, roots)
            with collected_later():
                emitted = self._programs.emitted_for(roots, shapes, emit)
            program = self._fetch(emitted, sources, operations)
            self._programs.keep(tensors, operations, emitted, program)
        return program

    @property
    def stage(self) -> int | None:
        """Of a pipeline, the stage that is in this process; None without, or where all are."""
        return None

    def values(self) -> dict[str, np.ndarray[Any, Any]]:
        """The whole value of every variable that has one, by operator name, on every rank."""
        names = sorted(name for name in self._initialised if name in self._variables)
        if not names:
            return {}
        wholes: dict[str, tf.Tensor] = {}
        with self._target.as_default(), CollectiveSequence():
            for name in filter(self._variables.__getitem__, names):
                shape, dtype = shape_and_type(self.script, name)
                shards = read_shards(self._variables[name], dtype)
                source = self._variables.layouts[name]
                target = Layout.replicated(len(shape))
                ranks = self._stages[self._home(name)]
                steps = ranks.plan_steps(shape, dtype.base_dtype.name, source, target)
                wholes[name] = ranks.world.reshard(shards, steps, f"{name}/whole")[0]
        # TensorFlow runs no empty graph.
        found: dict[str, Any] = self._session.opened.run(wholes) if wholes else {}
        worlds = self._variables.worlds
        return self._shared("variables", found, {name: worlds[name].first for name in names})

    def assign(self, values: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Give variables their whole values, by operator name; each rank keeps its shard."""
        names = [name for name in values if name in operator_names(self.script)]
        if not names:  # TensorFlow runs no empty graph
            return
        self._create(names)
        feed_dict: dict[tf.Tensor, Any] = {}
        assigned = []
        with self._target.as_default():
            for name in names:
                world = self._variables.worlds[name]
                _, dtype = shape_and_type(self.script, name)
                for rank, shard in zip(world.ranks, self._variables[name], strict=True):
                    region = self._variables.region(name, values[name].shape, world.first + rank)
                    fed = tf.compat.v1.placeholder(dtype.base_dtype)
                    feed_dict[fed] = values[name][region]
                    assigned.append(write(shard, fed))
        if assigned:
            self._session.opened.run(assigned, feed_dict)
        self._initialised.update(names)

    def save(
        self,
        saved: Sequence[SavedTensor],
        beside: Mapping[str, np.ndarray[Any, Any]],
        prefix: str,
        draws: Draws | None = None,
    ) -> None:
        """Write a checkpoint, each rank its part; see `Checkpoints.save`.

        Args:
            saved: variables; those without a value are initialised.
            beside: whole values of other tensors, by name in the checkpoint.
            prefix: the checkpoint's name, an absolute path.
            draws: as `run` has them.
        """
        names = [tensor.variable for tensor in saved]
        self._create(names)
        draws = self._draws if draws is None else draws
        self._run_before(self._first_values(self._initializers(names)), draws)
        self._checkpoints.save(saved, beside, prefix, self._variables)

    def restore(self, saved: Sequence[SavedTensor], prefix: str) -> None:
        """Read a checkpoint, each rank its shards; see `Checkpoints.restore`."""
        names = [tensor.variable for tensor in saved]
        self._create(names)
        self._checkpoints.restore(saved, prefix, self._variables, self._initialised)
        self._initialised.update(names)

    def _create(self, names: Sequence[str]) -> None:
        """See that variables are there, with or without values."""
        if all(name in self._variables for name in names):
            return
        graph = import_graph(self.script, names)
        with self._target.as_default():
            for stage in sorted({self._home(name) for name in names}):
                strategy, world = self.strategy(graph, stage), self._stages[stage].world
                for name in names:
                    if self._home(name) == stage:
                        self._variables.get(self.script, graph[name], strategy, world)

    def _home(self, variable: str) -> int:
        """The stage that a variable is in."""
        del variable
        return 0

    def strategy(self, graph: Graph, stage: int = 0) -> Strategy:
        """How a stage's ranks divide what they run of a graph.

        A variable lies in later programs as it was stored by the first.
        """
        planned, mesh = self._planned[stage], self._stages[stage].world.mesh
        strategy = Strategy(graph, mesh, planned, self._batch_placeholders)
        follow_assigned(strategy, planned)
        for operator in graph:
            if operator.is_variable:
                planned.setdefault(operator.name, strategy.configurations[operator.name])
        return strategy

    def check_replicas(self) -> None:
        """Compare the variables that several ranks hold. Every rank calls, after the same run.

        Raises:
            RankMismatchError: on every rank, if one differs.
        """
        valued = self._initialised.intersection(initializers_of(self.script))
        dtypes = {
            name: shape_and_type(self.script, name)[1] for name in valued if name in self._variables
        }
        worlds = self._variables.worlds
        for ranks, replicas in zip(self._stages, self._replicas, strict=True):
            own = {name: dtypes[name] for name in dtypes if worlds[name] is ranks.world}
            if ranks.world.ranks:
                replicas.check(self._variables, own, self._session.opened)

    def close(self) -> None:
        """Free the session and its variables."""
        self._session.close()

    def _emit(
        self,
        roots: Sequence[str],
        shapes: Mapping[str, Extents],
        any_size: AnySize | None,
    ) -> EmittedGraph:
        """Emit what some operators need.

        Args:
            roots: names of the operators.
            shapes: of what is fed.
            any_size: given where extents are open.

        Raises:
            SizeError, LayoutError: if what is emitted would not hold for all sizes.
        """
        imported, self._imported = self._imported, None
        part = part_of_script(
            self.script, roots, shapes, self._rewrites, self._batch_norm, imported
        )
        graph = part.graph
        missing = [op.name for op in graph if op.is_placeholder and op.name not in shapes]
        if missing:
            raise FeedError(
                "every placeholder that a fetch needs is fed. Got no value for "
                f"{', '.join(map(repr, missing))}; add it to feed_dict."
            )
        self._agreement.check("the graph of this run", graph.summaries())
        before = len(self._target.get_operations())
        with (
            self._target.as_default(),
            forgotten_afterwards(self._target),
            CollectiveSequence() as sequence,
        ):
            if any_size is None:
                emitter = self._emitter(part, roots)
            else:
                other = any_size.other.emitter
                assert isinstance(other, Emitter), "a pipeline has no open dimensions"
                at = sized(graph, output_shapes(self.script, graph, roots, any_size.shapes))
                strategy = checked_for_any_size(self.strategy(at), graph, other.strategy)
                known = known_shapes(graph, at)
                emitter = self._emitter_of(strategy, part, known)
            emitter.emit()
        run = [op for name in roots for op in emitter.operations(name)]
        # An operator that is to wait for one that was made before it may be read by a loop, which
        # gets inputs when it is differentiated.
        made = in_order_of_data(self._target.get_operations()[before:])
        let_updates_wait(made, run)
        keep_bias_gradients_apart(made)
        keep_readers_in_order(made, run)
        if self.world.waits_in_collectives:
            run += [*emitter.always, *(sequence.last if emitter.is_a_part else ())]
            # Of a stage that sends something others compute meanwhile, not so of one that waits.
            waiting = [each for each in sequence.in_turn if not is_sent(each)]
            full_bytes = 0 if emitter.is_a_part else self._buckets.full_bytes
            balance_ranks(made, run, waiting, full_bytes)
        state = any(holds_state(self.script, operator) for operator in emitter.graph)
        return EmittedGraph(emitter.graph, frozenset(roots), dict(shapes), emitter, sequence, state)

    def _emitter(
        self,
        part: ScriptPart,
        roots: Sequence[str],
    ) -> Emitter | StagedEmitter:
        """What emits a part of the script, with its strategy."""
        strategy = self.strategy(part.graph)
        if self._microbatches > 1 and self._trains_on_a_batch(part.graph):
            strategy = in_microbatches(
                strategy, roots, self._batch_placeholders, self._microbatches
            )
            copies = {op.name for op in strategy.graph if op.copy_of in part.checked}
            part = replace(part, checked=part.checked | copies)
        return self._emitter_of(strategy, part)

    def _emitter_of(
        self,
        strategy: Strategy,
        part: ScriptPart,
        sizes: Mapping[tuple[int, ...], tuple[int, ...]] | None = None,
    ) -> Emitter:
        return Emitter(
            self.script,
            strategy.graph,
            strategy,
            self.world,
            self._variables,
            self._stages[0].plan_steps,
            self._seed,
            self._target,
            part.unset,
            self._buckets,
            part.checked,
            reads=part.reads,
            sizes=sizes,
        )

    def _trains_on_a_batch(self, graph: Graph) -> bool:
        """Whether gradients are computed, and of a batch: else it is computed at once."""
        fed = any(op.name in self._batch_placeholders for op in graph)
        return fed and any(op.gradient is not None for op in graph)

    def _fetch(
        self,
        emitted: EmittedGraph,
        tensors: Mapping[str, TensorName],
        operations: Sequence[str],
    ) -> Program:
        """The program of some fetches of an emitted graph."""
        emitter = emitted.emitter
        with self._target.as_default(), emitted.sequence.fork() as sequence:
            run = [op for name in operations for op in emitter.operations(name)]
            computed = [t for t in tensors.values() if not emitter.is_variable(t)]
            after = [*run, *emitter.always]
            after += [op for t in computed for op in emitter.operations(t.operator)]
            whole = {name: emitter.logical(source, after) for name, source in tensors.items()}
        fetched = {name: tensor for name, tensor in whole.items() if tensor is not None}
        owners = {name: emitter.owner(source) for name, source in tensors.items()}
        self._agree_on("the collectives of this run", sequence.records)
        # What others receive, and wait for what they send, nothing here need read.
        ends = sequence.last if emitter.is_a_part else ()
        return Program(
            self._session,
            emitted.graph,
            emitter.fed(),
            fetched,
            (*run, *emitter.always, *sequence.overtaking, *emitter.checks.gates, *ends),
            sequence.records,
            emitter.draws,
            emitter.checks,
            {name: rank for name, rank in owners.items() if rank is not None},
        )

    def _agree_on(self, call: str, records: Sequence[str]) -> None:
        """Agree on collectives."""
        self._agreement.check(call, records)

    def _initialise(self, program: Program, draws: Draws) -> None:
        """Run the initializers of variables that nothing has initialised yet.

        A script that runs them itself, later, draws as if these runs had not been.
        """
        self._run_before(self.initial(program), draws)
        program.is_ready = True

    def _run_before(self, first: Program | None, draws: Draws) -> None:
        """Run initializers, if there are any, and those that these need."""
        if first is not None:
            self._initialise(first, draws)
            first.run({}, draws)

    def initial(self, program: Program) -> Program | None:
        """What is to run before a program: the initializers of variables without a value.

        From then on they count as initialised. None if there is nothing to run.
        """
        return self._first_values(self.initializers(program))

    def initializers(self, program: Program) -> list[str]:
        """The operators of `initial`, by their names in the script."""
        needed = [op.name for op in program.graph if op.is_variable]
        return self._initializers(needed, {op.name for op in program.graph if op.mutates})

    def _initializers(self, needed: Sequence[str], assigned: Collection[str] = ()) -> list[str]:
        """Those of variables without a value, save of those that are assigned anyway."""
        fresh = [name for name in needed if name not in self._initialised]
        if not fresh:
            return []
        self._initialised.update(fresh)
        initializers = initializers_of(self.script)
        return [
            initializers[name]
            for name in fresh
            if name in initializers and initializers[name] not in assigned
        ]

    def _first_values(self, initializers: Sequence[str]) -> Program | None:
        return self.program((), initializers, {}) if initializers else None


def _source(name: str, shapes: Mapping[str, tuple[int, ...]]) -> TensorName:
    """The tensor of a name; where it is fed, what stands for it."""
    tensor = TensorName.parse(name)
    fed = f"{tensor.operator}/fed_{tensor.index}"
    return TensorName(fed, 0) if fed in shapes else tensor
