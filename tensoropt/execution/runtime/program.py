"""A program: the operations that one set of fetches runs, in one call of TensorFlow."""

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
from tensoropt.execution.world.shares import Share
from tensoropt.execution.world.world import World
from tensoropt.graph.operator import Graph
from tensoropt.tensorflow_private import session as session_module

__all__ = ["Program"]

Array = np.ndarray[Any, Any]


@dataclass(slots=True, eq=False)
class Program:
    """The operations to run for one set of fetches and one set of shapes of fed tensors.

    Attributes:
        session: runs the program.
        graph: the part of the script's graph that the fetches need.
        fed: the shards of fed values, by stage and fed operator (or a microbatch of it).
        tensors: the fetched tensors that this process has; they are whole.
        operations: the fetched operations, on all ranks emitted here.
        collectives: the static order of collectives.
        draws: its random operators.
        checks: its operators that check values.
        owners: for each fetched tensor that only one rank has, this rank.
        is_own: whether each rank is fed values of its own, none of which another rank gets.
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
    is_own: bool = False
    is_ready: bool = field(default=False, init=False)
    _callable: Any = field(default=None, init=False)
    _assigned: frozenset[str] = field(default=frozenset(), init=False)  # fed into variables
    _runs: int = field(default=0, init=False)

    @property
    def has_run(self) -> bool:
        """Whether the program has run at least once."""
        return self._runs > 0

    def run(
        self,
        feeds: Mapping[str, Array | Share],
        draws: Draws,
        trace: StepTrace | None = None,
    ) -> tuple[dict[str, Any], dict[RandomOperator, int]]:
        """Run the program once.

        Args:
            feeds: the global value of each fed operator, or this process's rows of it.
            draws: the counters at which random operators start. This call does not advance them.
            trace: records the times at which operators run, in the runs that it wants.

        Returns:
            The fetched values, and the number of elements that each random operator drew.

        Raises:
            GraphError: if TensorFlow has not run all operations.
        """
        if self._callable is None:
            self._assigned = frozenset(
                name for name, fed in self.fed.items() if any(map(is_assigned, fed.placeholders))
            )
        values = self._shards(feeds)
        if self.draws.counters is not None:
            values.append(draws.counters(self.draws.operators))
        elements = self.draws.elements.items()
        counted = {op: n for op, n in elements if isinstance(n, tf.Tensor)}
        drawn = {op: n for op, n in elements if isinstance(n, int)}
        if not self.tensors and not self.operations:
            return {}, drawn  # TensorFlow refuses to run nothing.
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
        count = len(self.tensors)
        results = dict(zip(self.tensors, fetched[:count], strict=True))
        return results, drawn | dict(zip(counted, map(int, fetched[count:]), strict=True))

    def _check_done(self, done: Any) -> None:
        """Raise unless all operations ran.

        If operators wait for each other, TensorFlow returns empty arrays, without an error.
        """
        if np.size(done) != 1:
            names = ", ".join([*(op.name for op in self.operations), *self.tensors])
            raise GraphError(
                "operators that TensorFlow merges do not wait for each other. Got a run in which "
                f"some operators of {names} wait for each other in a circle. Please report this; "
                "with TF_ENABLE_ONEDNN_OPTS=0 in the environment TensorFlow merges no operators."
            )

    def _shards(self, feeds: Mapping[str, Array | Share]) -> list[Array]:
        """Return the values of all placeholders. Values that are not split are the first rank's,
        unless each rank is fed values of its own."""
        cut = {name: fed.cut(feeds[fed.name]) for name, fed in self.fed.items()}
        by_axes: dict[tuple[World, tuple[int, ...]], list[str]] = {}
        for name, fed in self.fed.items():
            if not self.is_own:
                by_axes.setdefault((fed.world, fed.shared_axes), []).append(name)
        for (world, axes), names in by_axes.items():
            shared = iter(world.share([shard for name in names for shard in cut[name]], axes))
            for name in names:
                cut[name] = [next(shared) for _ in cut[name]]
        # A callable uses an array's memory as it is. A variable would keep the memory of the
        # script's array, or of another rank's, and updates would write to it.
        return [
            np.array(shard, order="C") if name in self._assigned else shard
            for name, shards in cut.items()
            for shard in shards
        ]

    def _made_callable(self, counts: Sequence[tf.Tensor], is_traced: bool = False) -> Any:
        """Return a function that runs the program.

        ``Session.run`` would parse feeds and fetches anew in every run.

        Args:
            counts: tensors to fetch after the program's tensors.
            is_traced: whether TensorFlow records a full trace.
        """
        fed = [placeholder for each in self.fed.values() for placeholder in each.placeholders]
        fed += [] if self.draws.counters is None else [self.draws.counters]
        options = session_module.config_pb2.CallableOptions()
        options.feed.extend(tensor.name for tensor in fed)
        options.fetch.extend(tensor.name for tensor in self.tensors.values())
        options.fetch.extend(tensor.name for tensor in counts)
        options.target.extend(operation.name for operation in self.operations)
        fetched = [tensor.op for tensor in (*self.tensors.values(), *counts)]
        graph = self.session.opened.graph
        with graph.as_default(), graph.control_dependencies([*fetched, *self.operations]):
            options.fetch.append(tf.constant(True, name="done").name)
        if is_traced:
            options.run_options.trace_level = tf.compat.v1.RunOptions.FULL_TRACE
        return self.session.opened._make_callable_from_options(options)
