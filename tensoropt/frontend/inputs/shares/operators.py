"""The operators of data sets: their names, and the same operator over another input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import tensorflow as tf

__all__ = ["REBUILT", "as_it_is", "constant", "kind", "rebuilt", "takes_apart"]

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
        seed_generator=tf.raw_ops.DummySeedGenerator(),
        reshuffle_each_iteration=bool(dataset._reshuffle_each_iteration),
        **source._flat_structure,
    )
    return tf.data.experimental.from_variant(shuffled, spec)


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
