"""The operators of data sets: their names, and the same operator over another input."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

import tensorflow as tf

__all__ = [
    "REBUILT",
    "as_it_is",
    "constant",
    "definition",
    "is_cache_in_memory",
    "kind",
    "parts_of",
    "rebuilt",
    "takes_apart",
]

_LARGEST_GRAPH_BYTES = 2**28
"""Bytes of arrays up to which a data set's graph is made. A graph has less than 2 GiB."""

F = TypeVar("F", bound=Callable[..., Any])


def as_it_is(function: F) -> F:
    """A function that is traced without AutoGraph."""
    return cast("F", tf.autograph.experimental.do_not_convert(function))


def kind(dataset: tf.data.Dataset) -> str:
    """The name of a data set's last operator, such as ``MapDataset``."""
    return type(dataset).__name__.lstrip("_")


def constant(value: tf.Tensor) -> int:
    """The value of a scalar argument of an operator."""
    return int(tf.get_static_value(value))


def is_cache_in_memory(dataset: Any) -> bool:
    """Whether a data set's last operator is a cache that is not in a file."""
    return kind(dataset) == "CacheDataset" and not tf.get_static_value(dataset._filename)


def parts_of(dataset: tf.data.Dataset) -> Iterator[Any]:
    """A data set and the data sets that it is made of."""
    waiting = [dataset]
    while waiting:
        part: Any = waiting.pop()
        yield part
        waiting += part._inputs()


def definition(dataset: Any) -> tf.compat.v1.GraphDef:
    """The graph of a data set, which holds all arrays that the data set reads."""
    serialized = tf.raw_ops.DatasetToGraphV2(
        input_dataset=tf.data.experimental.to_variant(dataset), external_state_policy=1
    )
    return tf.compat.v1.GraphDef.FromString(serialized.numpy())


def rebuilt(dataset: tf.data.Dataset, source: tf.data.Dataset) -> tf.data.Dataset:
    """The last operator of a data set, which is one of `REBUILT`, over another input."""
    return REBUILT[kind(dataset)](dataset, source)


def takes_apart(element_spec: Any) -> bool:
    """Whether a function of an element gets the parts of the element as arguments."""
    return type(element_spec) is tuple


def _shuffle(dataset: Any, source: tf.data.Dataset) -> tf.data.Dataset:
    spec = source.element_spec
    flat = tf.data.experimental.to_variant(source)
    shuffled = tf.raw_ops.ShuffleDatasetV3(
        input_dataset=flat,
        buffer_size=dataset._buffer_size,
        seed=dataset._seed,
        seed2=dataset._seed2,
        seed_generator=_seed_generator(dataset),
        reshuffle_each_iteration=bool(dataset._reshuffle_each_iteration),
        **source._flat_structure,
    )
    return tf.data.experimental.from_variant(shuffled, spec)


def _seed_generator(shuffle: Any) -> tf.Tensor:
    """The resource that seeds each iteration of a shuffle, which may have been iterated before.

    Only the graph of the data set tells it. It is not read where the graph is large: the first
    iteration then has the order of the first iteration of the script's shuffle.
    """
    arrays = [array for part in parts_of(shuffle) for array in getattr(part, "_tensors", [])]
    if sum(array.dtype.size * int(tf.size(array)) for array in arrays) > _LARGEST_GRAPH_BYTES:
        return tf.raw_ops.DummySeedGenerator()
    whole = definition(shuffle)
    named = {node.name: node for node in whole.node}
    (result,) = (node for node in whole.node if node.op == "_Retval")
    root = named[result.input[0].partition(":")[0]]
    handle = named[root.input[4].partition(":")[0]]
    part = tf.compat.v1.GraphDef(versions=whole.versions, node=[handle])
    imported = tf.compat.v1.wrap_function(
        lambda: tf.graph_util.import_graph_def(part, return_elements=[f"{handle.name}:0"]), []
    )
    return imported()[0]


REBUILT: Mapping[str, Callable[[Any, tf.data.Dataset], tf.data.Dataset]] = {
    "OptionsDataset": lambda dataset, source: source.with_options(dataset.options()),
    "PrefetchDataset": lambda dataset, source: source.prefetch(constant(dataset._buffer_size)),
    "RepeatDataset": lambda dataset, source: source.repeat(constant(dataset._count)),
    "ShuffleDataset": _shuffle,
    "SkipDataset": lambda dataset, source: source.skip(constant(dataset._count)),
    "TakeDataset": lambda dataset, source: source.take(constant(dataset._count)),
}
"""By operator, a function that puts it over another input. These operators pass their input's
elements on unchanged, whatever the elements are."""
