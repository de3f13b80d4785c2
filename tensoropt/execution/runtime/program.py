"""A program: what one set of fetches runs, in one call of TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from tensoropt.errors import GraphError
from tensoropt.execution.edges.checks import Checks
from tensoropt.execution.lowering.draws import Draws, ProgramDraws, RandomOperator
from tensoropt.execution.lowering.fed_shards import FedShards
from tensoropt.execution.passes.updates_in_place import is_assigned
from tensoropt.execution.runtime.step_trace import StepTrace
from tensoropt.execution.world.rank_session import RankSession
from tensoropt.execution.world.world import World
from tensoropt.graph.operator import Graph
from tensoropt.tensorflow_private import session as session_module

__all__ = ["Program"]

Array = np.ndarray[Any, Any]


@dataclass(slots=True, eq=False)
class Program:
    """The operations to run for one set of fetches, at one set of shapes of fed tensors.

    Attributes:
        session: runs the program.
        graph: the part of the script's graph that the fetches need.
        fed: how fed values get to the ranks, by stage and fed operator, or a microbatch of one.
        tensors: the fetched tensors that this process has, whole.
        operations: the fetched operations, on all ranks emitted here.
        collectives: the static order of collectives.
        draws: its random operators.
        checks: its operators that fail on all ranks alike.
        owners: by fetched tensor the rank that has it, where not every rank has it.
        is_ready: whether all its variables have values.
    """

    session: RankSession
    graph: Graph
    fed: Mapping[str, FedShards]
    tensors: Mapping[str, tf.Tensor]
    operations: tuple[tf.Operation, ...]
    collectives: tuple[str, ...]
    draws: ProgramDraws
    checks: Checks
    owners: Mapping[str, int] = field(default_factory=dict)
    is_ready: bool = field(default=False, init=False)
    _callable: Any = field(default=None, init=False)
    _assigned: frozenset[str] = field(default=frozenset(), init=False)  # fed into variables
    _runs: int = field(default=0, init=False)

    @property
    def has_run(self) -> bool:
        """Whether it has run at all."""
        return self._runs > 0

    def run(
        self,
        feeds: Mapping[str, Array],
        draws: Draws,
        trace: StepTrace | None = None,
    ) -> tuple[dict[str, Any], dict[RandomOperator, int]]:
        """Run it once.

        Args:
            feeds: per fed operator the global value.
            draws: the counters from which its random operators start; they are not advanced.
            trace: records when operators run, in the runs that it wants.

        Returns:
            The fetched values, and how many elements each random operator drew.

        Raises:
            GraphError: if TensorFlow has not run all operations.
        """
        own = self.draws
        if self._callable is None:
            self._assigned = frozenset(
                name for name, fed in self.fed.items() if any(map(is_assigned, fed.placeholders))
            )
        values = self._shards(feeds)
        if own.counters is not None:
            values.append(draws.counters(own.operators))
        counted = {op: n for op, n in own.elements.items() if isinstance(n, tf.Tensor)}
        drawn = {op: n for op, n in own.elements.items() if isinstance(n, int)}
        if not self.tensors and not self.operations:
            return {}, drawn  # TensorFlow runs nothing
        if self._callable is None:
            self._callable = self._made_callable(list(counted.values()))
        self._runs += 1
        # `_do_call` names the operator in errors, as `Session.run` does.
        if trace is not None and trace.wants(self._runs):
            traced = self._made_callable(list(counted.values()), is_traced=True)
            metadata = tf.compat.v1.RunMetadata()
            fetched = self.session.opened._do_call(partial(traced, run_metadata=metadata), *values)
            trace.add(metadata, ", ".join([*(op.name for op in self.operations), *self.tensors]))
        else:
            fetched = self.session.opened._do_call(self._callable, *values)
        self._check_done(fetched.pop())
        # A callable's arrays may be a variable's own memory, which the next step changes.
        fetched = [np.copy(x) if isinstance(x, np.ndarray) else x for x in fetched]
        found = dict(zip(self.tensors, fetched, strict=False))
        counts = map(int, fetched[len(found) :])
        return found, drawn | dict(zip(counted, counts, strict=True))

    def _check_done(self, done: Any) -> None:
        """TensorFlow gives empty arrays, and no error, where operators wait for each other."""
        if np.size(done) != 1:
            names = ", ".join([*(op.name for op in self.operations), *self.tensors])
            raise GraphError(
                "all operators that a run asks for run. Got a run in which some operators of "
                f"{names} wait for each other in a circle, after TensorFlow has merged some. "
                "Report it; meanwhile TF_ENABLE_ONEDNN_OPTS=0 in the environment merges none."
            )

    def _shards(self, feeds: Mapping[str, Array]) -> list[Array]:
        """The values of all placeholders; values that are not split come from the first rank."""
        cut = {
            name: [
                np.asarray(feeds[fed.name][r], feeds[fed.name].dtype, order="C")
                for r in fed.regions
            ]
            for name, fed in self.fed.items()
        }
        by_axes: dict[tuple[World, tuple[int, ...]], list[str]] = {}
        for name, fed in self.fed.items():
            by_axes.setdefault((fed.world, fed.shared_axes), []).append(name)
        for (world, axes), names in by_axes.items():
            shared = iter(world.share([shard for name in names for shard in cut[name]], axes))
            for name in names:
                cut[name] = [next(shared) for _ in cut[name]]
        # A callable takes an array's memory as it is: a variable would keep the script's, or
        # another rank's, and updates would write to it.
        return [
            np.array(shard, order="C") if name in self._assigned else shard
            for name, shards in cut.items()
            for shard in shards
        ]

    def _made_callable(self, counts: Sequence[tf.Tensor], is_traced: bool = False) -> Any:
        """A function that runs the program. ``Session.run`` would parse feeds and fetches anew in
        every run."""
        fed = [placeholder for each in self.fed.values() for placeholder in each.placeholders]
        fed += [] if self.draws.counters is None else [self.draws.counters]
        options = session_module.config_pb2.CallableOptions()
        options.feed.extend(tensor.name for tensor in fed)
        options.fetch.extend(tensor.name for tensor in self.tensors.values())
        options.fetch.extend(tensor.name for tensor in counts)
        options.target.extend(operation.name for operation in self.operations)
        made = [tensor.op for tensor in (*self.tensors.values(), *counts)]
        graph = self.session.opened.graph
        with graph.as_default(), graph.control_dependencies([*made, *self.operations]):
            options.fetch.append(tf.constant(True, name="done").name)
        if is_traced:
            options.run_options.trace_level = tf.compat.v1.RunOptions.FULL_TRACE
        return self.session.opened._make_callable_from_options(options)
