"""Substitutions that only parallelize are configurations and reshardings of our space."""

from __future__ import annotations

import pytest

from tensoropt.rewriting.algebra.typing import infer
from tensoropt.rewriting.substitutions import Input, Substitution, kind_of, proven
from tensoropt.rewriting.terms import parse
from tools.rewriting.coverage import Covered, Uncovered, cover


def test_every_one_is_covered_but_for_two_kinds() -> None:
    """What every device has, added to what each has of its own, is no tensor of which these are
    shares; and of a batch normalisation with shares of its scale, statistics would be none."""
    parallel = [each for each in proven() if each.kind == "parallel"]
    assert parallel
    found = [cover(each) for each in parallel]
    rest = [each for each in found if isinstance(each, Uncovered)]
    assert len(rest) < len(found) / 50
    for each in rest:
        assert each.reason.startswith("no configuration"), each
        assert each.term.operator in ("add", "bias_add", "batch_norm"), each
        if each.term.operator != "batch_norm":
            assert not {"reduce", "combine"} & _operators(each.substitution), each


def _operators(substitution: Substitution) -> set[str]:
    terms = substitution.source, substitution.target
    return {each.operator for term in terms for each in term.subterms()}


def _substitution(text: str) -> Substitution:
    source, target = map(parse, text.split(" = "))
    typing = infer(source, target)
    types = {name: typing.input(name) for name in source.inputs}
    inputs = tuple(Input(name, len(found.dims), *found.placement) for name, found in types.items())
    return Substitution(text, kind_of(source, target), source, target, inputs, ("any",))


@pytest.mark.parametrize(
    ("text", "configurations", "steps"),
    [
        ("matmul(x, y) = reduce(matmul(partition[1](x), partition[0](y)))", "MatMul(-,-,0)", 3),
        ("matmul(x, y) = combine[0](matmul(partition[0](x), replicate(y)))", "MatMul(0,-,-)", 2),
        ("softmax(x) = combine[0](softmax(partition[0](x)))", "Softmax(0,-,-)", 2),
        (
            "embedding(x, y) = reduce(embedding(partition[0](x), replicate(y)))",
            "GatherV2(-,-,0)",
            2,
        ),
        ("matmul(x, y) = batch[0](matmul(pipeline[0](x), y))", "MatMul(1,-,-)", 2),
    ],
)
def test_which_configuration_and_how_many_steps(text: str, configurations: str, steps: int) -> None:
    found = cover(_substitution(text))
    assert isinstance(found, Covered)
    assert "".join(f"{op}{c}" for op, c in found.target.configurations) == configurations
    assert sum(map(len, found.target.reshardings)) == steps


@pytest.mark.parametrize(
    ("text", "configuration"),
    [
        ("add(reduce(x), reduce(y)) = reduce(add(x, y))", "(-,-,0)"),
        ("matmul(reduce(x), y) = reduce(matmul(x, replicate(y)))", "(-,-,-,0,-)"),
    ],
)
def test_linear_operators_read_partial_sums(text: str, configuration: str) -> None:
    found = cover(_substitution(text))
    assert isinstance(found, Covered)
    assert [str(each) for _, each in found.target.configurations] == [configuration]
