"""Terms read back as they print, count what they share once, and say what is no term."""

import copy

import pytest

from tensoropt.errors import GraphError
from tensoropt.rewriting.terms import parse


@pytest.mark.parametrize(
    "text", ["x", "relu(x)", "split[0,-1](concat[1](x, matmul(x, w)))", "add(x, x)"]
)
def test_a_term_reads_back_as_it_prints(text: str) -> None:
    assert str(parse(text)) == text


def test_what_is_shared_counts_once() -> None:
    term = parse("add(matmul(x, w), matmul(x, w))")
    assert term.size == 2
    assert term.inputs == ("x", "w")
    assert [str(each) for each in term.subterms()] == ["x", "w", "matmul(x, w)", str(term)]


@pytest.mark.parametrize(
    "text", ["", "relu(", "relu(x))", "concat[](x)", "concat[0", "X", "f(x,)", "x[0]", "1"]
)
def test_what_is_no_term_is_an_error(text: str) -> None:
    with pytest.raises(GraphError, match="a term is an input"):
        parse(text)


def test_a_term_is_found_in_another_process() -> None:
    term = parse("add(relu(x), y)")
    assert hash(term)
    assert not vars(copy.copy(term)).keys() & {"_hash", "inputs"}
