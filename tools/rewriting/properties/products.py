"""Properties of products of matrices, and of convolutions and pools."""

from __future__ import annotations

from collections.abc import Iterator

from tools.rewriting.properties.equation import Property, property_of, transposed

__all__ = ["of_images", "of_products"]


def of_products() -> Iterator[Property]:
    for op, first, rows, columns in (("matmul", 0, 0, 1), ("batch_matmul", 1, 1, 2)):
        yield property_of(
            f"{op} associates",
            "(x y) z = x (y z).",
            [f"{op}({op}(x, y), z) = {op}(x, {op}(y, z))"],
        )
        yield property_of(
            f"{op} distributes over add on its right",
            "x (y + z) = x y + x z.",
            [f"{op}(x, add(y, z)) = add({op}(x, y), {op}(x, z))"],
        )
        yield property_of(
            f"{op} distributes over add on its left",
            "(x + y) z = x z + y z.",
            [f"{op}(add(x, y), z) = add({op}(x, z), {op}(y, z))"],
        )
        yield property_of(
            f"scale passes into {op}'s left",
            "(x y) c = (x c) y.",
            [f"scale({op}(x, y), c) = {op}(scale(x, c), y)"],
        )
        yield property_of(
            f"scale passes into {op}'s right",
            "(x y) c = x (y c).",
            [f"scale({op}(x, y), c) = {op}(x, scale(y, c))"],
        )
        yield property_of(
            f"{op} of concatenated columns",
            "Columns of the right factor are columns of the product.",
            [f"{op}(x, concat[{columns}](y, z)) = concat[{columns}]({op}(x, y), {op}(x, z))"],
        )
        yield property_of(
            f"{op} of concatenated rows",
            "Rows of the left factor are rows of the product.",
            [f"{op}(concat[{rows}](x, y), z) = concat[{rows}]({op}(x, z), {op}(y, z))"],
        )
        yield property_of(
            f"{op} of concatenated summands",
            "Products of parts of what is summed over add up.",
            [f"{op}(concat[{columns}](x, y), concat[{rows}](z, w)) = add({op}(x, z), {op}(y, w))"],
        )
        swap = transposed((1, 0)) if first == 0 else transposed((0, 2, 1))
        yield property_of(
            f"transpose of {op}",
            "The transpose of a product is the product of the transposes, the other way round.",
            [f"{swap}({op}(x, y)) = {op}({swap}(y), {swap}(x))"],
        )
    yield property_of(
        "batch_matmul of concatenated batches",
        "Matrices of a batch are multiplied one by one.",
        [
            "batch_matmul(concat[0](x, y), concat[0](z, w)) = "
            "concat[0](batch_matmul(x, z), batch_matmul(y, w))"
        ],
    )


def of_images() -> Iterator[Property]:
    for op, channels in (("conv", None), ("depthwise_conv", 2)):
        yield property_of(
            f"{op} distributes over add of images",
            f"{op} is linear in the image.",
            [f"{op}(add(x, y), z) = add({op}(x, z), {op}(y, z))"],
        )
        yield property_of(
            f"{op} distributes over add of filters",
            f"{op} is linear in the filters.",
            [f"{op}(x, add(y, z)) = add({op}(x, y), {op}(x, z))"],
        )
        yield property_of(
            f"scale passes into {op}'s image",
            f"{op} is linear in the image.",
            [f"scale({op}(x, y), c) = {op}(scale(x, c), y)"],
        )
        yield property_of(
            f"scale passes into {op}'s filters",
            f"{op} is linear in the filters.",
            [f"scale({op}(x, y), c) = {op}(x, scale(y, c))"],
        )
        yield property_of(
            f"{op} of concatenated images",
            "Images of a batch are convolved one by one.",
            [f"{op}(concat[0](x, y), z) = concat[0]({op}(x, z), {op}(y, z))"],
        )
        if channels is not None:
            yield property_of(
                f"{op} of concatenated channels",
                "Each channel has its own filter.",
                [
                    f"{op}(concat[3](x, y), concat[{channels}](z, w)) = "
                    f"concat[3]({op}(x, z), {op}(y, w))"
                ],
            )
    yield property_of(
        "conv of concatenated filters",
        "Filters joined are channels of the output joined.",
        ["conv(x, concat[3](y, z)) = concat[3](conv(x, y), conv(x, z))"],
    )
    yield property_of(
        "conv of concatenated summands",
        "Convolutions of parts of the channels add up.",
        ["conv(concat[3](x, y), concat[2](z, w)) = add(conv(x, z), conv(y, w))"],
    )
    for op in ("avg_pool", "max_pool"):
        yield property_of(
            f"{op} passes through concat",
            "Pools are of each image and channel.",
            [f"{op}(concat[{a}](x, y)) = concat[{a}]({op}(x), {op}(y))" for a in (0, 3)],
        )
    yield property_of(
        "avg_pool distributes over add",
        "An average is linear.",
        ["avg_pool(add(x, y)) = add(avg_pool(x), avg_pool(y))"],
    )
    yield property_of(
        "scale passes through avg_pool",
        "An average is linear.",
        ["scale(avg_pool(x), c) = avg_pool(scale(x, c))"],
    )
    yield property_of(
        "batch_norm of concatenated channels",
        "Statistics are of each channel.",
        [
            "batch_norm(concat[3](x, y), concat[0](g, h), concat[0](b, c)) = "
            "concat[3](batch_norm(x, g, b), batch_norm(y, h, c))"
        ],
    )
