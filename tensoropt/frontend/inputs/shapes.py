"""The operators of a training step, and the shapes of its fed tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tensoropt.errors import FetchError, GraphError, OptionError
from tensoropt.graph.from_tensorflow import ELEMENT_TYPES, FED_OUTPUT, fed_operator
from tensoropt.graph.operator import Graph

__all__ = ["FedShapes", "fed_shapes", "note_examples", "training_roots", "unfed"]

_NO_RESULT = ("NoOp", "ReadVariableOp", "VarHandleOp", "VarIsInitializedOp", "VariableV2")

_EXAMPLES = "tensoropt_examples"  # name of a collection

FedShapes = tuple[dict[str, tuple[int, ...]], frozenset[str]]
"""Shape by placeholder operator, and the placeholders whose first dimension is the batch."""


def training_roots(graph: tf.Graph, fetches: Sequence[Any] | None) -> list[str]:
    """Names of the operators that one training step runs.

    They are the fetches that the script names. By default they are its optimizers' training
    operators; without optimizers, every operator whose result nothing uses.

    Raises:
        FetchError: if a named fetch is not in the graph.
        GraphError: if the graph has nothing to run.
    """
    if fetches is not None:
        return list(dict.fromkeys(operator_name(graph, fetch) for fetch in fetches))
    trained = graph.get_collection(tf.compat.v1.GraphKeys.TRAIN_OP)
    if trained:
        return list(dict.fromkeys(operator_name(graph, fetch) for fetch in trained))
    initializers = {v.initializer.name for v in graph.get_collection("variables")}
    roots = [
        operation.name
        for operation in graph.get_operations()
        if operation.name not in initializers
        and operation.type not in _NO_RESULT
        and not any(tensor.consumers() for tensor in operation.outputs)
        and operation.outputs
    ]
    if not roots:
        raise GraphError(
            "a training step is in TensorFlow's default graph. Got a graph without operators; make "
            "the model before, or call within `with graph.as_default():` for another graph."
        )
    return roots


def operator_name(graph: tf.Graph, fetch: Any) -> str:
    """The name of a fetched operator, or of the operator that computes a fetched tensor."""
    try:
        element = graph.as_graph_element(fetch, allow_tensor=True, allow_operation=True)
    except (ValueError, TypeError, KeyError) as error:
        raise FetchError(
            f"a fetch is a tensor or operator of the script's graph, or its name. Got {fetch!r}: "
            f"{error} Tensors are named 'operator:0', operators 'operator'."
        ) from error
    return str(element.op.name if isinstance(element, tf.Tensor) else element.name)


def note_examples(graph: tf.Graph, placeholders: Sequence[str]) -> None:
    """Note which placeholders count examples in their first dimension; all others do not.

    Calls for one graph add up.
    """
    graph.add_to_collection(_EXAMPLES, frozenset(placeholders))


def fed_shapes(
    graph: tf.Graph, batch_size: int | None, shapes: Mapping[Any, Sequence[int]] | None
) -> FedShapes:
    """The global shapes of placeholders, elements of data pipelines and other fed tensors.

    The result has those that are known, or become known by the arguments, by `fed_operator`. If
    `note_examples` was called for the graph, it decides whose first dimension is the batch. If not,
    the first dimension is the batch if the script leaves it unknown or it equals the batch size.
    The batch size is the argument; by default it is the first dimension, if all known ones agree.

    Raises:
        OptionError: if a given shape contradicts its placeholder, or the batch size contradicts all
            placeholders.
    """
    asked = batch_size
    given = {
        _fed_name(graph, key): tuple(int(n) for n in shape) for key, shape in (shapes or {}).items()
    }
    sources = {
        fed_operator(tensor): tensor
        for op in graph.get_operations()
        for tensor in op.outputs
        if op.type == "Placeholder" or op.type in ELEMENT_TYPES or fed_operator(tensor) in given
    }
    known = {
        name: given[name] if name in given else _static(tensor, batch_size)
        for name, tensor in sources.items()
    }
    if batch_size is None:
        firsts = {shape[0] for shape in known.values() if shape}
        batch_size = firsts.pop() if len(firsts) == 1 else None
    fed: dict[str, tuple[int, ...]] = {}
    batched = set()
    is_noted = bool(graph.get_collection(_EXAMPLES))
    noted = frozenset().union(*graph.get_collection(_EXAMPLES))
    for name, tensor in sources.items():
        declared = tensor.shape
        shape = known[name]
        if shape is None:
            continue
        if not declared.is_compatible_with(shape):
            raise OptionError(
                f"a shape fits its placeholder. Got {list(shape)} for {name!r}, which "
                f"the script declares as {declared}; correct batch_size or shapes."
            )
        fed[name] = shape
        unknown_first = declared.rank is None or declared.as_list()[:1] == [None]
        counts_examples = (
            name in noted if is_noted else (unknown_first or shape[:1] == (batch_size,))
        )
        if shape and counts_examples:
            batched.add(name)
    _check_batch_size(asked, {n: fed[n] for n in fed if n in noted or not is_noted})
    return fed, frozenset(batched)


def _check_batch_size(batch_size: int | None, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Check that a given batch size is the first dimension of some fed tensor.

    Raises:
        OptionError: naming both sizes.
    """
    sizes = {name: shape for name, shape in shapes.items() if shape}
    if batch_size is None or not sizes or any(s[0] == batch_size for s in sizes.values()):
        return
    fed = ", ".join(f"{name!r} of {list(shape)}" for name, shape in sorted(sizes.items()))
    raise OptionError(
        f"a batch size is the first dimension of what the script feeds. Got {batch_size}, where "
        f"the script has {fed}; leave the batch size out, or leave that dimension unknown in the "
        "script's placeholders (None)."
    )


def unfed(graph: Graph) -> list[str]:
    """The pipelines whose elements a logical graph reads and whose element shapes are unknown."""
    read = {tensor.operator for operator in graph for tensor in operator.inputs}
    return [op.name for op in graph if op.type == "NoOp" and op.outputs and op.name in read]


def _fed_name(graph: tf.Graph, key: Any) -> str:
    if isinstance(key, str) and FED_OUTPUT.fullmatch(key):
        return key
    if isinstance(key, tf.Tensor):
        return fed_operator(key)
    try:
        return operator_name(graph, key)
    except FetchError:
        placeholders = [op.name for op in graph.get_operations() if op.type == "Placeholder"]
        raise OptionError.one_of("a placeholder of shapes", key, placeholders) from None


def _static(tensor: tf.Tensor, batch_size: int | None) -> tuple[int, ...] | None:
    shape = tensor.shape
    if shape.rank is None:
        return None
    dims: list[int | None] = shape.as_list()
    if dims and dims[0] is None:
        dims[0] = batch_size
    return None if any(n is None for n in dims) else tuple(n for n in dims if n is not None)
