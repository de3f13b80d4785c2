"""Running fetches: ``run`` and ``Session``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import numpy as np
import tensorflow as tf

from tensoropt.errors import FeedError, FetchError, StateError
from tensoropt.execution.executor import Executor
from tensoropt.frontend.job import current

__all__ = ["Session", "run"]


def run(fetches: Any, feed_dict: Mapping[Any, Any] | None = None) -> Any:
    """Run fetches of the script's graph once, in parallel.

    Args:
        fetches: an operator, tensor, variable or name, or a list, tuple or dictionary of them.
        feed_dict: the *global* value of each placeholder that the fetches need. Every rank gives
            the same; each contributes its slice of the batch.

    Returns:
        The logical value of each fetch, in the structure of ``fetches``, the same on every rank;
        None for an operator.

    Raises:
        StateError: before ``build_execution_graph``.
        FetchError: if a fetch is not in the script's graph.
        FeedError: if a value does not fit its placeholder, or one is missing.
        RankMismatchError: if the ranks do not all make this call.
    """
    job = current()
    if job.executor is None:
        raise StateError(
            "a graph runs once its execution graph is built. Got run before that; call plan = "
            "find_strategy(...) and build_execution_graph(engine='tensorflow', plan=plan) first."
        )
    executor = job.executor
    flat = tf.nest.flatten(fetches)
    elements = [_element(executor.script, fetch) for fetch in flat]
    tensors = [e.name for e in elements if isinstance(e, tf.Tensor)]
    operations = [e.name for e in elements if isinstance(e, tf.Operation)]
    feeds = _feeds(executor, feed_dict or {})
    start = time.perf_counter()
    values = executor.run(list(dict.fromkeys(tensors)), list(dict.fromkeys(operations)), feeds)
    if operations:
        job.step_seconds.append(time.perf_counter() - start)
    results = [values.get(e.name) if isinstance(e, tf.Tensor) else None for e in elements]
    return tf.nest.pack_sequence_as(fetches, results)


def _element(graph: tf.Graph, fetch: Any) -> Any:
    try:
        return graph.as_graph_element(fetch, allow_tensor=True, allow_operation=True)
    except (ValueError, TypeError, KeyError) as error:
        raise FetchError(
            f"a fetch is a tensor, operator or variable of the script's graph, or its name. "
            f"Got {fetch!r}: {error} Tensors are named 'operator:0', operators 'operator'."
        ) from error


def _feeds(executor: Executor, feed_dict: Mapping[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    feeds = {}
    for key, value in feed_dict.items():
        tensor = _element(executor.script, key)
        operation = tensor.op if isinstance(tensor, tf.Tensor) else tensor
        if operation.type != "Placeholder":
            raise FeedError(
                f"only placeholders are fed. Got {key!r}, made by a {operation.type}; feed what it "
                "is computed from, or make it a placeholder."
            )
        feeds[operation.name] = _fed_value(operation.outputs[0], value)
    return feeds


def _fed_value(placeholder: tf.Tensor, value: Any) -> np.ndarray[Any, Any]:
    dtype = placeholder.dtype.as_numpy_dtype
    try:
        array = np.asarray(value, dtype=dtype)
    except (TypeError, ValueError) as error:
        raise FeedError(
            f"a fed value converts to its placeholder's type. Got {type(value).__name__} for "
            f"{placeholder.op.name!r} ({placeholder.dtype.name}): {error}. Convert it first."
        ) from error
    if not placeholder.shape.is_compatible_with(array.shape):
        raise FeedError(
            f"a fed value has its placeholder's shape. Got {list(array.shape)} for "
            f"{placeholder.op.name!r}, declared as {placeholder.shape}; feed the whole global "
            "batch in that shape, or declare the dimension as None."
        )
    return array


class Session:
    """``tf.compat.v1.Session`` whose `run` is TensorOpt's: same calls, parallel execution.

    The variables belong to the job, not to the session object: closing one keeps them.
    """

    def __init__(self, target: str = "", graph: tf.Graph | None = None, config: Any = None) -> None:
        del target, config
        self.graph = graph if graph is not None else tf.compat.v1.get_default_graph()

    def run(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        options: Any = None,
        run_metadata: Any = None,
    ) -> Any:
        """See `tensoropt.run`; ``options`` and ``run_metadata`` are TensorFlow's and unused."""
        del options, run_metadata
        return run(fetches, feed_dict)

    def close(self) -> None:
        """Nothing to free: the job ends with the script."""

    def __enter__(self) -> Session:
        self._default = self.graph.as_default()
        self._default.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._default.__exit__(kind, error, trace)
        self.close()
