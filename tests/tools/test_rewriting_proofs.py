"""The package's substitutions are equal in exact arithmetic, and a sample is proven again."""

from __future__ import annotations

import random

import pytest

from tensoropt.rewriting.substitutions import proven
from tensoropt.rewriting.terms import parse
from tools.rewriting.named import NAMED
from tools.rewriting.proofs import prove, recheck
from tools.rewriting.trials import agree

SAMPLE = 40


def test_both_sides_have_equal_values() -> None:
    for each in proven():
        assert agree(each.source, each.target, each.typing, seed=1, trials=1), each.name


def test_a_random_sample_is_proven_again() -> None:
    for each in random.Random(20221107).sample(proven(), SAMPLE):
        assert recheck(each.source, each.target, each.proof, each.typing), each.name


def test_named_substitutions_are_there_and_say_what_they_are() -> None:
    by_name = {each.name: each for each in proven()}
    for name, text in NAMED.items():
        assert str(by_name[name]) == text.partition(" at ")[0]


@pytest.mark.parametrize(
    "text",
    [
        "relu(reduce(x)) = reduce(relu(x))",
        "matmul(x, y) = matmul(y, x)",
        "softmax(x) = combine[3](softmax(partition[3](x)))",
        "softmax(concat[1](x, y)) = concat[1](softmax(x), softmax(y))",
        "mul(reduce(x), reduce(y)) = reduce(mul(x, y))",
        "matmul(x, y) = reduce(matmul(replicate(x), replicate(y)))",
        "batch_norm(x, y, z) = combine[0](batch_norm(partition[0](x), replicate(y), replicate(z)))",
    ],
)
def test_what_is_wrong_is_not_proven(text: str) -> None:
    source, target = map(parse, text.split(" = "))
    assert prove(source, target) is None
