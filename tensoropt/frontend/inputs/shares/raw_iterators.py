"""Iterators of a graph without their maps, which run for one rank's rows of each batch.

The state of such an iterator does not depend on the rank or on the number of ranks, so that it is
a position in the data for any job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tensoropt.execution.world.shares import Share
from tensoropt.frontend.inputs.by_rows import is_by_rows
from tensoropt.frontend.inputs.shares.elements import CannotShareError
from tensoropt.frontend.inputs.shares.functions import effects_of
from tensoropt.graph.from_tensorflow import called_functions, function_closure
from tensoropt.tensorflow_private import function_def_to_graph

__all__ = ["RawElement", "RawIterator", "dataset_of", "functions_of"]

Array = np.ndarray[Any, Any]

_BATCHES = frozenset({"BatchDatasetV2", "PaddedBatchDatasetV2", "ParallelBatchDataset"})

_MAPS = frozenset({"MapDataset", "ParallelMapDataset", "ParallelMapDatasetV2"})

_PASSING = frozenset(
    {"OptionsDataset", "PrefetchDataset", "RepeatDataset", "ShuffleAndRepeatDatasetV2"}
    | {"ShuffleDataset", "ShuffleDatasetV2", "ShuffleDatasetV3", "SkipDataset", "TakeDataset"}
)
"""Operators that pass their first input's elements on unchanged, whatever the elements are."""


@dataclass(frozen=True, slots=True, eq=False)
class RawElement:
    """A batch of the maps' inputs, and the maps of some of its rows.

    Attributes:
        batch: the components of the whole batch.
        rows: placeholders for some rows of the components.
        count: a placeholder for the number of these rows.
        results: the components of the script's batch, in these rows.
    """

    batch: tuple[tf.Tensor, ...]
    rows: tuple[tf.Tensor, ...]
    count: tf.Tensor
    results: tuple[tf.Tensor, ...]

    def samples(self, size: int) -> list[Array] | None:
        """Values of the shapes of a batch with ``size`` rows; None for unknown shapes."""
        shapes = [result.shape for result in self.results]
        if not all(shape.rank and None not in shape.as_list()[1:] for shape in shapes):
            return None
        return [
            np.broadcast_to(np.zeros([], result.dtype.as_numpy_dtype), (size, *shape[1:]))
            for result, shape in zip(self.results, shapes, strict=True)
        ]

    def mapped(
        self, session: tf.compat.v1.Session, batch: Sequence[Array], ranges: Array
    ) -> list[Any]:
        """Run the maps for rows of a batch; return shares of the script's batch, or all of it.

        Args:
            session: runs the graph.
            batch: the components of the whole batch.
            ranges: half-open ranges of rows, in ascending order.
        """
        size = len(batch[0])
        count = int((ranges[:, 1] - ranges[:, 0]).sum())
        if count:
            parts = [np.concatenate([b[i:j] for i, j in ranges.tolist()]) for b in batch]
            fed = {**dict(zip(self.rows, parts, strict=True)), self.count: count}
            values = session.run(list(self.results), fed)
        else:
            samples = self.samples(0)
            assert samples is not None  # without known shapes, all rows are read
            values = samples
        return values if count == size else [Share(ranges, value, size) for value in values]


@dataclass(frozen=True, slots=True, eq=False)
class RawIterator:
    """An iterator whose data set lacks maps of the script's data set.

    Attributes:
        iterator: the iterator.
        start: starts it.
        maps: the maps of single elements, the first one first.
        batching: the script's batching operator.
        batch_maps: the maps of batches, the first one first. They treat rows one by one.
        base: the type of the operator that makes the elements of the batches.
        whole: names of functions that run for all examples in each process.
    """

    iterator: tf.Operation
    start: tf.Operation
    maps: tuple[tf.Operation, ...]
    batching: tf.Operation
    batch_maps: tuple[tf.Operation, ...]
    base: str
    whole: tuple[str, ...]

    @classmethod
    def of(cls, dataset: tf.Operation) -> RawIterator:
        """Make an iterator of a data set's graph, without the pure maps around the last batch.

        Args:
            dataset: the last operator of the script's data set.

        Raises:
            CannotShareError: if the maps run for whole batches, or there are none.
        """
        above, batching = _batching_from(dataset)
        below, base = _maps_from(batching.inputs[0].op)
        maps = tuple(reversed([each for each in below if each.type in _MAPS]))
        if not maps and not any(each.type in _MAPS for each in above):
            raise CannotShareError(f"{base.type} needs its results for all examples.")
        if not _has_arrays(base):
            raise CannotShareError(f"{base.type} makes elements of unknown shapes.")
        if batching.type == "PaddedBatchDatasetV2":
            _check_padding(batching)
        types = _types(base)
        source, shapes = base.outputs[0], base.get_attr("output_shapes")
        for operation in reversed(below):
            if operation.type in _PASSING:
                source = _over(operation, source, types, shapes)
        source, shapes = _batched(batching, source, types, shapes)
        for operation in reversed(above):
            if operation.type in _PASSING:
                source = _over(operation, source, types, shapes)
        iterator = tf.raw_ops.IteratorV2(
            shared_name="", container="", output_types=types, output_shapes=shapes
        )
        start = tf.raw_ops.MakeIterator(dataset=source, iterator=iterator)
        of_batches = tuple(reversed([each for each in above if each.type in _MAPS]))
        whole = functions_of(base)
        return cls(iterator.op, start, maps, batching, of_batches, base.type, whole)

    def element(self) -> RawElement:
        """Make an operator that draws a batch, and the maps of some of its rows."""
        types = _types(self.iterator)
        shapes = self.iterator.get_attr("output_shapes")
        batch = tf.raw_ops.IteratorGetNext(
            iterator=self.iterator.outputs[0], output_types=types, output_shapes=shapes
        )
        rows = [
            tf.compat.v1.placeholder(dtype, [None, *tf.TensorShape(shape).as_list()[1:]])
            for dtype, shape in zip(types, shapes, strict=True)
        ]
        count = tf.compat.v1.placeholder(tf.int64, [])
        source = tf.raw_ops.TensorSliceDataset(
            components=rows, output_shapes=[tensor.shape[1:] for tensor in rows]
        )
        for each in self.maps:
            source = _over(each, source, _types(each), each.get_attr("output_shapes"))
        types, shapes = _types(self.batching), self.batching.get_attr("output_shapes")
        shapes = [[None, *tf.TensorShape(shape).as_list()[1:]] for shape in shapes]
        if self.batching.type == "PaddedBatchDatasetV2":
            inputs = [source, count, *self.batching.inputs[2:]]
            padded = _copy(self.batching, inputs, types, shapes)
        else:
            padded = tf.raw_ops.BatchDatasetV2(
                input_dataset=source,
                batch_size=count,
                drop_remainder=False,
                output_types=types,
                output_shapes=shapes,
            )
        results = tf.raw_ops.DatasetToSingleElement(
            dataset=padded, output_types=types, output_shapes=shapes
        )
        for each in self.batch_maps:
            results = _applied(each, results)
        return RawElement(tuple(batch), tuple(rows), count, tuple(results))


def dataset_of(iterator: tf.Operation) -> tf.Operation:
    """Return the last operator of an iterator's data set, copied from a one-shot iterator.

    Raises:
        CannotShareError: if no operator starts the iterator.
    """
    if iterator.type != "OneShotIterator":
        users = iterator.outputs[0].consumers()
        starts = [operation for operation in users if operation.type == "MakeIterator"]
        if not starts:
            raise CannotShareError("the iterator is not started by an operator.")
        return starts[0].inputs[0].op
    (name,) = called_functions(iterator.node_def.attr)
    definition = function_closure(iterator.graph, [name])[name]
    body = function_def_to_graph.function_def_to_graph(definition)
    (dataset,) = tf.graph_util.import_graph_def(
        body.as_graph_def(), return_elements=[body.outputs[0].name], name=f"{iterator.name}/data"
    )
    return dataset.op


def _batching_from(dataset: tf.Operation) -> tuple[list[tf.Operation], tf.Operation]:
    """The operators above the last batching operator, the last one first; and that operator.

    Raises:
        CannotShareError: if there is none, or a map of batches needs whole batches.
    """
    above = []
    while dataset.type in _PASSING or dataset.type in _MAPS:
        if dataset.type in _MAPS and not (_is_pure(dataset) and _keeps_rows(dataset)):
            (name,) = map(_script_name, called_functions(dataset.node_def.attr))
            raise CannotShareError(f"{name} may mix the rows of a batch.")
        above.append(dataset)
        dataset = dataset.inputs[0].op
    if dataset.type not in _BATCHES:
        raise CannotShareError(f"{dataset.type} makes the batches or comes after them.")
    return above, dataset


def _keeps_rows(dataset: tf.Operation) -> bool:
    """Whether row i of a map's results depends on row i of its arguments."""
    body = _body(dataset)
    rows = body.inputs[: len(_types(dataset.inputs[0].op))]
    if body.control_outputs or not all(tensor.shape.rank for tensor in rows):
        return False
    return is_by_rows(rows, body.outputs)


def _applied(dataset: tf.Operation, rows: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Copy the operators of a map's function for some rows of a batch."""
    body = _body(dataset)
    captured = dataset.inputs[1 : 1 + len(body.inputs) - len(rows)]
    given = zip(body.inputs, [*rows, *captured], strict=True)
    return list(
        tf.graph_util.import_graph_def(
            body.as_graph_def(),
            input_map={tensor.name: value for tensor, value in given},
            return_elements=[tensor.name for tensor in body.outputs],
            name=dataset.name,
        )
    )


def _body(dataset: tf.Operation) -> Any:
    """The function of a map, as a graph."""
    (name,) = called_functions(dataset.node_def.attr)
    definition = function_closure(dataset.graph, [name])[name]
    shapes = list(dataset.inputs[0].op.get_attr("output_shapes"))
    captured = dataset.inputs[1 : 1 + len(definition.signature.input_arg) - len(shapes)]
    shapes += [tensor.shape.as_proto() for tensor in captured]
    return function_def_to_graph.function_def_to_graph(definition, shapes)


def _maps_from(dataset: tf.Operation) -> tuple[list[tf.Operation], tf.Operation]:
    """The operators between a base and the batching operator, the last one first; and the base.

    The base's elements have known shapes, so that they can be batched.
    """
    between, below = [], [dataset]
    while dataset.type in _PASSING or (dataset.type in _MAPS and _is_pure(dataset)):
        between.append(dataset)
        dataset = dataset.inputs[0].op
        below.append(dataset)
    known = [n for n, each in enumerate(below) if _has_arrays(each)]
    lowest = max(known, default=0)
    return between[:lowest], below[lowest]


def _has_arrays(dataset: tf.Operation) -> bool:
    """Whether all elements of a data set are arrays of the same shapes."""
    shapes = map(tf.TensorShape, dataset.get_attr("output_shapes"))
    return _are_arrays(dataset) and all(shape.is_fully_defined() for shape in shapes)


def _are_arrays(dataset: tf.Operation) -> bool:
    return not {tf.variant, tf.resource} & set(_types(dataset))


def _is_pure(dataset: tf.Operation) -> bool:
    """Whether a map makes arrays that do not depend on other calls of its function."""
    functions = function_closure(dataset.graph, called_functions(dataset.node_def.attr))
    bodies = [function.node_def for function in functions.values()]
    return _are_arrays(dataset) and effects_of(bodies).is_pure


def _types(operation: tf.Operation) -> list[tf.DType]:
    """The types of the components of the elements that an operator makes."""
    attributes = operation.node_def.attr
    name = "output_types" if "output_types" in attributes else "Toutput_types"
    return list(operation.get_attr(name))


def _check_padding(batching: tf.Operation) -> None:
    count = len(_types(batching))
    shapes = [tf.get_static_value(tensor) for tensor in batching.inputs[2 : 2 + count]]
    if any(shape is None or (shape < 0).any() for shape in shapes):
        raise CannotShareError("the width of padding depends on all examples of a batch.")


def _over(operation: tf.Operation, source: tf.Tensor, types: Any, shapes: Any) -> tf.Tensor:
    """Copy an operator of a data set to another input, whose elements may have other types."""
    return _copy(operation, [source, *operation.inputs[1:]], types, shapes)


def _copy(
    operation: tf.Operation, inputs: Sequence[tf.Tensor], types: Any, shapes: Any
) -> tf.Tensor:
    attributes: dict[str, Any] = dict(operation.node_def.attr)
    if "output_types" in attributes:
        attributes["output_types"] = _list(type=[tf.as_dtype(t).as_datatype_enum for t in types])
    attributes["output_shapes"] = _list(shape=[tf.TensorShape(s).as_proto() for s in shapes])
    made = operation.graph.create_op(
        operation.type, list(inputs), [tf.variant], attrs=attributes, name=operation.name
    )
    return made.outputs[0]


def _list(**values: Any) -> Any:
    value = tf.compat.v1.AttrValue
    return value(list=value.ListValue(**values))


def _batched(
    batching: tf.Operation, source: tf.Tensor, types: Any, shapes: Any
) -> tuple[tf.Tensor, list[tf.TensorShape]]:
    """Batch elements of equal shapes as another operator batches its elements."""
    sizes = [tf.TensorShape(shape)[:1] for shape in batching.get_attr("output_shapes")]
    shapes = [sizes[0].concatenate(shape) for shape in shapes]
    batches = tf.raw_ops.ParallelBatchDataset(  # see `keep_shuffles_below_batches`
        input_dataset=source,
        batch_size=batching.inputs[1],
        num_parallel_calls=tf.constant(1, tf.int64),
        drop_remainder=batching.inputs[-1],
        output_types=types,
        output_shapes=shapes,
        deterministic="true",
    )
    return batches, shapes


def functions_of(dataset: tf.Operation) -> tuple[str, ...]:
    """Return the names of the functions of a data set and of the data sets that it is made of."""
    waiting, names = [dataset], dict[str, None]()
    reached = {dataset.name}
    while waiting:
        operation = waiting.pop()
        names.update(dict.fromkeys(called_functions(operation.node_def.attr)))
        for tensor in operation.inputs:
            if tensor.op.name not in reached:
                reached.add(tensor.op.name)
                waiting.append(tensor.op)
    return tuple(_script_name(name) for name in names)


def _script_name(function: str) -> str:
    """The name of a function as its script knows it, such as ``Dataset_map_decode``."""
    return function.removeprefix("__inference_").rpartition("_")[0] or function
