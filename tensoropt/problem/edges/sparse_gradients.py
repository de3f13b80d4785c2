"""Times of the resharding of a sparse gradient (equation 2): its slices move, not the table.

As execution does it (`tensoropt.parallel.sparse`): over axes that split the row numbers, slices and
row numbers are gathered; over axes that split the table's rows, the slices are replicated already.
A gradient that is dense at its end is moved so, too, where slices are no more than rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.graph.operator import Operator, TensorName
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.sparse import known_shape, looks_up_rows, slice_layouts, travels_sparse
from tensoropt.tensor_spec import TensorSpec

__all__ = ["Slices", "looked_up", "slices_times"]

Times = Callable[[tuple[int, ...], int, Sequence[Layout], Sequence[Layout]], Int64Array]
"""Nanoseconds between layouts of a tensor of some shape and bytes an element, by both."""


@dataclass(frozen=True, slots=True)
class Slices:
    """The sparse gradient of a table.

    Attributes:
        count: number of slices; a dimension that only a run decides counts as 1.
        number_bytes: of one row number.
        stays: whether it is sparse at its end.
    """

    count: int
    number_bytes: int
    stays: bool


def looked_up(operator: Operator, number: int, sparse: Collection[TensorName]) -> Slices | None:
    """The gradient of an operator's input, if that is a table of which rows are looked up.

    Args:
        operator: which reads the table.
        number: of the input.
        sparse: the tensors whose gradient is sparse in the script.
    """
    if not looks_up_rows(operator, number):
        return None
    rows: TensorSpec = operator.input_specs[1]
    count = prod(known_shape(rows.shape))
    return Slices(count, rows.itemsize, operator.inputs[number] in sparse)


def slices_times(
    shape: Sequence[int],
    itemsize: int,
    slices: Slices,
    sources: Sequence[Layout],
    targets: Sequence[Layout],
    times: Times,
) -> Int64Array:
    """Nanoseconds from each of the gradient's layouts at the reader to each at the producer.

    Args:
        shape: of the table.
        itemsize: bytes of one of its elements.
        slices: its gradient.
        sources: layouts of the gradient at the reader, as if it were dense.
        targets: and at the producer.
        times: of a resharding.
    """
    found = np.zeros((len(sources), len(targets)), np.int64)
    values, numbers = (slices.count, *shape[1:]), (slices.count,)
    for partial in sorted({target.partial for target in targets}):
        places = [n for n, target in enumerate(targets) if target.partial == partial]
        some = [targets[n] for n in places]
        if not (slices.stays or travels_sparse(slices.count, shape, some[0])):
            found[:, places] = times(tuple(shape), itemsize, sources, some)
            continue
        ends, kinds = zip(*map(_unlike, (sources, some)), strict=True)
        here = [slice_layouts(source, some[0])[0] for source in ends[0]]
        there = [slice_layouts(sources[0], target)[1] for target in ends[1]]
        rows = [Layout((layout.dims[0],)) for layout in here]
        moved = times(values, itemsize, here, there)
        moved = moved + times(numbers, slices.number_bytes, rows, [Layout(((),))])
        found[:, places] = moved[np.ix_(*kinds)]
    return found


def _unlike(layouts: Sequence[Layout]) -> tuple[list[Layout], list[int]]:
    """The layouts that differ in more than the axes of the table's rows, which slices do not have;
    and which of them each layout equals."""
    first: list[Layout] = []
    kinds: list[int] = []
    known: dict[Hashable, int] = {}
    for layout in layouts:
        kind = known.setdefault((layout.dims[1:], layout.partial), len(first))
        if kind == len(first):
            first.append(layout)
        kinds.append(kind)
    return first, kinds
