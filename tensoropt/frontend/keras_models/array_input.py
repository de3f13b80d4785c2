"""Arrays that Keras's loops read in order, without a data set of TensorFlow."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tensoropt.frontend.inputs.batches.array_batches import ArrayBatches

__all__ = ["arrays_in_order"]

_MODULE = "keras.src.trainers.data_adapters.array_data_adapter"
_METHOD = "get_tf_dataset"  # of Keras 3's adapter of arrays


@contextmanager
def arrays_in_order() -> Iterator[None]:
    """A context in which Keras 3 reads arrays that it does not shuffle as `ArrayBatches`."""
    kind = getattr(sys.modules.get(_MODULE), "ArrayDataAdapter", None)
    make = getattr(kind, _METHOD, None)
    if make is None or make.__module__ == __name__:  # another package, or an outer context
        yield
        return

    def get_tf_dataset(adapter: Any) -> Any:
        batches = None if adapter._shuffle else _batches(adapter, make)
        return make(adapter) if batches is None else batches

    setattr(kind, _METHOD, get_tf_dataset)
    try:
        yield
    finally:
        setattr(kind, _METHOD, make)


def _batches(adapter: Any, make: Any) -> ArrayBatches | None:
    """The batches of an adapter's arrays, which are converted as Keras converts them."""
    convert = sys.modules[_MODULE].array_slicing.convert_to_sliceable
    arrays = convert(adapter._inputs, target_backend="tensorflow")
    arrays = sys.modules["keras"].tree.lists_to_tuples(arrays)
    return ArrayBatches.of(arrays, adapter._batch_size, lambda: make(adapter))
