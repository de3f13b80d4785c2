"""Operators keep tensors for the backward pass, or make them again."""

from __future__ import annotations

import pytest

from tensoropt.errors import LayoutError
from tensoropt.graph.operator import GRADIENT, GradientTag, Graph, Operator, TensorName
from tensoropt.parallel.configuration import KEPT, Configuration
from tensoropt.parallel.keeping import Keeping, differentiates_gradients, recomputable
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import Strategy
from tensoropt.tensor_spec import TensorSpec

ROWS = TensorSpec((16, 16), "float32")
ROW_SPLIT, COLUMN_SPLIT, WHOLE = ((0,), ()), ((), (0,)), ((), ())


def operator(name: str, kind: str, *inputs: Operator, **fields: object) -> Operator:
    return Operator(
        name=name,
        type=kind,
        inputs=tuple(TensorName(each.name, 0) for each in inputs),
        input_specs=tuple(each.outputs[0] for each in inputs),
        outputs=(ROWS,),
        **fields,  # type: ignore[arg-type]
    )


X = operator("x", "Placeholder")
EXP = operator("exp", "Exp", X)
VIEW = operator("view", "Identity", EXP)
TANH = operator("tanh", "Tanh", VIEW)
GRAPH = Graph({each.name: each for each in (X, EXP, VIEW, TANH)})


def keeping(**planned: Configuration) -> Keeping:
    return Keeping(Strategy(GRAPH, Mesh((2,)), planned, frozenset()))


def gradient(name: str, of: str, by: str, call: int) -> Operator:
    tag = GradientTag(call, "dense", (TensorName(of, 0),), TensorName(by, 0), (None,), (), ())
    return operator(name, GRADIENT, gradient=tag)


def test_everything_is_kept_unless_a_configuration_says_otherwise() -> None:
    kept = keeping(exp=Configuration(ROW_SPLIT), tanh=Configuration(COLUMN_SPLIT))
    assert not kept.active
    assert not kept.is_recomputed("exp")
    assert not kept.read_again(TANH, 0)


def test_views_of_what_is_computed_again_come_again() -> None:
    kept = keeping(exp=Configuration(WHOLE, "recomputed"))
    assert kept.is_recomputed("exp")
    assert kept.is_recomputed("view")
    assert kept.read_again(VIEW, 0)
    assert kept.read_again(TANH, 0)
    assert not kept.is_recomputed("tanh")


def test_a_copy_behind_a_view_is_kept_with_the_view() -> None:
    kept = keeping(
        exp=Configuration(ROW_SPLIT, "recomputed"),
        view=Configuration(ROW_SPLIT),
        tanh=Configuration(COLUMN_SPLIT),
    )
    assert kept.moved(TANH, 0)
    assert not kept.read_again(TANH, 0)


def test_only_what_is_resharded_is_resharded_again() -> None:
    split = {"exp": Configuration(ROW_SPLIT, "before"), "view": Configuration(COLUMN_SPLIT)}
    kept = keeping(**split, tanh=Configuration(COLUMN_SPLIT))
    assert kept.read_again(VIEW, 0)
    assert kept.read_again(TANH, 0)  # it is the copy's memory
    assert not keeping(exp=Configuration(WHOLE, "before")).read_again(VIEW, 0)


def test_a_tensor_comes_back_from_its_copy() -> None:
    split = {"exp": Configuration(ROW_SPLIT, "after"), "view": Configuration(COLUMN_SPLIT)}
    kept = keeping(**split)
    assert kept.returned_from(TensorName("exp", 0)) == (VIEW, 0)
    assert keeping(exp=Configuration(WHOLE, "after")).returned_from(TensorName("exp", 0)) is None


def test_what_draws_or_holds_is_not_computed_again() -> None:
    assert recomputable(EXP)
    assert not recomputable(X)
    assert not recomputable(VIEW)
    assert not recomputable(operator("drawn", "RandomStandardNormal"))
    assert not recomputable(operator("unknown", "NobodyDescribedThis", X))
    assert not keeping(x=Configuration(WHOLE, "recomputed")).is_recomputed("x")


def test_gradients_of_gradients_keep_everything() -> None:
    first = gradient("first", "tanh", "x", 0)
    used = operator("used", "Square", first)
    again = gradient("again", "used", "x", 1)
    once = {each.name: each for each in (X, EXP, VIEW, TANH, first, used)}
    assert not differentiates_gradients(Graph(once))
    twice = Graph({**once, "again": again})
    assert differentiates_gradients(twice)
    planned = {"exp": Configuration(WHOLE, "recomputed")}
    assert not Keeping(Strategy(twice, Mesh(()), planned)).is_recomputed("exp")


def test_configurations_say_what_is_kept() -> None:
    assert [str(Configuration(ROW_SPLIT, kept)) for kept in KEPT] == [
        "(0,-)",
        "(0,-) before",
        "(0,-) after",
        "(0,-) recomputed",
    ]
    with pytest.raises(LayoutError, match="Got 'nothing'"):
        Configuration(ROW_SPLIT, "nothing")
