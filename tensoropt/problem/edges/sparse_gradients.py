"""The time to reshard a sparse gradient (TensorOpt, equation 2): its slices are sent, not the
table.

The steps are those of execution (`tensoropt.parallel.sparse`). Over axes that split the row
numbers, slices and row numbers are gathered. Over axes that split the table's rows, the slices are
replicated already. A gradient that is dense at the producer is also sent as slices if they are at
most as many as the rows of the table.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.graph.operator import Operator, TensorName
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.sparse import known_shape, looks_up_rows, slice_layouts, travels_sparse
from tensoropt.tensor_spec import TensorSpec

__all__ = ["Slices", "looked_up", "slices_times"]

TimesBetween = Callable[[tuple[int, ...], int, Sequence[Layout], Sequence[Layout]], Int64Array]
"""A function that returns nanoseconds between layouts, from a tensor's shape, the bytes of an
element, the source layouts and the target layouts."""


@dataclass(frozen=True, slots=True)
class Slices:
    """The sparse gradient of a table.

    Attributes:
        count: number of slices, where an open dimension counts as 1.
        number_bytes: bytes of one row number.
        stays: whether the gradient is sparse at the producer, too.
    """

    count: int
    number_bytes: int
    stays: bool


def looked_up(operator: Operator, number: int, sparse: Collection[TensorName]) -> Slices | None:
    """Return the sparse gradient of an input whose rows are looked up, None for other inputs.

    Args:
        operator: the reader of the table.
        number: number of the input.
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
    times: TimesBetween,
    mesh: Mesh,
) -> Int64Array:
    """Return the nanoseconds from each layout at the reader to each layout at the producer.

    The number of slices is no extent of the graph. If it equals one with a unit, more are sent.

    Args:
        shape: shape of the table.
        itemsize: bytes of one of its elements.
        slices: its gradient.
        sources: layouts of the gradient at the reader, as if it were dense.
        targets: layouts of the gradient at the producer, as if it were dense.
        times: gives the times of a resharding.
        mesh: the devices.
    """
    count = next(n for n in itertools.count(slices.count) if mesh.unit(n) == 1)
    result = np.zeros((len(sources), len(targets)), np.int64)
    values, numbers = (count, *shape[1:]), (count,)
    for partial in sorted({target.partial for target in targets}):
        columns = [n for n, target in enumerate(targets) if target.partial == partial]
        some = [targets[n] for n in columns]
        if not (slices.stays or travels_sparse(slices.count, shape, some[0])):
            result[:, columns] = times(tuple(shape), itemsize, sources, some)
            continue
        distinct, kinds = zip(*map(_distinct_for_slices, (sources, some)), strict=True)
        before = [slice_layouts(source, some[0])[0] for source in distinct[0]]
        after = [slice_layouts(sources[0], target)[1] for target in distinct[1]]
        rows = [Layout((layout.dims[0],)) for layout in before]
        nanoseconds = times(values, itemsize, before, after)
        nanoseconds = nanoseconds + times(numbers, slices.number_bytes, rows, [Layout(((),))])
        result[:, columns] = nanoseconds[np.ix_(*kinds)]
    return result


def _distinct_for_slices(layouts: Sequence[Layout]) -> tuple[list[Layout], list[int]]:
    """Find the layouts that differ for the slices, which lack the axes of the table's rows.

    Returns:
        One layout of each kind, and the kind of every layout.
    """
    first: list[Layout] = []
    kinds: list[int] = []
    kind_of: dict[Hashable, int] = {}
    for layout in layouts:
        kind = kind_of.setdefault((layout.dims[1:], layout.partial), len(first))
        if kind == len(first):
            first.append(layout)
        kinds.append(kind)
    return first, kinds
