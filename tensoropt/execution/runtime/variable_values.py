"""The values of a script's variables: read, assigned, saved, restored and compared."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from collectives import Group
from collectives.sequence import Sequence as CollectiveSequence
from tensoropt.errors import RankMismatchError
from tensoropt.execution.checkpoints.checkpoint import Checkpoints
from tensoropt.execution.checkpoints.slices import SavedTensor
from tensoropt.execution.checkpoints.values_on_first import ValuesOnFirst
from tensoropt.execution.runtime.replicas import Replicas
from tensoropt.execution.runtime.script_part import initializers_of, operator_names, shape_and_type
from tensoropt.execution.stages.processes import StageProcesses
from tensoropt.execution.stages.stage_strategies import StageStrategies
from tensoropt.execution.world.rank_session import RankSession
from tensoropt.execution.world.variable_access import read_shards, write
from tensoropt.execution.world.variables import VariableStore
from tensoropt.graph.from_tensorflow import import_graph
from tensoropt.parallel.layout import Layout

__all__ = ["VariableValues"]

Array = np.ndarray[Any, Any]


class VariableValues:
    """The variables of an executor. All ranks make the same calls.

    Args:
        script: the script's graph; it may grow between runs.
        strategies: the strategies of the stages.
        processes: the processes that emit the stages.
        session: the session with the values.

    Attributes:
        store: the shards of the variables.
    """

    def __init__(
        self,
        script: tf.Graph,
        strategies: StageStrategies,
        processes: StageProcesses,
        session: RankSession,
    ) -> None:
        self._script = script
        self._stages = processes.pipeline.stages
        self._strategies = strategies
        self._processes = processes
        self._initialised: set[str] = set()
        self.store = VariableStore()
        self._use(session)

    def _use(self, session: RankSession) -> None:
        self._session = session
        worlds = [stage.world for stage in self._stages]
        self._replicas = [Replicas(world, session.graph) for world in worlds]
        ranks = [world.first + rank for world in worlds for rank in world.ranks]
        agreement = self._processes.agreement
        self._checkpoints = Checkpoints(session, session.graph, ranks, agreement)
        self._on_first = ValuesOnFirst(session, session.graph, ranks, agreement)

    def move(self, session: RankSession) -> None:
        """Move all variables, with their values, to another session."""
        self.store = self.store.moved(self._session.opened, session.opened)
        self._use(session)

    def initializers(self, needed: Sequence[str], assigned: Collection[str] = ()) -> list[str]:
        """Return the initializers to run before variables are used, by operator name.

        The variables count as initialised from then on.

        Args:
            needed: names of the variables.
            assigned: names of operators that run anyway.
        """
        fresh = [name for name in needed if name not in self._initialised]
        if not fresh:
            return []
        self._initialised.update(fresh)
        initializers = initializers_of(self._script)
        return [
            initializers[name]
            for name in fresh
            if name in initializers and initializers[name] not in assigned
        ]

    def create(self, names: Sequence[str]) -> None:
        """Create the variables that do not exist yet, without values."""
        if all(name in self.store for name in names):
            return
        graph = import_graph(self._script, names)
        with self._session.graph.as_default():
            for stage in sorted({self._strategies.home(name) for name in names}):
                strategy = self._strategies.strategy(graph, stage)
                world = self._stages[stage].world
                for name in names:
                    if self._strategies.home(name) == stage:
                        self.store.get(self._script, graph[name], strategy, world)

    def values(self) -> dict[str, Array]:
        """Return the whole values of initialised variables, by operator name, on all ranks."""
        names = sorted(name for name in self._initialised if name in self.store)
        values: dict[str, Any] = {}
        if names:
            wholes = self._wholes(names)
            if wholes:  # TensorFlow refuses to run nothing.
                values = self._session.opened.run(wholes)
            owners = {name: self.store.worlds[name].first for name in names}
            values = self._processes.broadcast("variables", values, owners)
        self._processes.equalise_names("the reads of stages")
        return values

    def _wholes(self, names: Sequence[str]) -> dict[str, tf.Tensor]:
        """Emit the whole values of variables. The first rank of a variable's stage gets it."""
        wholes = {}
        with self._session.graph.as_default(), CollectiveSequence():
            for name in filter(self.store.__getitem__, names):
                shape, dtype = shape_and_type(self._script, name)
                shards = read_shards(self.store[name], dtype)
                source, target = self.store.layouts[name], Layout.replicated(len(shape))
                stage = self._stages[self._strategies.home(name)]
                steps = stage.plan_steps(shape, dtype.base_dtype.name, source, target)
                wholes[name] = stage.world.reshard(shards, steps, f"{name}/whole")[0]
        return wholes

    def assign(self, values: Mapping[str, Array]) -> None:
        """Assign whole values to variables, by operator name. Each rank keeps its shards."""
        names = [name for name in values if name in operator_names(self._script)]
        if names:
            self.create(names)
            feed_dict: dict[tf.Tensor, Any] = {}
            assigned = []
            with self._session.graph.as_default():
                for name in names:
                    world = self.store.worlds[name]
                    _, dtype = shape_and_type(self._script, name)
                    for rank, shard in zip(world.ranks, self.store[name], strict=True):
                        region = self.store.region(name, values[name].shape, world.first + rank)
                        fed = tf.compat.v1.placeholder(dtype.base_dtype)
                        feed_dict[fed] = values[name][region]
                        assigned.append(write(shard, fed))
            if assigned:  # TensorFlow refuses to run nothing.
                self._session.opened.run(assigned, feed_dict)
            self._initialised.update(names)
        self._processes.equalise_names("the changes of stages")

    def save(self, saved: Sequence[SavedTensor], values: Mapping[str, Array], prefix: str) -> None:
        """Write a checkpoint of variables that have values; see `Checkpoints.save`."""
        self._checkpoints.save(saved, values, prefix, self.store)

    def copied(
        self, saved: Sequence[SavedTensor], values: Mapping[str, Array], prefix: str
    ) -> Callable[[threading.Event], None]:
        """Copy variables that have values; see `Checkpoints.copied`."""
        return self._checkpoints.copied(saved, values, prefix, self.store)

    def on_first(self, saved: Sequence[SavedTensor], group: Group) -> dict[str, Array]:
        """Return whole values on the first rank alone; see `ValuesOnFirst.get`."""
        return self._on_first.get(saved, self.store, group)

    def restore(self, saved: Sequence[SavedTensor], prefix: str) -> None:
        """Read a checkpoint; each rank reads its shards. See `Checkpoints.restore`."""
        names = [tensor.variable for tensor in saved]
        self.create(names)
        self._checkpoints.restore(saved, prefix, self.store, self._initialised)
        self._initialised.update(names)

    def check_replicas(self) -> None:
        """Compare the variables that several ranks hold.

        Raises:
            RankMismatchError: on every rank, if a variable differs.
        """
        names = self._initialised.intersection(initializers_of(self._script))
        dtypes = {
            name: shape_and_type(self._script, name)[1] for name in names if name in self.store
        }
        worlds = self.store.worlds
        error = None
        try:
            for stage, replicas in zip(self._stages, self._replicas, strict=True):
                held = {name: dtypes[name] for name in dtypes if worlds[name] is stage.world}
                if stage.world.ranks:
                    replicas.check(self.store, held, self._session.opened)
        except RankMismatchError as difference:
            error = difference
        self._processes.raise_everywhere("the check that replicas are equal", error)
