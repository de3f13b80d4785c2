"""Properties of products of matrices, of convolutions and of pools."""

from __future__ import annotations

from collections.abc import Iterator

from tools.rewriting.properties.equation import Property, expanded, properties_of, transposed

__all__ = ["of_images", "of_products"]


def of_products() -> Iterator[Property]:
    """Properties of products of matrices, alone and in batches."""
    swaps = {"matmul": transposed((1, 0)), "batch_matmul": transposed((0, 2, 1))}
    for op, rows, columns in (("matmul", 0, 1), ("batch_matmul", 1, 2)):
        swap = swaps[op]
        yield from properties_of(
            {
                f"{op} associates": f"{op}({op}(x, y), z) = {op}(x, {op}(y, z))",
                f"{op} distributes over add on its right": (
                    f"{op}(x, add(y, z)) = add({op}(x, y), {op}(x, z))"
                ),
                f"{op} distributes over add on its left": (
                    f"{op}(add(x, y), z) = add({op}(x, z), {op}(y, z))"
                ),
                f"scale passes into {op}'s left": f"scale({op}(x, y), c) = {op}(scale(x, c), y)",
                f"scale passes into {op}'s right": f"scale({op}(x, y), c) = {op}(x, scale(y, c))",
                f"{op} of concatenated columns": (
                    f"{op}(x, concat[{columns}](y, z)) = concat[{columns}]({op}(x, y), {op}(x, z))"
                ),
                f"{op} of concatenated rows": (
                    f"{op}(concat[{rows}](x, y), z) = concat[{rows}]({op}(x, z), {op}(y, z))"
                ),
                f"{op} of concatenated summands": (
                    f"{op}(concat[{columns}](x, y), concat[{rows}](z, w)) = "
                    f"add({op}(x, z), {op}(y, w))"
                ),
                f"transpose of {op}": f"{swap}({op}(x, y)) = {op}({swap}(y), {swap}(x))",
            }
        )
    yield from properties_of(
        {
            "batch_matmul of concatenated batches": (
                "batch_matmul(concat[0](x, y), concat[0](z, w)) = "
                "concat[0](batch_matmul(x, z), batch_matmul(y, w))"
            )
        }
    )


def of_images() -> Iterator[Property]:
    """Properties of convolutions, pools and batch normalisation."""
    for op in ("conv", "depthwise_conv"):
        yield from properties_of(
            {
                f"{op} distributes over add of images": (
                    f"{op}(add(x, y), z) = add({op}(x, z), {op}(y, z))"
                ),
                f"{op} distributes over add of filters": (
                    f"{op}(x, add(y, z)) = add({op}(x, y), {op}(x, z))"
                ),
                f"scale passes into {op}'s image": f"scale({op}(x, y), c) = {op}(scale(x, c), y)",
                f"scale passes into {op}'s filters": f"scale({op}(x, y), c) = {op}(x, scale(y, c))",
                f"{op} of concatenated images": (
                    f"{op}(concat[0](x, y), z) = concat[0]({op}(x, z), {op}(y, z))"
                ),
            }
        )
    yield from properties_of(
        {
            "depthwise_conv of concatenated channels": (
                "depthwise_conv(concat[3](x, y), concat[2](z, w)) = "
                "concat[3](depthwise_conv(x, z), depthwise_conv(y, w))"
            ),
            "conv of concatenated filters": (
                "conv(x, concat[3](y, z)) = concat[3](conv(x, y), conv(x, z))"
            ),
            "conv of concatenated summands": (
                "conv(concat[3](x, y), concat[2](z, w)) = add(conv(x, z), conv(y, w))"
            ),
            **{
                f"{op} passes through concat": expanded(
                    "{op}(concat[{a}](x, y)) = concat[{a}]({op}(x), {op}(y))", op=[op], a=(0, 3)
                )
                for op in ("avg_pool", "max_pool")
            },
            "avg_pool distributes over add": "avg_pool(add(x, y)) = add(avg_pool(x), avg_pool(y))",
            "scale passes through avg_pool": "scale(avg_pool(x), c) = avg_pool(scale(x, c))",
            "batch_norm of concatenated channels": (
                "batch_norm(concat[3](x, y), concat[0](g, h), concat[0](b, c)) = "
                "concat[3](batch_norm(x, g, b), batch_norm(y, h, c))"
            ),
        }
    )
