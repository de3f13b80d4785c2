"""What follows for windows: halos of spatial splits, channels first, groups."""

from __future__ import annotations

import numpy as np
import pytest

from tensoropt.parallel.configuration import configurations
from tensoropt.parallel.mesh import Mesh
from tensoropt.tdl import Derivation, derive
from tensoropt.tdl.ops.neural.windows import windows
from tensoropt.tensor_spec import TensorSpec


def spec(*shape: int) -> TensorSpec:
    return TensorSpec(shape, "float32")


def convolution(
    data: tuple[int, ...], filters: tuple[int, ...], out: tuple[int, ...], **attributes: object
) -> Derivation:
    return derive("Conv2D", [spec(*data), spec(*filters)], [spec(*out)], attributes)


def reason(derivation: Derivation, name: str) -> str:
    return derivation.indices[derivation.index(name)].reason


def test_a_convolution_names_its_halos_and_costs() -> None:
    found = convolution(
        (8, 12, 12, 4), (3, 5, 4, 6), (8, 12, 12, 6), strides=(1, 1, 1, 1), padding="SAME"
    )
    halos = {(found.indices[h.index].name, h.dim): (h.before, h.after) for h in found.halos}
    assert halos == {("y", 1): (1, 1), ("x", 2): (2, 2)}
    assert found.flops == 2 * 8 * 12 * 12 * 6 * 3 * 5 * 4
    assert found.inputs == ((0, 1, 2, 4), (None, None, 4, 3))
    assert [index.name for index in found.indices if index.spelled_out] == ["y", "x"]


def test_strides_and_explicit_paddings_shift_the_halo() -> None:
    strided = convolution(
        (8, 12, 12, 4), (3, 3, 4, 6), (8, 6, 6, 6), strides=(1, 2, 2, 1), padding="SAME"
    )
    assert [(h.before, h.after) for h in strided.halos] == [(0, 1), (0, 1)]
    explicit = convolution(
        (8, 12, 12, 4),
        (3, 3, 4, 6),
        (8, 12, 12, 6),
        strides=(1, 1, 1, 1),
        padding="EXPLICIT",
        explicit_paddings=(0, 0, 2, 0, 1, 1, 0, 0),
    )
    assert [(h.before, h.after) for h in explicit.halos] == [(2, 0), (1, 1)]


def test_windows_that_do_not_overlap_need_no_exchange() -> None:
    def pool(size: int, stride: int) -> Derivation:
        attributes = {"ksize": (1, size, 1, 1), "strides": (1, stride, 1, 1), "padding": "VALID"}
        return derive("MaxPool", [spec(2, 12, 8, 4)], [spec(2, 12 // stride, 8, 4)], attributes)

    def y_of(found: Derivation) -> tuple[bool, bool, int]:
        index = found.indices[found.index("y")]
        return index.splittable, index.spelled_out, len(found.halos)

    assert y_of(pool(2, 2)) == (True, False, 0)  # the kernel does it
    assert y_of(pool(1, 2)) == (True, True, 0)  # a piece's last row is in no window
    assert y_of(pool(1, 1)) == (True, False, 0)


def test_windows_of_uneven_numbers_move_over_the_pieces() -> None:
    found = convolution(
        (8, 28, 28, 4), (5, 5, 4, 6), (8, 24, 24, 6), strides=(1, 1, 1, 1), padding="VALID"
    )
    assert found.inputs[0] == (0, 1, 2, 4)
    assert {config.splits[1] for config in configurations(found, Mesh((7,)))} == {()}
    assert {config.splits[1] for config in configurations(found, Mesh((2,)))} == {(), (0,)}


def test_groups_keep_their_channels_together() -> None:
    found = convolution(
        (8, 5, 5, 6), (3, 3, 2, 6), (8, 5, 5, 6), strides=(1, 1, 1, 1), padding="SAME"
    )
    assert [found.indices[n].name for n in found.splittable] == ["b", "y", "x"]
    assert reason(found, "co") == "its value is used, not only as a subscript"


def test_windows_over_batch_or_channels_are_not_described() -> None:
    found = convolution(
        (8, 6, 6, 4), (3, 3, 4, 6), (4, 6, 6, 6), strides=(2, 1, 1, 1), padding="SAME"
    )
    assert found.indices == ()
    whole = windows((8, 6, 6, 4), (8, 6, 6, 2), (2,), (1, 1, 1, 2), "VALID", data_format="NHWC")
    assert whole is None


@pytest.mark.parametrize("op_type", ["MaxPool", "AvgPool"])
def test_channels_first_is_channels_last_transposed(op_type: str) -> None:
    def pool(shape: tuple[int, ...], out: tuple[int, ...], window: tuple[int, ...], form: str):  # type: ignore[no-untyped-def]
        attributes = {"ksize": window, "strides": window, "padding": "VALID", "data_format": form}
        return derive(op_type, [spec(*shape)], [spec(*out)], attributes)

    last = pool((8, 6, 12, 4), (8, 3, 6, 4), (1, 2, 2, 1), "NHWC")
    first = pool((8, 4, 6, 12), (8, 4, 3, 6), (1, 1, 2, 2), "NCHW")
    order = [0, 3, 1, 2]
    names = [[d.indices[n].name for n in d.inputs[0] if n is not None] for d in (last, first)]
    assert [names[0][n] for n in order] == names[1]
    assert reason(first, "dy") == "the kernel is told its extent"


def test_a_transposed_convolution_costs_as_its_gradient_has_elements() -> None:
    sizes = TensorSpec((4,), "int32", np.array([8, 12, 12, 6], np.int32))
    found = derive(
        "Conv2DBackpropInput",
        [sizes, spec(3, 3, 6, 4), spec(8, 6, 6, 4)],
        [spec(8, 12, 12, 6)],
        {"strides": (1, 2, 2, 1), "padding": "SAME"},
    )
    assert found.flops == 2 * (8 * 6 * 6 * 4) * 3 * 3 * 6
    assert found.halos
