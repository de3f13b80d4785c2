"""Properties of operators on elements, and of what is joined."""

from __future__ import annotations

from collections.abc import Iterator

from tensoropt.rewriting.operators import POINTWISE
from tools.rewriting.properties.equation import DIMS, PAIRS, Property, property_of

__all__ = ["of_concatenations", "of_elements"]


def of_elements() -> Iterator[Property]:
    yield property_of("add commutes", "x + y = y + x.", ["add(x, y) = add(y, x)"])
    yield property_of(
        "add associates", "(x + y) + z = x + (y + z).", ["add(add(x, y), z) = add(x, add(y, z))"]
    )
    yield property_of("mul commutes", "x * y = y * x.", ["mul(x, y) = mul(y, x)"])
    yield property_of(
        "mul associates", "(x * y) * z = x * (y * z).", ["mul(mul(x, y), z) = mul(x, mul(y, z))"]
    )
    yield property_of(
        "mul distributes over add",
        "x * (y + z) = x * y + x * z.",
        ["mul(x, add(y, z)) = add(mul(x, y), mul(x, z))"],
    )
    yield property_of(
        "scale associates",
        "(x c) d = x (c d) for numbers c and d.",
        ["scale(scale(x, c), d) = scale(x, mul(c, d))"],
    )
    yield property_of(
        "scale distributes over add",
        "(x + y) c = x c + y c.",
        ["scale(add(x, y), c) = add(scale(x, c), scale(y, c))"],
    )
    yield property_of(
        "scale passes through mul",
        "(x * y) c = (x c) * y.",
        ["scale(mul(x, y), c) = mul(scale(x, c), y)"],
    )
    yield property_of(
        "bias_add passes through add",
        "(x + y) + b = (x + b) + y, b along the last dimension.",
        ["bias_add(add(x, y), b) = add(bias_add(x, b), y)"],
    )
    yield property_of(
        "bias_add associates",
        "(x + b) + c = x + (b + c), both along the last dimension.",
        ["bias_add(bias_add(x, b), c) = bias_add(x, add(b, c))"],
    )
    yield property_of(
        "bias_add passes into layer_norm",
        "A bias is added to the normalisation's own.",
        ["bias_add(layer_norm(x, g, b), c) = layer_norm(x, g, add(b, c))"],
    )
    yield property_of(
        "bias_add passes into batch_norm",
        "A bias is added to the normalisation's own.",
        ["bias_add(batch_norm(x, g, b), c) = batch_norm(x, g, add(b, c))"],
    )
    yield property_of(
        "scale distributes over bias_add",
        "(x + b) c = x c + b c.",
        ["scale(bias_add(x, b), c) = bias_add(scale(x, c), scale(b, c))"],
    )


def of_concatenations() -> Iterator[Property]:
    yield property_of(
        "the first part of a concatenation",
        "The first part of x and y joined is x.",
        [f"split[{a},0](concat[{a}](x, y)) = x on concat[{a}](x, y)" for a in DIMS],
    )
    yield property_of(
        "the second part of a concatenation",
        "The second part of x and y joined is y.",
        [f"split[{a},1](concat[{a}](x, y)) = y on concat[{a}](x, y)" for a in DIMS],
    )
    yield property_of(
        "the parts concatenated",
        "The two parts of x joined are x.",
        [
            f"concat[{a}](split[{a},0](x), split[{a},1](x)) = x on "
            f"split[{a},0](x) on split[{a},1](x)"
            for a in DIMS
        ],
    )
    yield property_of(
        "concatenations interchange",
        "Concatenating rows and then columns is concatenating columns and then rows.",
        [
            f"concat[{a}](concat[{b}](x, y), concat[{b}](z, w)) = "
            f"concat[{b}](concat[{a}](x, z), concat[{a}](y, w))"
            for a, b in PAIRS
        ],
    )
    yield property_of(
        "splits interchange",
        "A part of rows and a part of columns are taken in either order.",
        [
            f"split[{a},{i}](split[{b},{j}](x)) = split[{b},{j}](split[{a},{i}](x))"
            for a, b in PAIRS
            for i in range(2)
            for j in range(2)
        ],
    )
    yield property_of(
        "functions of elements pass through concat",
        "f([x, y]) = [f(x), f(y)].",
        [f"{f}(concat[{a}](x, y)) = concat[{a}]({f}(x), {f}(y))" for f in POINTWISE for a in DIMS],
    )
    for op in ("add", "mul"):
        yield property_of(
            f"{op} passes through concat",
            f"{op} of concatenations is the concatenation of what {op} gives of their parts.",
            [
                f"{op}(concat[{a}](x, y), concat[{a}](z, w)) = concat[{a}]({op}(x, z), {op}(y, w))"
                for a in DIMS
            ],
        )
    yield property_of(
        "scale passes through concat",
        "[x, y] c = [x c, y c].",
        [f"scale(concat[{a}](x, y), c) = concat[{a}](scale(x, c), scale(y, c))" for a in DIMS],
    )
    yield property_of(
        "bias_add of concatenated columns",
        "A bias joined as the columns are is added to each part.",
        [
            f"bias_add(concat[{a}](x, y), concat[0](b, c)) = "
            f"concat[{a}](bias_add(x, b), bias_add(y, c))"
            for a in DIMS[1:]
        ],
    )
    yield property_of(
        "bias_add of concatenated rows",
        "A bias is added to each part.",
        [
            f"bias_add(concat[{a}](x, y), b) = concat[{a}](bias_add(x, b), bias_add(y, b))"
            for a in DIMS[:-1]
        ],
    )
    yield property_of(
        "softmax of concatenated rows",
        "Softmax is of each row, the last dimension.",
        [
            f"softmax(concat[{a}](x, y)) = concat[{a}](softmax(x), softmax(y)) at x:{rank}"
            for rank in DIMS[2:]
            for a in range(rank - 1)
        ],
    )
    yield property_of(
        "layer_norm of concatenated rows",
        "Layer normalisation is of each row, the last dimension.",
        [
            f"layer_norm(concat[{a}](x, y), g, b) = "
            f"concat[{a}](layer_norm(x, g, b), layer_norm(y, g, b))"
            for a in DIMS[:-1]
        ],
    )
