"""Registering, looking up and deriving."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensoropt.errors import DescriptionError
from tensoropt.tdl import (
    OperatorType,
    Piece,
    Registry,
    derive,
    described,
    lookup,
    replicated,
    source,
)
from tensoropt.tdl.expression import Operand, Sum
from tensoropt.tensor_spec import TensorSpec

MATRIX = TensorSpec((6, 4), "float32")


def test_a_second_description_names_both_places() -> None:
    registry = Registry()
    registry.describe("Copy")(lambda a: lambda i: a[i])
    with pytest.raises(DescriptionError, match=r"second one of Copy at .*:\d+; .* at .*:\d+"):
        registry.describe("Other", "Copy")(lambda a: lambda i: a[i])


def test_a_fact_is_stated_once_and_an_unknown_type_has_none() -> None:
    registry = Registry()
    registry.describe("Copy")(lambda a: lambda i: a[i])
    registry.record("Copy", "Turn", facts=OperatorType(view="first"))
    registry.record("Copy", facts=OperatorType(in_line=True))
    assert registry.described() == ("Copy",)
    copy = registry.operator_type("Copy")
    assert (copy.view, copy.in_line) == ("first", True)
    assert copy.description is registry.lookup("Copy")
    assert registry.types_with(view="first") == {"Copy", "Turn"}
    assert registry.types_with(view="first", in_line=True) == {"Copy"}
    assert registry.operator_type("NoSuchOperator") == OperatorType()
    with pytest.raises(DescriptionError, match="view of Turn a second time: 'each', at first 'fi"):
        registry.record("Turn", facts=OperatorType(view="each"))


def test_a_miss_lists_near_names() -> None:
    with pytest.raises(DescriptionError, match=r"Got 'MatMull'. Near names: MatMul"):
        lookup("MatMull")


def test_described_types_are_sorted() -> None:
    assert list(described()) == sorted(described())
    assert {"AddV2", "MatMul", "Mean", "Reshape", "ResourceApplyAdam"} <= set(described())


def test_metadata() -> None:
    assert lookup("Sum").constant_operands == (1,)
    assert lookup("ApplyAdam").mutates == (0, 1, 2)
    assert lookup("ResourceApplyMomentum").mutates == (0, 1)
    assert lookup("MatMul").mutates == ()
    assert lookup("MatMul").local is None


def test_a_piece_is_told_its_shape_and_what_to_squeeze() -> None:
    spec = TensorSpec((1, 4, 1), "float32")

    def local(op_type: str, attributes: dict[str, Any]) -> Any:
        function = lookup(op_type).local
        assert function is not None
        return function(Piece([spec], attributes, ((1, 2, 1),), ((2,),)))

    assert local("Reshape", {}) == {1: (2,)}
    assert local("Squeeze", {"squeeze_dims": []}) == {"squeeze_dims": [0, 2]}
    assert local("Squeeze", {"squeeze_dims": [-1]}) == {"squeeze_dims": [2]}


def test_negative_constant_operands_count_from_the_last() -> None:
    registry = Registry()
    registry.describe("Op", constant_operands=(-1, 3))(lambda *a: lambda i: a[0][i])
    assert registry.lookup("Op").constants(3) == (2,)


def test_an_unknown_type_is_replicated() -> None:
    found = derive("NoSuchOperator", [MATRIX], [MATRIX], {})
    assert found == replicated("NoSuchOperator", [MATRIX], [MATRIX])
    assert found.indices == ()
    assert found.inputs == found.outputs == ((None, None),)


def test_an_unknown_constant_is_replicated() -> None:
    axis = TensorSpec((), "int32")
    out = TensorSpec((4,), "float32")
    assert derive("Sum", [MATRIX, axis], [out], {}) == replicated("Sum", [MATRIX, axis], [out])


def test_constants_and_attributes_are_part_of_the_cache_key() -> None:
    def axis(n: int) -> TensorSpec:
        return TensorSpec((1,), "int32", np.array([n], np.int32))

    square = TensorSpec((6, 6), "float32")
    out = TensorSpec((6,), "float32")
    rows, columns = (derive("Sum", [square, axis(n)], [out], {}) for n in (0, 1))
    assert rows.inputs[0] == (1, 0)
    assert columns.inputs[0] == (0, 1)
    assert derive("Sum", [square, axis(0)], [out], {}) is rows
    plain, transposed = (
        derive("MatMul", [square, square], [square], {"transpose_a": flag, "transpose_b": False})
        for flag in (False, True)
    )
    assert plain.inputs[0] == (0, 2)
    assert transposed.inputs[0] == (2, 0)


def test_only_named_attributes_reach_a_description() -> None:
    seen: list[dict[str, Any]] = []

    def copy(a: Operand, *, mode: str, sizes: tuple[int, ...] = ()) -> Any:
        seen.append({"mode": mode, "sizes": sizes})
        return lambda i, j: a[i, j]

    registry = Registry()
    registry.describe("Copy")(copy)
    attributes = {"mode": b"fast", "sizes": [1, 2], "T": "float32"}
    registry.derive("Copy", [MATRIX], [MATRIX], attributes)
    assert seen == [{"mode": "fast", "sizes": (1, 2)}]
    with pytest.raises(DescriptionError, match="needs the attribute mode"):
        registry.derive("Copy", [MATRIX], [MATRIX], {"T": "float32"})


def test_a_source_has_an_index_per_dimension() -> None:
    found = source("Placeholder", (4, 1))
    assert [(i.extent, i.splittable, i.reason) for i in found.indices] == [
        (4, True, ""),
        (1, False, "extent 1"),
    ]
    assert found.inputs == ()
    assert found.outputs == ((0, None),)


def test_an_output_without_a_description_keeps_the_operator_whole() -> None:
    registry = Registry()
    registry.describe("Op")(lambda a: (lambda i, j: a[i, j], None))
    found = registry.derive("Op", [MATRIX], [MATRIX, MATRIX], {})
    assert [index.reason for index in found.indices] == ["output 1 is not described"] * 2


def test_equal_names_in_several_outputs_are_one_index() -> None:
    registry = Registry()
    registry.describe("Op")(lambda a: (lambda i, j: a[i, j], lambda i: Sum(lambda k: a[i, k])))
    found = registry.derive("Op", [MATRIX], [MATRIX, TensorSpec((6,), "float32")], {})
    assert [(i.name, i.reason) for i in found.indices] == [
        ("i", ""),
        ("j", "input 0 dimension 1 is also read by other indices"),
        ("k", "not the outermost reduction of output 0"),
    ]
    assert found.outputs == ((0, None), (0,))


def test_flops() -> None:
    product = derive(
        "MatMul", [MATRIX, TensorSpec((4, 5), "float32")], [TensorSpec((6, 5), "f")], {}
    )
    assert product.flops == 2 * 6 * 4 * 5
    assert derive("Identity", [MATRIX], [MATRIX], {}).flops == 0
    assert derive("Softmax", [MATRIX], [MATRIX], {}).flops == 5 * 24
    assert (
        derive(
            "ApplyMomentum",
            [*[MATRIX] * 2, TensorSpec((), "float32"), MATRIX, TensorSpec((), "float32")],
            [MATRIX],
            {},
        ).flops
        == 4 * 24
    )


def test_a_variable_of_another_shape_may_be_assigned() -> None:
    found = derive(
        "Assign", [MATRIX, TensorSpec((3,), "float32")], [TensorSpec((3,), "float32")], {}
    )
    assert found.indices == ()


def test_an_integer_mean_is_no_sum_of_local_means() -> None:
    axis = TensorSpec((), "int32", np.array(0, np.int32))
    matrix, row = TensorSpec((6, 4), "int32"), TensorSpec((4,), "int32")
    found = derive("Mean", [matrix, axis], [row], {})
    assert found.indices[found.index("k0")].reason == "not the outermost reduction of output 0"
    matrix, row = TensorSpec((6, 4), "float32"), TensorSpec((4,), "float32")
    index = derive("Mean", [matrix, axis], [row], {}).indices[1]
    assert (index.splittable, index.averaged, index.reducer) == (True, True, "sum")
