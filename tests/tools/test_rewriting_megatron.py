"""Megatron-LM's strategy as a sequence of proven substitutions (Unity, Figure 10)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tensoropt.rewriting.substitutions import proven
from tensoropt.rewriting.terms import INPUT, Term, parse
from tools.rewriting.proofs import prove

SUBSTITUTIONS = {each.name: each for each in proven()}


def _match(pattern: Term, term: Term, named: dict[str, Term]) -> bool:
    if pattern.operator == INPUT:
        return named.setdefault(pattern.name, term) == term
    same = (pattern.operator, pattern.parameters) == (term.operator, term.parameters)
    return same and all(
        _match(a, b, named) for a, b in zip(pattern.arguments, term.arguments, strict=True)
    )


def _rewrites(term: Term, name: str) -> Iterator[Term]:
    """What the substitution makes of the term, at each place where its source is."""
    substitution = SUBSTITUTIONS[name]
    for place in term.subterms():
        named: dict[str, Term] = {}
        if place.operator != INPUT and _match(substitution.source, place, named):
            inputs = {Term.input(name): other for name, other in named.items()}
            yield term.replaced({place: substitution.target.replaced(inputs)})


def _derives(start: str, sequence: Sequence[str], end: str) -> bool:
    """Whether the sequence, each somewhere, makes the one of the other."""
    terms = {parse(start)}
    for name in sequence:
        terms = {found for term in terms for found in _rewrites(term, name)}
    return parse(end) in terms


def test_the_mlp() -> None:
    """The first product of shards of columns, the second of shards of summands: one sum."""
    start = "matmul(relu(matmul(x, y)), z)"
    end = "reduce(matmul(relu(matmul(replicate(x), partition[1](y))), partition[0](z)))"
    sequence = (
        "matmul of shards of columns",
        "relu of shards of columns",
        "partition of a combined tensor, columns",
        "matmul of shards of summands",
        "partition of a combined tensor, columns",
    )
    assert _derives(start, sequence, end)
    assert prove(parse(start), parse(end)) is not None


def _heads(product: str) -> str:
    return f"transpose[1,0,2](unflatten[1]({product}))"


def test_attention() -> None:
    """Each device has some heads, from the columns of the projections to the rows of the last."""
    q, k, v = (f"matmul(x, {w})" for w in ("q", "k", "v"))

    def attention(q: str, k: str, v: str) -> str:
        scores = f"batch_matmul({_heads(q)}, transpose[0,2,1]({_heads(k)}))"
        context = f"batch_matmul(softmax({scores}), {_heads(v)})"
        return f"flatten[1](transpose[1,0,2]({context}))"

    start = f"matmul({attention(q, k, v)}, o)"
    q, k, v = (f"matmul(replicate(x), partition[1]({w}))" for w in ("q", "k", "v"))
    end = f"reduce(matmul({attention(q, k, v)}, partition[0](o)))"
    sequence = (
        *["matmul of shards of columns"] * 3,
        *["unflatten of shards of heads"] * 3,
        *["transpose of shards of heads"] * 3,
        "transpose within shards of heads",
        "batch_matmul within shards of heads",
        "softmax within shards of heads",
        "batch_matmul within shards of heads",
        "transpose back of shards of heads",
        "flatten of shards of heads",
        "matmul of shards of summands",
        "partition of a combined tensor, columns",
    )
    assert _derives(start, sequence, end)
