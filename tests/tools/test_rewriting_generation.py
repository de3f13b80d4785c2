"""The generator finds what is known, leaves out instances, and says nothing that is wrong."""

from __future__ import annotations

from tensoropt.rewriting.algebra.typing import COPIES, WHOLE
from tensoropt.rewriting.operators import OPERATORS, PARALLEL, POINTWISE
from tools.rewriting.alphabets import ALPHABETS
from tools.rewriting.candidates import (
    Alphabet,
    InputKind,
    candidates,
    without_instances,
)

PRODUCTS = Alphabet(
    "products",
    (InputKind(("x", "y", "z"), (4, 4)),),
    (("matmul", ()), ("add", ()), ("concat", (1,)), ("split", (1, 0)), ("split", (1, 1))),
    3,
)


def _texts(alphabet: Alphabet) -> list[str]:
    found, terms = candidates(alphabet)
    assert terms > len(found)
    return [f"{each.source} = {each.target}" for each in without_instances(found)]


def test_products_that_share_an_input_are_merged() -> None:
    texts = _texts(PRODUCTS)
    joined = "matmul(x, concat[1](y, z))"
    merged = f"tuple(split[1,0]({joined}), split[1,1]({joined}))"
    assert f"tuple(matmul(x, y), matmul(x, z)) = {merged}" in texts
    assert "split[1,0](concat[1](x, y)) = x" in texts
    assert any("add(matmul" in text for text in texts)
    assert len(set(texts)) == len(texts)


def test_what_has_a_common_subgraph_or_is_an_instance_is_left_out() -> None:
    texts = _texts(PRODUCTS)
    assert "add(x, y) = add(y, x)" in texts
    assert "add(matmul(x, y), z) = add(z, matmul(x, y))" not in texts
    assert "matmul(x, matmul(y, y)) = matmul(matmul(x, y), y)" not in texts


def test_sums_of_what_devices_have_are_found() -> None:
    alphabet = Alphabet(
        "sums",
        (InputKind(("p", "q"), (4, 4), (COPIES, WHOLE)), InputKind(("x",), (4, 4))),
        (("add", ()), ("reduce", ()), ("replicate", ()), ("matmul", ()), ("relu", ())),
        4,
        1,
    )
    texts = _texts(alphabet)
    assert any(t in texts for t in ("reduce(add(x, y)) = add(reduce(x), reduce(y))",))
    assert not [t for t in texts if t.startswith("relu(reduce(x)) =")]


def test_all_operators_are_in_some_alphabet() -> None:
    used = {operator for each in ALPHABETS for operator, _ in each.operators}
    assert used == {*OPERATORS, *PARALLEL} - set(POINTWISE[1:])
    assert len(used - set(PARALLEL)) >= 16
