"""The file of substitutions: read strictly, equal in exact arithmetic, proven again by sample."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tensoropt.errors import PlanError
from tensoropt.rewriting.algebra.proofs import prove, recheck
from tensoropt.rewriting.algebra.trials import agree
from tensoropt.rewriting.named import NAMED
from tensoropt.rewriting.substitutions import Substitution, read, verified, write
from tensoropt.rewriting.terms import parse

SAMPLE = 40


def test_both_sides_have_equal_values() -> None:
    for each in verified():
        assert agree(each.source, each.target, each.typing, seed=1, trials=1), each.name


def test_a_random_sample_is_proven_again() -> None:
    for each in random.Random(20221107).sample(verified(), SAMPLE):
        assert recheck(each.source, each.target, each.proof, each.typing), each.name


def test_named_substitutions_are_there_and_say_what_they_are() -> None:
    by_name = {each.name: each for each in verified()}
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


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    some = [each for each in verified() if each.reversed() is not None][:3]
    write(tmp_path / "some.json", some)
    assert read(tmp_path / "some.json") == tuple(some)
    for each in some:
        back = each.reversed()
        assert back is not None
        assert back.reversed() == each


def _first() -> Substitution:
    return verified()[0]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"schema": 1', '"schema": 2', "1 was expected"),
        ('"algebraic"', '"parallel"', "which is not parallel"),
        ('"name": "x",', '"name": "q",', "whose inputs are others"),
        ("{", "[", "JSON"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "damaged.json"
    write(path, [_first()])
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(PlanError, match=message):
        read(path)
