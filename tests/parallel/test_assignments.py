"""Configurations as arrays and slots as numbers, against one configuration at a time."""

from __future__ import annotations

import numpy as np
import pytest

from tensoropt.errors import LayoutError
from tensoropt.parallel.assignments import (
    assignment_of,
    assignments,
    configuration_of,
    decode,
    encode,
    index_pieces,
    input_codes,
    only_added_up,
    output_codes,
    partial_reducers,
    unlike_rows,
)
from tensoropt.parallel.configuration import configurations, input_slot, output_slot
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.tdl import Derivation, derive
from tensoropt.tensor_spec import TensorSpec


def spec(*shape: int) -> TensorSpec:
    return TensorSpec(shape, "float32")


MATMUL = {"transpose_a": False, "transpose_b": False}
MEAN = derive(
    "Max",
    [spec(8, 12), TensorSpec((1,), "int32", np.array([1], np.int32))],
    [spec(8)],
    {"keep_dims": False},
)
LOCAL_STATISTICS = derive(
    "FusedBatchNormV2",
    [spec(8, 4, 2, 6), spec(6), spec(6), spec(0), spec(0)],
    [spec(8, 4, 2, 6), spec(6), spec(6), spec(6), spec(6)],
    {"_local_statistics": True},
)
DERIVATIONS = (
    derive("MatMul", [spec(8, 12), spec(12, 20)], [spec(8, 20)], MATMUL),
    derive("Relu", [spec(4, 6, 10)], [spec(4, 6, 10)], {}),
    derive("BiasAdd", [spec(16, 24), spec(24)], [spec(16, 24)], {"data_format": "NHWC"}),
    MEAN,
    LOCAL_STATISTICS,
    derive("Neg", [spec(8)], [spec(8)], {}).on_shares(),
    derive("Neg", [spec(8)], [spec(8)], {}).on_shares(along_all=True),
)
MESHES = (Mesh((2, 2, 2)), Mesh((2, 3)), Mesh((5,)), Mesh(()))


@pytest.mark.parametrize("mesh", MESHES, ids=str)
@pytest.mark.parametrize("derivation", DERIVATIONS, ids=lambda d: d.op_type)
def test_arrays_say_what_configurations_say(derivation: Derivation, mesh: Mesh) -> None:
    expected = configurations(derivation, mesh)
    found = assignments(derivation, mesh)
    indices = len(derivation.indices)
    assert tuple(configuration_of(row, indices) for row in found) == expected
    pieces = index_pieces(found, indices, mesh)
    slots = [
        (codes_of, slot_of, n)
        for codes_of, slot_of, tensors in (
            (input_codes, input_slot, derivation.inputs),
            (output_codes, output_slot, derivation.outputs),
        )
        for n in range(len(tensors))
    ]
    for number, configuration in enumerate(expected):
        assert (assignment_of(configuration, mesh)[0] == found[number]).all()
        assert [mesh.pieces(axes) for axes in configuration.splits] == pieces[number, :-1].tolist()
    for codes_of, slot_of, tensor in slots:
        codes = codes_of(derivation, found, tensor)
        assert codes.of_option.max() + 1 == codes.forward.size
        for number, configuration in enumerate(expected):
            slot, place = slot_of(derivation, configuration, tensor), codes.of_option[number]
            assert codes.forward[place] == encode(slot.forward)
            assert codes.gradient[place] == encode(slot.gradient)
            rank = len(slot.forward.dims)
            assert decode(int(codes.forward[place]), rank, mesh) == slot.forward


def test_slots_that_differ_in_the_gradient_alone_are_one_without_it() -> None:
    mesh = Mesh((2, 2, 2))
    codes = input_codes(DERIVATIONS[0], assignments(DERIVATIONS[0], mesh), 0)
    merged = codes.without_gradient()
    assert merged.forward.size < codes.forward.size
    assert (merged.forward[merged.of_option] == codes.forward[codes.of_option]).all()


def test_a_layout_in_another_order_has_no_number() -> None:
    with pytest.raises(LayoutError, match="ascending"):
        encode(Layout(((1, 0),)))


def test_the_reducer_of_a_layout_is_in_its_number() -> None:
    codes = np.array([encode(Layout(((0,), ()))), encode(Layout(((), ()), (1,), "max"))])
    assert partial_reducers(codes, 2).tolist() == [-1, 1]


def test_partial_values_are_only_added_up_where_nothing_else_moves() -> None:
    split, whole = Layout(((0,), ())), Layout(((), ()))
    some = [Layout(split.dims, (1,)), Layout(whole.dims, (0, 1)), split]
    codes = np.array([encode(layout) for layout in (*some, whole)])
    found = only_added_up(codes[:3], codes[2:], 2)
    assert found.tolist() == [[True, False], [False, True], [False, False]]


def test_unlike_rows_are_found_whatever_their_range() -> None:
    rng = np.random.default_rng(0)
    for high in (3, 2**40):
        table = rng.integers(0, high, (50, 4)) // (high // 3) * (high // 3)
        first, of_row = unlike_rows(table)
        np.testing.assert_array_equal(table[first][of_row], table)
        assert len(np.unique(table, axis=0)) == first.size
