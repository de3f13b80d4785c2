"""Every property holds for random tensors of random sizes, degrees and ranks that fit."""

from collections import Counter

from tensoropt.rewriting.algebra.properties.catalogue import properties
from tensoropt.rewriting.algebra.trials import agree
from tensoropt.rewriting.algebra.typing import infer


def test_every_equation_holds_in_exact_arithmetic() -> None:
    wrong = []
    for each in properties():
        assert each.equations, each.name
        for n, equation in enumerate(each.equations):
            typing = infer(equation.left, equation.right, ranks=dict(equation.ranks))
            if not agree(equation.left, equation.right, typing, seed=n):
                wrong.append(f"{each.name}: {equation}")
    assert not wrong, wrong


def test_names_are_unique_and_there_are_enough() -> None:
    names = Counter(each.name for each in properties())
    assert max(names.values()) == 1
    assert sum(not each.parallel for each in properties()) >= 33
    assert sum(each.parallel for each in properties()) >= 33
