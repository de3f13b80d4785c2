"""Reshape's splits at many shapes, against NumPy: pieces reshaped are pieces of the reshaped."""

from __future__ import annotations

from math import prod

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tensoropt.parallel.configuration import configurations, input_slot, output_slot
from tensoropt.parallel.mesh import Mesh
from tensoropt.tdl import Derivation, derive
from tensoropt.tensor_spec import TensorSpec


def reshape(source: tuple[int, ...], target: tuple[int, ...]) -> Derivation:
    inputs = [TensorSpec(source, "float32"), TensorSpec((len(target),), "int32")]
    return derive("Reshape", inputs, [TensorSpec(target, "float32")], {})


@st.composite
def shapes(draw: st.DrawFn) -> tuple[int, ...]:
    """A shape of 36 elements in some order of the factors, with ones in between."""
    factors = draw(st.permutations([1, 1, 2, 2, 3, 3]))
    cuts = sorted(draw(st.lists(st.integers(0, 6), max_size=4)))
    ends = zip([0, *cuts], [*cuts, 6], strict=True)
    return tuple(prod(factors[a:b]) for a, b in ends)


@settings(max_examples=50, deadline=None)
@given(shapes(), shapes())
def test_pieces_of_a_reshape(source: tuple[int, ...], target: tuple[int, ...]) -> None:
    derivation = reshape(source, target)
    x = np.arange(36).reshape(source)
    for mesh in (Mesh((2, 3)), Mesh((3, 2)), Mesh((2, 2))):
        for configuration in configurations(derivation, mesh):
            taken = input_slot(derivation, configuration, 0).forward
            given_back = output_slot(derivation, configuration, 0).forward
            for rank in mesh:
                piece = x[taken.region(source, mesh, rank)]
                local = given_back.local_shape(target, mesh)
                expected = x.reshape(target)[given_back.region(target, mesh, rank)]
                np.testing.assert_array_equal(piece.reshape(local), expected)


def test_a_dimension_that_stays_is_split_wherever_it_goes() -> None:
    derivation = reshape((4, 6, 10), (4, 60))
    assert derivation.inputs[0] == (0, 1, None)
    assert derivation.outputs[0] == (0, 1)
    derivation = reshape((8, 12), (8, 3, 4))
    assert derivation.inputs[0] == (0, 1)
    assert derivation.indices[2].reason == "its halves overlap in input 0 dimension 1"


def test_an_empty_tensor_is_whole() -> None:
    assert reshape((0, 4), (4, 0)).indices == ()
