"""What kernels do with memory, and what a resharding takes while it runs."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from collectives import Group
from collectives.buffers import usage
from collectives.operations.calls import (
    CollectiveCall,
    LocalCall,
    OperationCall,
    Position,
    on_arrays,
)
from tensoropt.cost.peak.device_program import Kernel
from tensoropt.cost.peak.fused_memory import fused_memory
from tensoropt.cost.peak.kernel_memory import MOVE, same_memory, temporary_bytes, writes_over
from tensoropt.execution.world.resharding.operations import collective, local
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import Exchange, ReshardStep, Step
from tensoropt.tensor_spec import TensorSpec

MESH = Mesh((2,))


def spec(*shape: int) -> TensorSpec:
    return TensorSpec(shape, "float32")


def kernel(kind: str, *made: TensorSpec, inputs: int = 1, **fields: Any) -> Kernel:
    return Kernel("it", kind, tuple((n, 0) for n in range(inputs)), made, **fields)


def test_rows_that_start_aligned_are_a_view() -> None:
    whole = spec(8, 16)
    rows = kernel("Slice", spec(4, 16), operands={1: (4, 0)})
    columns = kernel("Slice", spec(8, 8), operands={1: (0, 8)})
    narrow = kernel("Slice", spec(4, 3), operands={1: (1, 0)})
    assert same_memory(rows, (whole,)) == {0: 0}
    assert same_memory(columns, (whole,)) == {}
    assert same_memory(narrow, (spec(8, 3),)) == {}


def test_split_and_unpack_along_rows_are_views() -> None:
    halves = (spec(4, 16), spec(4, 16))
    along = kernel("Split", *halves, inputs=2, operands={0: (0,)})
    across = kernel("Split", spec(8, 8), spec(8, 8), inputs=2, operands={0: (1,)})
    assert same_memory(along, (spec(), spec(8, 16))) == {0: 1, 1: 1}
    assert same_memory(across, (spec(), spec(8, 16))) == {}
    assert same_memory(kernel("Unpack", spec(16), spec(16), operands={-1: (0,)}), (spec(2, 16),))
    other = kernel("Unpack", spec(16), spec(16), operands={-1: (1,)})
    assert same_memory(other, (spec(16, 2),)) == {}


def test_rectifiers_and_their_gradients_write_over_what_they_read() -> None:
    for kind in ("Relu", "LeakyRelu", "Elu"):
        assert writes_over(kernel(kind, spec(8))) == ((0, 0),)
        assert writes_over(kernel(f"{kind}Grad", spec(8), inputs=2)) == ((0, 0), (1, 0))


def test_what_changes_nothing_is_a_view() -> None:
    assert same_memory(kernel("Transpose", spec(1, 8), operands={1: (1, 0)}), (spec(8, 1),))
    assert not same_memory(kernel("Transpose", spec(4, 8), operands={1: (1, 0)}), (spec(8, 4),))
    assert same_memory(kernel("Sum", spec(8)), (spec(8, 1),)) == {0: 0}
    assert same_memory(kernel("ConcatV2", spec(8), inputs=3), (spec(4), spec(4), spec())) == {}


def test_addition_of_many_writes_over_any() -> None:
    assert writes_over(kernel("AddN", spec(4), inputs=3)) == ((0, 0), (1, 0), (2, 0))
    assert writes_over(kernel("MatMul", spec(4, 4), inputs=2)) == ()


def test_an_exchange_by_an_operator_receives_what_windows_have_of_a_piece_and_adds_it_up() -> None:
    back = Exchange((0,), 0, 8, (0, 4), 12, back=True)  # windows of 12 rows become pieces of 8
    moved = kernel(MOVE, spec(8, 4), steps=(back,))
    assert temporary_bytes(moved, (spec(12, 4),)) == (8 + 4) * 4 * 4


def test_einsum_transposes_what_is_not_in_order() -> None:
    def bytes_of(equation: str, made: TensorSpec, *read: TensorSpec) -> int:
        einsum = kernel("Einsum", made, inputs=len(read), equation=equation)
        return temporary_bytes(einsum, read)

    # [batch, rows, k] times [k, columns]: as a matrix product.
    assert bytes_of("btk,kf->btf", spec(2, 4, 6), spec(2, 4, 8), spec(8, 6)) == 0
    # Heads come before rows: the first operand is transposed, and then the result back.
    q, k = spec(2, 4, 3, 5), spec(2, 6, 3, 5)
    whole = 4 * (2 * 4 * 3 * 5 + 2 * 6 * 3 * 5)
    assert bytes_of("bthk,bshk->bhts", spec(2, 3, 4, 6), q, k) == whole
    # Both are read against the grain: oneDNN copies the columns of the first.
    x, y = spec(4, 8, 10), spec(4, 8, 12)
    assert bytes_of("btd,btf->df", spec(10, 12), x, y) == 4 * 32 * 10


def test_reductions_of_scattered_dimensions_are_transposed_first() -> None:
    image = spec(2, 3, 4, 5)
    for axes, expected in (((0, 1, 2), 0), ((1, 2), 0), ((1, 3), image.bytes), ((3,), 0)):
        summed = kernel("Sum", spec(), inputs=2, operands={1: axes})
        assert temporary_bytes(summed, (image, spec(len(axes)))) == expected


class Nobody:
    """A transport between two that moves nothing, for the memory that a group takes."""

    ranks = (0, 1)
    rank = 0

    def allgather(self, send: Any, receive: Any) -> None: ...

    alltoall = allgather

    def allreduce(self, send: Any, receive: Any, reducer: str) -> None: ...

    reduce_scatter = allreduce

    def exchange(self, *buffers: Any) -> None: ...

    def wait(self) -> None: ...


def step(kind: str, source: Layout, target: Layout, **fields: Any) -> ReshardStep:
    return ReshardStep(kind, (0,), source, target, **fields)


def split(dim: int | None) -> Layout:
    return Layout(tuple((0,) if number == dim else () for number in range(3)))


PARTIAL = Layout(((), (), ()), (0,), "sum")
STEPS: list[tuple[Step, ...]] = [
    (step("allgather", split(0), split(None), from_dim=0),),
    (step("allgather", split(2), split(None), from_dim=2),),
    (step("allreduce", PARTIAL, split(None), reducer="sum"),),
    (step("reduce_scatter", PARTIAL, split(0), to_dim=0, reducer="sum"),),
    (step("reduce_scatter", PARTIAL, split(1), to_dim=1, reducer="sum"),),
    (step("alltoall", split(0), split(2), from_dim=0, to_dim=2),),
    (step("alltoall", split(2), split(0), from_dim=2, to_dim=0),),
    (step("alltoall", split(1), split(2), from_dim=1, to_dim=2),),
    (
        step("allreduce", PARTIAL, split(None), reducer="sum"),
        step("slice", split(None), split(1), to_dim=1),
    ),
    (
        step("allgather", split(1), split(None), from_dim=1),
        step("slice", split(None), split(0), to_dim=0),
    ),
    (Exchange((0,), 1, 32, (-2, 30), 36),),
    (Exchange((0,), 1, 28, (-2, 26), 32, back=True),),
]


@pytest.mark.parametrize("steps", STEPS, ids=lambda steps: "; ".join(map(str, steps)))
def test_a_resharding_takes_what_is_counted_while_it_runs(steps: tuple[Step, ...]) -> None:
    array = np.zeros((16, 32, 64), np.float32)
    group = Group(Nobody())  # type: ignore[arg-type]
    gc.collect()
    usage.reset()
    before = usage.bytes
    calls: list[OperationCall] = [
        LocalCall(local(step), (Position(0, 2),))
        if step.is_local
        else CollectiveCall(collective(step), (group,))
        for step in steps
    ]
    (moved,) = on_arrays([array], calls)
    copied = 0 if moved.flags.c_contiguous else moved.nbytes
    found = fused_memory(array.shape, 4, steps, MESH, 0)
    taken = usage.peak_bytes - before
    slack = 5 * 64  # each buffer is longer by what aligns it
    assert 0 <= max(taken, usage.bytes - before + copied) - found.peak_bytes <= slack
    left = copied or usage.bytes - before
    assert 0 <= left - found.left_bytes <= slack
