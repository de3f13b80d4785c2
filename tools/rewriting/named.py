"""Substitutions with names of their own; the generator finds the other ones and names them."""

from __future__ import annotations

__all__ = ["NAMED"]


def _merged(product: str, dim: int) -> str:
    joined = f"{product}(x, concat[{dim}](y, z))"
    return (
        f"tuple({product}(x, y), {product}(x, z)) = "
        f"tuple(split[{dim},0]({joined}), split[{dim},1]({joined}))"
    )


NAMED: dict[str, str] = {
    # Fewer, larger operators, and the reverse.
    "matmuls of one input merged": _merged("matmul", 1),
    "batch_matmuls of one input merged": _merged("batch_matmul", 2),
    "convolutions of one input merged": _merged("conv", 3),
    "lookups of the same rows merged": (
        "tuple(embedding(x, z), embedding(y, z)) = tuple("
        "split[1,0](embedding(concat[1](x, y), z)), split[1,1](embedding(concat[1](x, y), z)))"
    ),
    "lookups in one table merged": (
        "tuple(embedding(x, y), embedding(x, z)) = tuple("
        "split[0,0](embedding(x, concat[0](y, z))), split[0,1](embedding(x, concat[0](y, z))))"
    ),
    "matmuls of one weight merged": (
        "tuple(matmul(x, z), matmul(y, z)) = "
        "tuple(split[0,0](matmul(concat[0](x, y), z)), split[0,1](matmul(concat[0](x, y), z)))"
    ),
    "a sum of matmuls as one": (
        "add(matmul(x, y), matmul(z, w)) = matmul(concat[1](x, z), concat[0](y, w))"
    ),
    "a sum of convolutions as one": (
        "add(conv(x, y), conv(z, w)) = conv(concat[3](x, z), concat[2](y, w))"
    ),
    # The reader of a concatenation reads its parts.
    "matmul of a concatenation as a sum": (
        "matmul(concat[1](x, y), z) = add(matmul(x, split[0,0](z)), matmul(y, split[0,1](z)))"
    ),
    "batch_matmul of a concatenation as a sum": (
        "batch_matmul(concat[2](x, y), z) = "
        "add(batch_matmul(x, split[1,0](z)), batch_matmul(y, split[1,1](z)))"
    ),
    "convolution of a concatenation as a sum": (
        "conv(concat[3](x, y), z) = add(conv(x, split[2,0](z)), conv(y, split[2,1](z)))"
    ),
    "depthwise convolution of a concatenation": (
        "depthwise_conv(concat[3](x, y), z) = "
        "concat[3](depthwise_conv(x, split[2,0](z)), depthwise_conv(y, split[2,1](z)))"
    ),
    # Operators that cancel.
    "split of a concatenation, first": "split[0,0](concat[0](x, y)) = x",
    "split of a concatenation, second": "split[0,1](concat[0](x, y)) = y",
    "split of joined columns, first": "split[1,0](concat[1](x, y)) = x",
    "split of joined columns, second": "split[1,1](concat[1](x, y)) = y",
    "concatenation of a split": "concat[0](split[0,0](x), split[0,1](x)) = x",
    "concatenation of split columns": "concat[1](split[1,0](x), split[1,1](x)) = x",
    # Associativity and distributivity.
    "matmul associates": "matmul(matmul(x, y), z) = matmul(x, matmul(y, z))",
    "batch_matmul associates": (
        "batch_matmul(batch_matmul(x, y), z) = batch_matmul(x, batch_matmul(y, z))"
    ),
    "matmul distributes over add, right": "matmul(x, add(y, z)) = add(matmul(x, y), matmul(x, z))",
    "matmul distributes over add, left": "matmul(add(x, y), z) = add(matmul(x, z), matmul(y, z))",
    # Figure 11: spatial parallelism of functions; Add as Concat and Reduce.
    "relu of shards of rows": "relu(x) = combine[0](relu(partition[0](x)))",
    "relu of shards of columns": "relu(x) = combine[1](relu(partition[1](x)))",
    "add as concat and reduce": "add(x, y) = reduce(shards(x, y))",
    # Figures 9 and 10, and 2: a product in four ways.
    "matmul of shards of rows": "matmul(x, y) = combine[0](matmul(partition[0](x), replicate(y)))",
    "matmul of shards of columns": (
        "matmul(x, y) = combine[1](matmul(replicate(x), partition[1](y)))"
    ),
    "matmul of shards of summands": (
        "matmul(x, y) = reduce(matmul(partition[1](x), partition[0](y)))"
    ),
    "matmul in microbatches": "matmul(x, y) = batch[0](matmul(pipeline[0](x), y))",
    "batch_matmul of shards of the batch": (
        "batch_matmul(x, y) = combine[0](batch_matmul(partition[0](x), partition[0](y)))"
    ),
    "batch_matmul of shards of summands": (
        "batch_matmul(x, y) = reduce(batch_matmul(partition[2](x), partition[1](y)))"
    ),
    "batch_matmul in microbatches": (
        "batch_matmul(x, y) = batch[0](batch_matmul(pipeline[0](x), pipeline[0](y)))"
    ),
    "softmax of shards of rows": "softmax(x) = combine[0](softmax(partition[0](x)))",
    "add of shards of rows": "add(x, y) = combine[0](add(partition[0](x), partition[0](y)))",
    "add of shards of columns": "add(x, y) = combine[1](add(partition[1](x), partition[1](y)))",
    "bias_add of shards of columns": (
        "bias_add(x, y) = combine[1](bias_add(partition[1](x), partition[0](y)))"
    ),
    "partition of a combined tensor, rows": "partition[0](combine[0](x)) = x",
    "partition of a combined tensor, columns": "partition[1](combine[1](x)) = x",
    "a sum of partial sums": "add(reduce(x), reduce(y)) = reduce(add(x, y))",
    # Figure 10: heads of attention, from the columns of a product to the batch of the next.
    "unflatten of shards of heads": "unflatten[1](combine[1](x)) = combine[1](unflatten[1](x))",
    "flatten of shards of heads": "flatten[1](combine[1](x)) = combine[1](flatten[1](x))",
    "transpose of shards of heads": (
        "transpose[1,0,2](combine[1](x)) = combine[0](transpose[1,0,2](x))"
    ),
    "transpose back of shards of heads": (
        "transpose[1,0,2](combine[0](x)) = combine[1](transpose[1,0,2](x))"
    ),
    "transpose within shards of heads": (
        "transpose[0,2,1](combine[0](x)) = combine[0](transpose[0,2,1](x))"
    ),
    "batch_matmul within shards of heads": (
        "batch_matmul(combine[0](x), combine[0](y)) = combine[0](batch_matmul(x, y))"
    ),
    "softmax within shards of heads": "softmax(combine[0](x)) = combine[0](softmax(x)) at x:3",
    "scale within shards of heads": (
        "scale(combine[0](x), y) = combine[0](scale(x, replicate(y))) at x:3"
    ),
    "matmul of partial sums": "matmul(reduce(x), y) = reduce(matmul(x, replicate(y)))",
}
"""For each name the two sides, and ranks that the sides do not determine and that are not 2. The
source is the side that scripts may have."""
