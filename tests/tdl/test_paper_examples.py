"""The descriptions of Tofu's Figures 1 and 3, and what section 4.2 says of them."""

from __future__ import annotations

from typing import Any

import pytest

from tensoropt.errors import DescriptionError
from tensoropt.parallel.configuration import configurations
from tensoropt.parallel.mesh import Mesh
from tensoropt.tdl import Halo, Registry
from tensoropt.tdl.expression import Opaque, Operand, Sum
from tensoropt.tensor_spec import TensorSpec


def spec(*shape: int) -> TensorSpec:
    return TensorSpec(shape, "float32")


def conv1d(data: Operand, filters: Operand) -> Any:
    return lambda b, co, x: Sum(lambda ci, dx: data[b, ci, x + dx] * filters[ci, co, dx])


def shift_two(a: Operand) -> Any:
    return lambda i: a[i + 2]


def batch_cholesky(batch_mat: Operand) -> Any:
    cholesky = Opaque("Cholesky")
    return lambda b, i, j: cholesky(batch_mat[b, :, :])[i, j]


@pytest.fixture
def registry() -> Registry:
    registry = Registry()
    for function in (conv1d, shift_two, batch_cholesky):
        registry.describe(function.__name__)(function)
    return registry


def test_conv1d(registry: Registry) -> None:
    derivation = registry.derive("conv1d", [spec(4, 6, 10), spec(6, 8, 3)], [spec(4, 8, 8)], {})
    assert [(i.name, i.extent, i.reducer, i.splittable) for i in derivation.indices] == [
        ("b", 4, None, True),
        ("co", 8, None, True),
        ("x", 8, None, False),
        ("ci", 6, "sum", True),
        ("dx", 3, "sum", False),
    ]
    assert derivation.inputs == ((0, 3, None), (3, 1, None))
    assert derivation.outputs == ((0, 1, None),)
    assert derivation.halos == (Halo(index=2, input=0, dim=2, before=0, after=2),)
    assert derivation.indices[2].reason == "halo of 2 on input 0 dimension 2"
    assert derivation.indices[4].reason == "its halves overlap in input 0 dimension 2"
    assert derivation.flops == 2 * 4 * 8 * 8 * 6 * 3


def test_extent_of_an_affine_access_is_solved_for(registry: Registry) -> None:
    registry.describe("window")(lambda a: lambda x: Sum(lambda dx: a[2 * x + dx]))
    derivation = registry.derive("window", [spec(11)], [spec(4)], {})
    assert derivation.indices[1].extent == 5
    assert derivation.halos == (Halo(index=0, input=0, dim=0, before=0, after=3),)


def test_same_padding_reads_both_neighbours(registry: Registry) -> None:
    registry.describe("same")(lambda a, w: lambda x: Sum(lambda dx: a.padded[x + dx - 1] * w[dx]))
    derivation = registry.derive("same", [spec(8), spec(3)], [spec(8)], {})
    assert derivation.halos == (Halo(index=0, input=0, dim=0, before=1, after=1),)


def test_shift_two(registry: Registry) -> None:
    derivation = registry.derive("shift_two", [spec(12)], [spec(10)], {})
    assert derivation.halos == (Halo(index=0, input=0, dim=0, before=0, after=2),)
    assert derivation.splittable == ()


def test_batch_cholesky(registry: Registry) -> None:
    derivation = registry.derive("batch_cholesky", [spec(4, 5, 5)], [spec(4, 5, 5)], {})
    assert derivation.inputs == ((0, None, None),)
    assert derivation.outputs == ((0, None, None),)
    assert [i.reason for i in derivation.indices] == ["", *["read whole by opaque Cholesky"] * 2]


def test_configurations_follow_the_description() -> None:
    mesh = Mesh((2, 2))
    inputs, outputs = [spec(4, 8), spec(8, 4)], [spec(4, 4)]

    def count(description: Any) -> int:
        registry = Registry()
        registry.describe("Product")(description)
        return len(configurations(registry.derive("Product", inputs, outputs, {}), mesh))

    assert count(lambda a, b: lambda m, n: Sum(lambda k: a[m, k] * b[k, n])) == 4**2
    assert count(lambda a, b: lambda m, n: Opaque("Dot")(a[m, :], b[:, n])) == 3**2
    assert count(lambda a, b: lambda m, n: Opaque("Product")(a[m, :], b[:, :])[n]) == 2**2
    assert count(lambda a, b: lambda m, n: Opaque("Product")(a[:, :], b[:, :])[m, n]) == 1


def test_an_input_split_on_two_dimensions_by_one_index_is_refused(registry: Registry) -> None:
    registry.describe("diagonal")(lambda a: lambda i: a[i, i])
    derivation = registry.derive("diagonal", [spec(4, 4)], [spec(4)], {})
    assert derivation.indices[0].reason == "subscripts dimensions 0 and 1 of input 0"


@pytest.mark.parametrize(
    ("description", "shape", "rule"),
    [
        (lambda a: lambda i, j: a[i * j], (4, 4), "a product of two index ranges"),
        (lambda a: lambda i, j: a[i < j], (4, 4), "a comparison of two index ranges"),
        (lambda a: lambda i: a[a[i]], (4,), "a subscript is made of indices and numbers"),
        (lambda a: lambda i: a[i + 1], (10,), "elements are read inside the operand"),
        (lambda a: lambda i: Sum(lambda k: a[i]), (4,), "the extent of a reduction index"),
        (lambda a: lambda i: Sum(lambda i: a[i]), (4,), "a reduction names indices of its own"),
        (lambda a: lambda i: a[:], (4,), "only an opaque function takes a slice"),
        (lambda a: lambda i: a[i, i], (4,), "an element has one subscript per dimension"),
        (lambda a: lambda i, j: a[i], (4,), "one index per dimension"),
        (lambda a: lambda i: a[i] if a[i] > 0 else 0, (4,), "no truth value"),
        (lambda a: lambda i: a.value[0], (4,), "reads the value of constant operands only"),
        (lambda a: (lambda i: a[i], lambda i: a[i]), (4,), "one lambda per output"),
    ],
)
def test_malformed_descriptions_say_what_is_wrong(
    description: Any, shape: tuple[int, ...], rule: str
) -> None:
    registry = Registry()
    registry.describe("Wrong")(description)
    with pytest.raises(DescriptionError, match=f"{rule}.*Describing Wrong"):
        registry.derive("Wrong", [spec(10)], [spec(*shape)], {})


@pytest.mark.parametrize(
    ("description", "reason"),
    [
        (lambda a: lambda i: a[i] * i, "its value is used, not only as a subscript"),
        (lambda a: lambda i: a[7 - i], "runs backwards over input 0 dimension 0"),
        (lambda a: lambda i: a[i] + Sum(lambda k: a[k]), "also read by other indices"),
        (lambda a: lambda i: a[0], "indexes no input"),
        (lambda a: lambda i: a[i] + Opaque("F")(a[:]), "read whole by opaque F"),
    ],
)
def test_output_indices_that_cannot_be_split(description: Any, reason: str) -> None:
    registry = Registry()
    registry.describe("Op")(description)
    index = registry.derive("Op", [spec(8)], [spec(8)], {}).indices[0]
    assert not index.splittable
    assert index.reason.endswith(reason)


@pytest.mark.parametrize(
    ("description", "splittable"),
    [
        (lambda a, c: lambda i: Sum(lambda k: a[i, k]), True),
        (lambda a, c: lambda i: -Sum(lambda k: a[i, k]) * 3 / c[i], True),
        (lambda a, c: lambda i: Sum(lambda k: a[i, k]) - Sum(lambda k: 2 * a[i, k]), True),
        (lambda a, c: lambda i: Sum(lambda k: a[i, k]) + c[i], False),
        (lambda a, c: lambda i: 1 / Sum(lambda k: a[i, k]), False),
        (lambda a, c: lambda i: Sum(lambda k: a[i, k]) * Sum(lambda k: a[i, k]), False),
        (lambda a, c: lambda i: Opaque("Sqrt")(Sum(lambda k: a[i, k])), False),
    ],
)
def test_what_commutes_with_a_sum(description: Any, splittable: bool) -> None:
    registry = Registry()
    registry.describe("Op")(description)
    derivation = registry.derive("Op", [spec(4, 6), spec(4)], [spec(4)], {})
    assert derivation.indices[1].splittable is splittable
    if not splittable:
        assert derivation.indices[1].reason == "not the outermost reduction of output 0"
