"""Properties of operators on elements, and of concatenations."""

from __future__ import annotations

from collections.abc import Iterator

from tensoropt.rewriting.operators import POINTWISE
from tools.rewriting.properties.equation import DIMS, PAIRS, Property, expanded, properties_of

__all__ = ["of_concatenations", "of_elements"]


def of_elements() -> Iterator[Property]:
    """Properties of operators on elements. A bias lies along the last dimension."""
    return properties_of(
        {
            "add commutes": "add(x, y) = add(y, x)",
            "add associates": "add(add(x, y), z) = add(x, add(y, z))",
            "mul commutes": "mul(x, y) = mul(y, x)",
            "mul associates": "mul(mul(x, y), z) = mul(x, mul(y, z))",
            "mul distributes over add": "mul(x, add(y, z)) = add(mul(x, y), mul(x, z))",
            "scale associates": "scale(scale(x, c), d) = scale(x, mul(c, d))",
            "scale distributes over add": "scale(add(x, y), c) = add(scale(x, c), scale(y, c))",
            "scale passes through mul": "scale(mul(x, y), c) = mul(scale(x, c), y)",
            "bias_add passes through add": "bias_add(add(x, y), b) = add(bias_add(x, b), y)",
            "bias_add associates": "bias_add(bias_add(x, b), c) = bias_add(x, add(b, c))",
            "bias_add passes into layer_norm": (
                "bias_add(layer_norm(x, g, b), c) = layer_norm(x, g, add(b, c))"
            ),
            "bias_add passes into batch_norm": (
                "bias_add(batch_norm(x, g, b), c) = batch_norm(x, g, add(b, c))"
            ),
            "scale distributes over bias_add": (
                "scale(bias_add(x, b), c) = bias_add(scale(x, c), scale(b, c))"
            ),
        }
    )


def of_concatenations() -> Iterator[Property]:
    """Properties of concatenations and splits; softmax and layer_norm act on the last dimension."""
    yield from properties_of(
        {
            "the first part of a concatenation": expanded(
                "split[{a},0](concat[{a}](x, y)) = x on concat[{a}](x, y)", a=DIMS
            ),
            "the second part of a concatenation": expanded(
                "split[{a},1](concat[{a}](x, y)) = y on concat[{a}](x, y)", a=DIMS
            ),
            "the parts concatenated": expanded(
                "concat[{a}](split[{a},0](x), split[{a},1](x)) = x"
                " on split[{a},0](x) on split[{a},1](x)",
                a=DIMS,
            ),
            "concatenations interchange": [
                f"concat[{a}](concat[{b}](x, y), concat[{b}](z, w)) = "
                f"concat[{b}](concat[{a}](x, z), concat[{a}](y, w))"
                for a, b in PAIRS
            ],
            "splits interchange": [
                f"split[{a},{i}](split[{b},{j}](x)) = split[{b},{j}](split[{a},{i}](x))"
                for a, b in PAIRS
                for i in range(2)
                for j in range(2)
            ],
        }
    )
    yield from properties_of(_of_functions())


def _of_functions() -> dict[str, list[str]]:
    """The equations of functions of concatenations, by the names of the properties."""
    return {
        "functions of elements pass through concat": expanded(
            "{f}(concat[{a}](x, y)) = concat[{a}]({f}(x), {f}(y))", f=POINTWISE, a=DIMS
        ),
        **{
            f"{op} passes through concat": expanded(
                "{op}(concat[{a}](x, y), concat[{a}](z, w)) = concat[{a}]({op}(x, z), {op}(y, w))",
                op=[op],
                a=DIMS,
            )
            for op in ("add", "mul")
        },
        "scale passes through concat": expanded(
            "scale(concat[{a}](x, y), c) = concat[{a}](scale(x, c), scale(y, c))", a=DIMS
        ),
        "bias_add of concatenated columns": expanded(
            "bias_add(concat[{a}](x, y), concat[0](b, c)) = "
            "concat[{a}](bias_add(x, b), bias_add(y, c))",
            a=DIMS[1:],
        ),
        "bias_add of concatenated rows": expanded(
            "bias_add(concat[{a}](x, y), b) = concat[{a}](bias_add(x, b), bias_add(y, b))",
            a=DIMS[:-1],
        ),
        "softmax of concatenated rows": [
            f"softmax(concat[{a}](x, y)) = concat[{a}](softmax(x), softmax(y)) at x:{rank}"
            for rank in DIMS[2:]
            for a in range(rank - 1)
        ],
        "layer_norm of concatenated rows": expanded(
            "layer_norm(concat[{a}](x, y), g, b) = "
            "concat[{a}](layer_norm(x, g, b), layer_norm(y, g, b))",
            a=DIMS[:-1],
        ),
    }
