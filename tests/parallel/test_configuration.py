"""Configurations of an operator and the layouts that they determine."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from fractions import Fraction
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensoropt.errors import LayoutError
from tensoropt.parallel.configuration import (
    Configuration,
    configurations,
    fitted,
    gradient_is_local,
    input_slot,
    output_slot,
    rescaling,
)
from tensoropt.parallel.layout import Layout, Slot
from tensoropt.parallel.mesh import Mesh
from tensoropt.tdl import Derivation, derive, replicated, source
from tensoropt.tensor_spec import TensorSpec

NO_ATTRIBUTES: Mapping[str, object] = {}


def matmul(m: int, k: int, n: int) -> Derivation:
    inputs = [TensorSpec((m, k), "float32"), TensorSpec((k, n), "float32")]
    return derive("MatMul", inputs, [TensorSpec((m, n), "float32")], NO_ATTRIBUTES)


def reduction(op_type: str, shape: tuple[int, ...], axis: int) -> Derivation:
    inputs = [TensorSpec(shape, "float32"), TensorSpec((), "int32", np.array(axis, np.int32))]
    output = TensorSpec(shape[:axis] + shape[axis + 1 :], "float32")
    return derive(op_type, inputs, [output], NO_ATTRIBUTES)


def test_a_matrix_product_on_four_devices() -> None:
    found = configurations(matmul(8, 8, 8), Mesh((2, 2)))
    assert len(found) == 16
    assert found[0] == Configuration(((), (), ()))
    assert len(set(found)) == len(found)
    assert configurations(matmul(8, 8, 8), Mesh((2, 2))) == found


def test_slots_of_a_matrix_product() -> None:
    product = matmul(8, 8, 8)  # indices m, n, k
    both = Configuration(((0,), (), (1,)))
    assert input_slot(product, both, 0) == Slot(Layout(((0,), (1,))), Layout(((0,), (1,))))
    assert input_slot(product, both, 1) == Slot(
        Layout(((1,), ())), Layout(((1,), ()), partial=(0,))
    )
    assert output_slot(product, both, 0) == Slot(
        Layout(((0,), ()), partial=(1,)), Layout(((0,), ()))
    )


def test_redundant_computation_leaves_a_gradient_replicated() -> None:
    slot = input_slot(matmul(8, 8, 8), Configuration(((), (), ())), 0)
    assert slot == Slot(Layout.replicated(2), Layout.replicated(2))


def test_a_broadcast_input_has_a_partial_gradient() -> None:
    inputs = [TensorSpec((8, 8), "float32"), TensorSpec((8,), "float32")]
    bias = derive("BiasAdd", inputs, inputs[:1], NO_ATTRIBUTES)
    slot = input_slot(bias, Configuration(((0, 1), ())), 1)
    assert slot == Slot(Layout(((),)), Layout(((),), partial=(0, 1)))


def test_only_what_divides_evenly() -> None:
    mesh = Mesh((2, 2, 3))
    assert [c.splits for c in configurations(matmul(2, 1, 3), mesh)] == [
        ((), (), ()),
        ((), (2,), ()),
        ((1,), (), ()),
        ((1,), (2,), ()),
        ((0,), (), ()),
        ((0,), (2,), ()),
    ]


def test_a_reshape_divides_both_its_sides() -> None:
    inputs = [TensorSpec((3, 4), "float32"), TensorSpec((1,), "int32")]
    flat = derive("Reshape", inputs, [TensorSpec((12,), "float32")], NO_ATTRIBUTES)
    assert len(configurations(flat, Mesh((2,)))) == 1
    assert len(configurations(flat, Mesh((3,)))) == 2


@settings(max_examples=40, deadline=None)
@given(
    st.tuples(*[st.sampled_from([1, 2, 3, 4, 6, 12])] * 3),
    st.lists(st.sampled_from([2, 3]), max_size=3).map(tuple),
)
def test_configurations_are_those_that_fit(
    sizes: tuple[int, int, int], axes: tuple[int, ...]
) -> None:
    """Configurations equal enumeration: an index or none per axis, kept if layouts fit."""
    product, mesh = matmul(*sizes), Mesh(axes)
    expected = set()
    for choice in itertools.product([None, 0, 1, 2], repeat=len(axes)):
        splits = tuple(tuple(a for a, n in enumerate(choice) if n == i) for i in range(3))
        if all(
            index.extent % prod(axes[a] for a in split) == 0
            for index, split in zip(product.indices, splits, strict=True)
        ):
            expected.add(Configuration(splits))
    found = configurations(product, mesh)
    assert set(found) == expected
    assert len(found) == len(expected)
    for configuration in found:
        for i, shape in enumerate(product.input_shapes):
            slot = input_slot(product, configuration, i)
            assert slot.forward.fits(shape, mesh)
            assert slot.gradient.fits(shape, mesh)
        out = output_slot(product, configuration, 0)
        assert out.forward.fits(product.output_shapes[0], mesh)
        assert not out.gradient.partial
        assert out.forward.partial == tuple(sorted(configuration.splits[2]))
        assert fitted(configuration, product, mesh) == configuration


def test_fitted_drops_the_last_axes_first() -> None:
    mesh = Mesh((2, 2, 2))
    configuration = Configuration(((0, 1), (), (2,)))
    assert fitted(configuration, matmul(2, 8, 8), mesh) == Configuration(((0,), (), (2,)))
    assert fitted(configuration, matmul(1, 8, 8), mesh) == Configuration(((), (), (2,)))
    assert fitted(configuration, matmul(8, 7, 8), mesh) == Configuration(((0, 1), (), (2,)))


def test_fitted_to_an_operator_that_cannot_be_split() -> None:
    spec = TensorSpec((8,), "float32")
    whole = replicated("Unknown", [spec], [spec])
    assert fitted(Configuration(((0,),)), whole, Mesh((2,))) == Configuration(())


def test_an_undescribed_operator_has_the_redundant_configuration_alone() -> None:
    spec = TensorSpec((8,), "float32")
    whole = derive("NoSuchOperator", [spec], [spec], NO_ATTRIBUTES)
    (only,) = configurations(whole, Mesh((2, 2)))
    assert input_slot(whole, only, 0).forward == Layout.replicated(1)
    assert output_slot(whole, only, 0).forward == Layout.replicated(1)


def test_a_source_splits_along_every_dimension() -> None:
    variable = source("VariableV2", (4, 1, 6))
    found = configurations(variable, Mesh((2,)))
    assert [output_slot(variable, c, 0).forward.dims for c in found] == [
        ((), (), ()),
        ((0,), (), ()),
        ((), (), (0,)),
    ]


def test_other_reducers_and_averages() -> None:
    largest, mean = reduction("Max", (6, 4), 1), reduction("Mean", (6, 4), 1)
    split, rows = Configuration(((), (0, 1))), Configuration(((0,), ()))
    mesh = Mesh((2, 2))
    assert output_slot(largest, split, 0).forward == Layout(((),), (0, 1), "max")
    assert not gradient_is_local(largest, split)
    assert gradient_is_local(largest, rows)
    assert gradient_is_local(mean, split)
    assert rescaling(mean, split, mesh) == Fraction(1, 4)
    assert rescaling(mean, rows, mesh) == 1
    assert rescaling(largest, split, mesh) == 1


def test_words() -> None:
    product, mesh = matmul(8, 8, 8), Mesh((2, 2, 3))
    configuration = Configuration(((0, 1), (), ()))
    assert configuration.describe(product, mesh) == "m/4 redundant 3"
    assert str(configuration) == "(01,-,-)"
    assert Configuration(((), (), ())).describe(product, Mesh(())) == "whole"


@pytest.mark.parametrize("splits", [((0,), (0,)), ((1, 0),), ((0, 0),)])
def test_malformed_configurations(splits: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(LayoutError, match="a mesh axis splits one index at most"):
        Configuration(splits)
