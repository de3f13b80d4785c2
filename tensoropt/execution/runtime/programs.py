"""The programs of a script in one TensorFlow graph: emitted at their first use, and kept."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import tensorflow as tf

from collectives.operations.tensor_messages import is_sent
from collectives.sequence import Sequence as CollectiveSequence
from tensoropt.errors import FeedError
from tensoropt.execution.gradient_functions.custom_gradients import forgotten_afterwards
from tensoropt.execution.lowering.emission import Emission
from tensoropt.execution.lowering.open_shapes import checked_for_any_size, known_shapes
from tensoropt.execution.lowering.stage_emitter import reads_variable
from tensoropt.execution.lowering.step_options import StepOptions
from tensoropt.execution.passes.operation_order import in_order_of_data, keep_bias_gradients_apart
from tensoropt.execution.passes.rank_balance import balance_ranks
from tensoropt.execution.passes.readers_in_order import keep_readers_in_order
from tensoropt.execution.passes.updates_in_place import let_updates_wait
from tensoropt.execution.runtime.emitted_graph import EmittedGraph, Extents, holds_state
from tensoropt.execution.runtime.kept_programs import AnySize, KeptPrograms
from tensoropt.execution.runtime.open_dims import OpenDims
from tensoropt.execution.runtime.program import Program
from tensoropt.execution.runtime.script_part import ScriptPart, part_of_script
from tensoropt.execution.stages.processes import StageProcesses
from tensoropt.execution.stages.program_emitter import ProgramEmitter
from tensoropt.execution.stages.stage_strategies import DividedStep, StageStrategies
from tensoropt.execution.world.own_values import of_all_ranks
from tensoropt.execution.world.rank_session import RankSession
from tensoropt.execution.world.variables import VariableStore
from tensoropt.garbage import collected_later
from tensoropt.graph.from_tensorflow import output_shapes
from tensoropt.graph.operator import Graph, TensorName
from tensoropt.parallel.any_size import sized

__all__ = ["Programs"]


class Programs:
    """The programs of a script in the graph of one session.

    Args:
        script: the script's graph; it may grow between runs.
        options: how steps are computed.
        strategies: the strategies of the stages.
        processes: the processes that emit the stages.
        session: runs the programs.
        variables: the variables in the session's graph.
        open_dims: the dimensions of fed tensors that may have any size.
        imported: the script's graph for the first program, if it is imported already.
        are_own: whether each rank is fed values of its own. A fetched tensor then has one more
            dimension, the first, along which it has those of all ranks.

    Attributes:
        kept: the programs that are emitted so far.
    """

    def __init__(
        self,
        script: tf.Graph,
        options: StepOptions,
        strategies: StageStrategies,
        processes: StageProcesses,
        session: RankSession,
        variables: VariableStore,
        open_dims: OpenDims,
        imported: Graph | None = None,
        are_own: bool = False,
    ) -> None:
        self._script = script
        self._options = options
        self._strategies = strategies
        self._processes = processes
        self._pipeline = processes.pipeline
        self._session = session
        self._variables = variables
        self._imported = imported
        self._are_own = are_own
        self.kept = KeptPrograms(open_dims)

    @property
    def are_full(self) -> bool:
        """Whether all programs must be dropped before another one. All ranks answer alike."""
        return self.kept.are_full(max(len(stage.world.ranks) for stage in self._pipeline.stages))

    def program(
        self,
        tensors: Sequence[str],
        operations: Sequence[str],
        shapes: Mapping[str, tuple[int, ...]],
    ) -> Program:
        """Return the program of fetches and shapes of fed tensors; emit it at its first use.

        Raises:
            FeedError: if a placeholder that the fetches need is not fed.
            RankMismatchError: if ranks emit different programs.
        """
        program = self.kept.known(tensors, operations, shapes)
        if program is None:
            sources = {name: _source(name, shapes) for name in tensors}
            roots = [source.operator for source in sources.values()] + list(operations)
            with collected_later():
                emit = functools.partial(self._emit, roots)
                emitted = self.kept.emitted_for(roots, shapes, emit)
            program = self._fetch(emitted, sources, operations)
            self.kept.keep(tensors, operations, emitted, program)
            self._processes.equalise_names("the programs of stages")
        return program

    def _emit(
        self,
        roots: Sequence[str],
        shapes: Mapping[str, Extents],
        any_size: AnySize | None,
    ) -> EmittedGraph:
        """Emit the operators that the roots need.

        Args:
            roots: names of the operators to run or fetch.
            shapes: the shapes of fed tensors.
            any_size: given if extents are open.

        Raises:
            SizeError, LayoutError: if the emitted operators would not hold for all sizes.
        """
        script, target = self._script, self._session.graph
        part = self._part(roots, shapes)
        before = len(target.get_operations())
        with (
            target.as_default(),
            forgotten_afterwards(target),
            CollectiveSequence() as sequence,
        ):
            emitter = self._emitter(part, roots, any_size)
            emitter.emit()
        self._apply_passes(emitter, sequence, roots, before)
        state = any(holds_state(script, operator) for operator in emitter.graph)
        return EmittedGraph(emitter.graph, frozenset(roots), dict(shapes), emitter, sequence, state)

    def _part(self, roots: Sequence[str], shapes: Mapping[str, Extents]) -> ScriptPart:
        """The part of the script that the roots need, the same on all ranks."""
        imported, self._imported = self._imported, None
        options = self._options
        part = part_of_script(
            self._script, roots, shapes, options.rewrites, options.batch_norm, imported
        )
        missing = [op.name for op in part.graph if op.is_placeholder and op.name not in shapes]
        if missing:
            raise FeedError(
                "every placeholder that a fetch needs is fed. Got no value for "
                f"{', '.join(map(repr, missing))}; add it to feed_dict."
            )
        self._processes.agreement.check("the graph of this run", part.graph.summaries())
        return part

    def _emitter(
        self, part: ScriptPart, roots: Sequence[str], any_size: AnySize | None
    ) -> ProgramEmitter:
        """Return an emitter for a part of the script."""
        graph, sizes = part.graph, {}
        if any_size is None:
            divided = self._strategies.divide(graph, roots)
        else:
            fed = output_shapes(self._script, graph, roots, any_size.shapes)
            graph_at_sizes = sized(graph, fed)
            (other,) = any_size.other.emitter.strategies  # Only one stage has open dimensions.
            strategy = self._strategies.strategy(graph_at_sizes)
            divided = DividedStep.of_one(checked_for_any_size(strategy, graph, other))
            sizes = known_shapes(graph, graph_at_sizes)
        emission = Emission(
            self._script,
            self._session.graph,
            self._variables,
            self._options,
            part.unset,
            part.checked,
            part.reads,
            sizes,
        )
        emitter = ProgramEmitter(emission, divided, self._pipeline)
        if self._pipeline.last > 0:
            self._processes.check_order(emitter.lines())
        return emitter

    def _apply_passes(
        self,
        emitter: ProgramEmitter,
        sequence: CollectiveSequence,
        roots: Sequence[str],
        before: int,
    ) -> None:
        """Add control dependencies to the emitted operations."""
        run = [op for name in roots for op in emitter.operations(name)]
        # A loop gets more inputs when it is differentiated. So the loop may read an operator that
        # was created later and that waits for earlier ones.
        operations = in_order_of_data(self._session.graph.get_operations()[before:])
        let_updates_wait(operations, run)
        keep_bias_gradients_apart(operations)
        keep_readers_in_order(operations, run)
        world = self._pipeline.stages[self._pipeline.here].world
        waiting: Sequence[tf.Operation] = ()
        if world.waits_in_collectives:
            # While a stage sends, other stages compute; while it receives, it waits.
            waiting = [each for each in sequence.in_turn if not is_sent(each)]
        # TensorFlow would run the whole backward pass before a small operator of a full bucket, and
        # the network would wait for it.
        waiting = waiting or sequence.starts
        if waiting:
            run += [*emitter.always, *(sequence.last if emitter.sends else ())]
            buckets = self._options.bucket_sizes(world.overlaps)
            full_bytes = 0 if emitter.sends else buckets.full_bytes
            balance_ranks(operations, run, waiting, full_bytes, sequence.waits)

    def _fetch(
        self,
        emitted: EmittedGraph,
        tensors: Mapping[str, TensorName],
        operations: Sequence[str],
    ) -> Program:
        """Return the program of some fetches of an emitted graph."""
        emitter = emitted.emitter
        with self._session.graph.as_default(), emitted.sequence.fork() as sequence:
            run = [op for name in operations for op in emitter.operations(name)]
            computed = [
                tensor
                for tensor in tensors.values()
                if not reads_variable(emitter.graph[tensor.operator])
            ]
            after = [*run, *emitter.always]
            after += [op for tensor in computed for op in emitter.operations(tensor.operator)]
            whole = {name: emitter.logical(source, after) for name, source in tensors.items()}
            fetched = {name: tensor for name, tensor in whole.items() if tensor is not None}
            if self._are_own:
                world = self._pipeline.stages[self._pipeline.here].world
                fetched = {name: of_all_ranks(world, x, name) for name, x in fetched.items()}
        owners = {name: emitter.owner(source) for name, source in tensors.items()}
        self._processes.check_collectives(sequence.records)
        # Operations that send to other stages, or wait for them, may have no readers here.
        ends = sequence.last if emitter.sends else ()
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
            self._are_own,
        )


def _source(name: str, shapes: Mapping[str, tuple[int, ...]]) -> TensorName:
    """Return the tensor of a name; if the tensor is fed, the placeholder that replaces it."""
    tensor = TensorName.parse(name)
    fed = f"{tensor.operator}/fed_{tensor.index}"
    return TensorName(fed, 0) if fed in shapes else tensor
