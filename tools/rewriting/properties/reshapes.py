"""Properties of transposes and reshapes."""

from __future__ import annotations

from collections.abc import Iterator

from tensoropt.rewriting.algebra.typing import MOST_DIMS
from tensoropt.rewriting.operators import POINTWISE
from tools.rewriting.properties.equation import (
    DIMS,
    Property,
    expanded,
    permutations,
    properties_of,
    transposed,
)

__all__ = ["of_reshapes"]

_T = {p: transposed(p) for p in permutations()}
_PAIRS = [(p, q) for p in _T for q in _T if len(p) == len(q)]
_INVERSE = [(p, q) for p, q in _PAIRS if [q[i] for i in p] == list(range(len(p)))]
_KEEP_LAST = [t for p, t in _T.items() if p[-1] == len(p) - 1]
"""Transposes that leave the last dimension where it is."""


def of_reshapes() -> Iterator[Property]:
    """Properties of transposes, then of flattening and unflattening."""
    yield from _of_transposes()
    yield from _of_flattening()


def _of_transposes() -> Iterator[Property]:
    return properties_of(
        {
            "transposes cancel": [f"{_T[p]}({_T[q]}(x)) = x on {_T[q]}(x)" for p, q in _INVERSE],
            "transposes compose": [
                f"{_T[p]}({_T[q]}(x)) = {_T[tuple(q[i] for i in p)]}(x)"
                for p, q in _PAIRS
                if (p, q) not in _INVERSE
            ],
            "functions of elements pass through transpose": expanded(
                "{f}({t}(x)) = {t}({f}(x))", f=POINTWISE, t=_T.values()
            ),
            **{
                f"{op} passes through transpose": expanded(
                    "{op}({t}(x), {t}(y)) = {t}({op}(x, y))", op=[op], t=_T.values()
                )
                for op in ("add", "mul")
            },
            "scale passes through transpose": expanded(
                "scale({t}(x), c) = {t}(scale(x, c))", t=_T.values()
            ),
            "concat passes through transpose": [
                f"{t}(concat[{a}](x, y)) = concat[{p.index(a)}]({t}(x), {t}(y))"
                for p, t in _T.items()
                for a in range(len(p))
            ],
            **{
                f"{op} passes through transpose": expanded(
                    "{op}({t}(x){others}) = {t}({op}(x{others}))",
                    op=[op],
                    t=_KEEP_LAST,
                    others=[others],
                )
                for op, others in (("softmax", ""), ("bias_add", ", b"), ("layer_norm", ", g, b"))
            },
        }
    )


def _of_flattening() -> Iterator[Property]:
    first = DIMS[:-1]
    before_last = [(a, r) for r in range(3, MOST_DIMS + 1) for a in range(r - 2)]
    return properties_of(
        {
            "unflatten undoes flatten": expanded(
                "unflatten[{a}](flatten[{a}](x)) = x on flatten[{a}](x)", a=first
            ),
            "flatten undoes unflatten": expanded(
                "flatten[{a}](unflatten[{a}](x)) = x on unflatten[{a}](x)", a=first
            ),
            "functions of elements pass through flatten": expanded(
                "{f}(flatten[{a}](x)) = flatten[{a}]({f}(x))", f=POINTWISE, a=first
            ),
            **{
                f"{op} passes through flatten": expanded(
                    "{op}(flatten[{a}](x), flatten[{a}](y)) = flatten[{a}]({op}(x, y))",
                    op=[op],
                    a=first,
                )
                for op in ("add", "mul")
            },
            "scale passes through flatten": expanded(
                "scale(flatten[{a}](x), c) = flatten[{a}](scale(x, c))", a=first
            ),
            "concat passes through flatten": [
                f"concat[{b}](flatten[{a}](x), flatten[{a}](y)) = "
                f"flatten[{a}](concat[{b if b < a else b + 1}](x, y))"
                for a in first
                for b in first
                if a != b
            ],
            **{
                f"{op} passes through flatten": [
                    f"{op}(flatten[{a}](x){others}) = flatten[{a}]({op}(x{others})) at x:{rank}"
                    for a, rank in before_last
                ]
                for op, others in (("softmax", ""), ("bias_add", ", b"), ("layer_norm", ", g, b"))
            },
        }
    )
