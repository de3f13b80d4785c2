"""Running fetches: ``run``, ``Session`` and ``InteractiveSession``."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, NoReturn

import tensorflow as tf

from tensoropt.errors import OptionError, StateError
from tensoropt.execution.lowering.draws import Draws
from tensoropt.execution.runtime.executor import Executor
from tensoropt.execution.world.shares import RowsTable, Share
from tensoropt.frontend.inputs.data_pipelines import fills_queues, pipelines_of
from tensoropt.frontend.inputs.feed_dict import Fed
from tensoropt.frontend.job.job import Job, current, is_initialized
from tensoropt.frontend.job.plan_executor import adopt_config
from tensoropt.frontend.measuring.step_meter import Meter
from tensoropt.frontend.session.executor_selection import is_step, running_for
from tensoropt.frontend.session.fetches import Fetched, fetched_operators
from tensoropt.frontend.session.shared_feeds import as_shares, check_feed, fed_rows, whole
from tensoropt.frontend.session.supervisor_loops import run_due_loops
from tensoropt.frontend.tensorflow_api.graph_mode import enable_graph_mode
from tensoropt.plan import Plan
from tensoropt.tensorflow_private import SessionInterface, stack

__all__ = ["InteractiveSession", "Session", "executor_of", "rows_of_run", "run", "run_named"]


_one_at_a_time = threading.RLock()  # a script's threads may share a session


_known_rows: weakref.WeakKeyDictionary[tf.Graph, dict[Any, bool]] = weakref.WeakKeyDictionary()
"""For each graph, by fetches and fed rows, whether ranks feed the rows that they read: a cache."""


def run(
    fetches: Any,
    feed_dict: Mapping[Any, Any] | None = None,
    feed: Literal["whole", "share"] = "whole",
) -> Any:
    """Run fetches of the script's graph once, in parallel.

    Args:
        fetches: an operator, tensor, variable or name, or a list, tuple or dictionary of them.
        feed_dict: the *global* value of each placeholder that the fetches need. Any other tensor
            may be fed too; it is then not computed. Every rank feeds the same values and uses its
            own slice of the batch.
        feed: "share" if every rank feeds only some rows of each batch: the global batch has the
            rows of the first rank, then those of the second, and so on. Values without dimensions
            are the same on all ranks.

    Returns:
        The logical value of each fetch, in the structure of ``fetches``, the same on every rank;
        None for an operator.

    Raises:
        StateError: before ``build_execution_graph``.
        FetchError: if a fetch is not in the script's graph.
        FeedError: if a value does not fit its placeholder, or a value is missing.
        RankMismatchError: if the ranks do not all make this call, or hold different values of a
            variable, which they compare every ``TENSOROPT_CHECK_REPLICAS_EVERY`` steps.
    """
    job = current()
    if job.executor is None or job.plan is None:
        raise StateError(
            "a graph runs once its execution graph is built. Got run before that; call plan = "
            "find_strategy(...) and build_execution_graph(engine='tensorflow', plan=plan) first, "
            "or run in a tensoropt.Session, which plans by itself."
        )
    return _run(job.executor.script, None, fetches, feed_dict, feed)


def run_named(
    graph: tf.Graph,
    tensors: Sequence[str],
    operations: Sequence[str],
    values: Mapping[str, Any],
    draws: Draws | None = None,
    call: str = "",
    own: bool = False,
) -> dict[str, Any]:
    """Run fetches by name once; without a plan the run is replicated on every rank.

    Args:
        graph: the graph.
        tensors: names of the fetched tensors, none of them a handle.
        operations: names of the fetched operators.
        values: the fed values, by `fed_operator`, with the types and shapes of their operators: an
            array, or a `Share` of a batch.
        draws: the session's counters of random operators; by default the job's.
        call, own: see `Executor.run`.

    Returns:
        The logical value of each tensor.
    """
    job = current()
    roots = fetched_operators(tensors, operations)
    shapes = {name: value.shape for name, value in values.items()}
    with _one_at_a_time:
        job.beside.poll()
        running = running_for(graph, roots, shapes)
        executor, plan, steps = running.executor, running.plan, running.steps
        whole = plan is not None and is_step(graph, roots, plan)
        with Meter(executor.world, whole and steps.wants_peak) as meter:
            draws = job.draws if draws is None else draws
            results = executor.run(tensors, operations, values, draws, call, own)
        job.ran_plan = job.ran_plan or plan is not None
        if plan is not None and whole:
            fed_whole = {n: shapes[n] for n, v in values.items() if not isinstance(v, Share)}
            _warn_of_shares(job, plan, fed_whole)
            steps.add(meter.step_seconds(), meter.network_seconds(), meter.peak_bytes())
            if job.check_every and len(steps.step_seconds) % job.check_every == 0:
                executor.variables.check_replicas()
    return results


def rows_of_run(
    graph: tf.Graph,
    tensors: Sequence[str],
    operations: Sequence[str],
    values: Mapping[str, Any],
) -> RowsTable:
    """Return the rows of batches that this process reads in a run of `run_named`.

    All ranks call this. See `Executor.rows_of_batch`.
    """
    shapes = {name: value.shape for name, value in values.items()}
    with _one_at_a_time:
        running = running_for(graph, fetched_operators(tensors, operations), shapes)
        return running.executor.rows_of_batch(tensors, operations, shapes)


@contextmanager
def executor_of(graph: tf.Graph) -> Iterator[Executor]:
    """The executor of a graph, locked for this thread."""
    with _one_at_a_time:
        yield running_for(graph, [], {}).executor


def _run(graph: tf.Graph, session: Any, fetches: Any, feed_dict: Any, feed: str = "whole") -> Any:
    counts = None
    check_feed(feed)
    if feed == "share" and feed_dict and current().group.size > 1:
        feed_dict, counts = as_shares(current(), feed_dict)
    fed = Fed.of(graph, feed_dict)
    fetched = Fetched(graph, fetches, fed)
    roots = fetched_operators(fetched.tensors, fetched.operations)
    by_tensor = {tensor.deref().name: value for tensor, value in fed.by_reference.items()}

    def rows_of(elements: Mapping[str, Any]) -> RowsTable:
        given = {**fed.values, **elements}
        return rows_of_run(graph, fetched.tensors, fetched.operations, given)

    in_shares = rows_of if current().group.size > 1 else None
    drawn = pipelines_of(graph).draw(roots, fed.values, by_tensor, in_shares)
    if fills_queues(graph, roots):
        return fetched.build(session, {})
    draws = None if session is None else session.draws(current())
    given = {**fed.values, **drawn}
    if counts is not None:
        known = _known_rows.setdefault(graph, {})
        key = (*roots, counts)
        if key not in known:
            rows = rows_of_run(graph, fetched.tensors, fetched.operations, given)
            known[key] = fed_rows(current(), given, rows)
        given = given if known[key] else whole(current(), given)
    values = run_named(graph, fetched.tensors, fetched.operations, given, draws)
    return fetched.build(session, values)


def _warn_of_shares(job: Job, plan: Plan, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Warn once if a rank seems to feed only its own share of the planned batch."""
    if plan.devices == 1 or job.warned_of_share:
        return
    for name in plan.batch_placeholders:
        planned = plan.shapes[name][0] if name in plan.shapes else 0
        if name in shapes and shapes[name][0] * plan.devices == planned:
            job.warned_of_share = True
            if job.group.rank == 0:
                sys.stderr.write(
                    f"tensoropt: every rank feeds the whole global batch. Got {shapes[name][0]} "
                    f"examples for {name!r}, and {planned} were planned for {plan.devices} "
                    "devices: feed all of them on every rank, which takes its own slice\n"
                )
            return


class Session(SessionInterface):  # type: ignore[misc]
    """``tf.compat.v1.Session`` whose `run` is TensorOpt's: the same calls, run in parallel.

    The first run that needs a gradient finds a strategy (``mini_time``, at the shapes fed), if the
    script did not call `find_strategy` and `build_execution_graph`. Earlier runs compute everything
    on every rank. Variables keep their values when the plan arrives.

    The variables belong to the job and the graph, not to the session object: closing a session
    keeps them, and another session of the same graph finds them.

    Args:
        target: TensorFlow's, unused: ``mpirun`` starts the ranks.
        graph: the graph to run; by default the default graph.
        config: TensorFlow's. Ranks on one machine share its cores and GPUs, unless the config says
            otherwise. The config of the first run applies to all sessions; graph optimizers stay
            off.
    """

    def __init__(
        self,
        target: str = "",
        graph: tf.Graph | None = None,
        config: Any = None,
        **unknown: NoReturn,
    ) -> None:
        OptionError.refuse(unknown, Session)
        del target
        enable_graph_mode()
        self._config = config
        self._graph = graph if graph is not None else tf.compat.v1.get_default_graph()
        self._closed = False
        self._draws: Draws | None = None
        self._contexts = ExitStack()

    @property
    def graph(self) -> tf.Graph:
        """The graph that this session runs."""
        return self._graph

    @property
    def graph_def(self) -> Any:
        """The graph as TensorFlow's GraphDef."""
        return self._graph.as_graph_def(add_shapes=False)

    @property
    def sess_str(self) -> str:
        """TensorFlow's target; empty, for this process."""
        return ""

    def list_devices(self) -> list[Any]:
        """This process's devices, as TensorFlow's sessions name them."""
        with tf.compat.v1.Session(graph=tf.Graph()) as plain:
            return list(plain.list_devices())

    def run(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        options: Any = None,
        run_metadata: Any = None,
        feed: Literal["whole", "share"] = "whole",
    ) -> Any:
        """See `tensoropt.run`; ``options`` and ``run_metadata`` are TensorFlow's and unused.

        Raises:
            StateError: after `close`, or before ``init``.
            InfeasibleError: if a plan is needed and none fits the memory limit.
        """
        del options, run_metadata
        self._prepare()
        run_due_loops(only_new=True)
        values = _run(self._graph, self, fetches, feed_dict, feed)
        run_due_loops()
        return values

    @contextmanager
    def executor(self) -> Iterator[tuple[Executor, Draws]]:
        """The executor of this session's graph, locked for this thread, and the session's draws.

        Raises:
            StateError: after `close`, or before ``init``.
        """
        self._prepare()
        with executor_of(self._graph) as executor:
            yield executor, self.draws(current())

    def _prepare(self) -> None:
        if self._closed:
            raise StateError("a session runs until it is closed. Got a closed one; open another.")
        if self._config is not None and is_initialized():
            adopt_config(current(), self._config)
            self._config = None

    def draws(self, job: Job) -> Draws:
        """The counters of this session's random operators; seeded operators start anew."""
        if self._draws is None:
            self._draws = Draws(job.draws.unseeded)
        return self._draws

    def make_callable(
        self, fetches: Any, feed_list: Sequence[Any] | None = None, accept_options: bool = False
    ) -> Callable[..., Any]:
        """A function that runs ``fetches``; its arguments are the values of ``feed_list``."""
        del accept_options
        keys = list(feed_list or ())

        def call(*values: Any, options: Any = None, run_metadata: Any = None) -> Any:
            return self.run(fetches, dict(zip(keys, values, strict=True)), options, run_metadata)

        return call

    def partial_run_setup(self, fetches: Any, feeds: Any = None) -> str:
        """Not supported: ranks agree on whole runs.

        Raises:
            StateError: always.
        """
        raise StateError(
            f"a run is whole. Got partial_run_setup({fetches!r}, {feeds!r}); call run with all "
            "fetches and feeds."
        )

    def partial_run(self, handle: Any, fetches: Any, feed_dict: Any = None) -> Any:
        """Not supported; see `partial_run_setup`.

        Raises:
            StateError: always.
        """
        del handle
        return self.partial_run_setup(fetches, feed_dict)

    def as_default(self) -> Any:
        """A context in which ``tensor.eval()`` and ``operation.run()`` use this session."""
        return stack.default_session(self)

    def close(self) -> None:
        """Refuse further runs. Nothing is freed: the variables belong to the job."""
        self._closed = True

    def __enter__(self) -> Session:
        self._contexts.enter_context(self._graph.as_default())
        self._contexts.enter_context(self.as_default())
        return self

    def __exit__(self, *_: object) -> None:
        self._contexts.close()
        self.close()


class InteractiveSession(Session):
    """A `Session` that is the default session until it is closed, as its graph is the default."""

    def __init__(
        self,
        target: str = "",
        graph: tf.Graph | None = None,
        config: Any = None,
        **unknown: NoReturn,
    ) -> None:
        OptionError.refuse(unknown, InteractiveSession)
        super().__init__(target, graph, config)
        self._session_context = self.as_default()
        self._session_context.enforce_nesting = False
        self._session_context.__enter__()
        self._graph_context = None
        if graph is not None:
            self._graph_context = graph.as_default()
            self._graph_context.enforce_nesting = False
            self._graph_context.__enter__()

    def close(self) -> None:
        """Refuse further runs; the former defaults apply again."""
        if self._closed:
            return
        super().close()
        if self._graph_context is not None:
            self._graph_context.__exit__(None, None, None)
        self._session_context.__exit__(None, None, None)
