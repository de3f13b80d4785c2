"""``python -m reproduction.unity.fused_kernel``: the price of a fused operator beside a kernel.

TensorFlow's `_FusedMatMul` (product, bias, ReLU) and its gradients run in turns with the product
alone and its gradients, on one core. The ratio of both is told beside that of the prices, with a
bias charged as a factor and as the pass over the output that it is. The last line is one JSON
object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import tensorflow as tf

from reproduction.unity.fused import FUSED, FusedPrices
from tensoropt.cost.cluster import load_cluster
from tensoropt.cost.model import ClusterCostModel
from tensoropt.cost.operator_time import OperatorWork

__all__: list[str] = []

_FLOAT = 4  # bytes


def main() -> None:
    """Measure, price, and print both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs=3, type=int, default=(512, 1024, 4096))
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    sizes: tuple[int, int, int] = tuple(options.sizes)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    report = {"sizes": sizes, "measured": _measured(sizes, options.rounds), **_priced(sizes)}
    for name in ("measured", "priced", "priced with the bias as a factor"):
        print(f"fused over product alone, {name}: {report[name]:.3f}")
    print(json.dumps(report))


def _measured(sizes: tuple[int, int, int], rounds: int) -> float:
    """The processor time of the fused operator over that of the product, both with gradients."""
    rows, summed, columns = sizes
    a, b = tf.random.normal([rows, summed]), tf.random.normal([summed, columns])
    bias, above = tf.random.normal([columns]), tf.random.normal([rows, columns])

    def fused() -> Any:
        made = _fused_product(a, b, bias)
        below = tf.raw_ops.ReluGrad(gradients=above, features=made)
        return made, *_gradients(below), tf.raw_ops.BiasAddGrad(out_backprop=below)

    def product() -> Any:
        return tf.matmul(a, b), *_gradients(above)

    def _gradients(below: Any) -> tuple[Any, Any]:
        return tf.matmul(below, b, transpose_b=True), tf.matmul(a, below, transpose_a=True)

    runs = [(tf.function(each), list[float]()) for each in (fused, product)]
    for number in range(rounds + 1):
        for run, own in runs:
            begun = time.process_time()
            run()
            if number:  # the first run traces
                own.append(time.process_time() - begun)
    of_fused, of_product = (statistics.median(own) for _, own in runs)
    return of_fused / of_product


def _fused_product(a: Any, b: Any, bias: Any) -> Any:
    """TensorFlow's fused product, which it makes itself and has no Python function for."""
    value = tf.compat.v1.AttrValue
    names = value.ListValue(s=[b"BiasAdd", b"Relu"])
    attributes = {
        "T": value(type=a.dtype.as_datatype_enum),
        "num_args": value(i=1),
        "fused_ops": value(list=names),
        **dict.fromkeys(("transpose_a", "transpose_b"), value(b=False)),
    }
    graph = tf.compat.v1.get_default_graph()
    inputs = [tf.identity(each) for each in (a, b, bias)]
    made = graph.create_op("_FusedMatMul", inputs, [a.dtype], name="fused", attrs=attributes)
    return made.outputs[0]


def _priced(sizes: tuple[int, int, int]) -> dict[str, float]:
    """The same ratios by the prices of a V100."""
    rows, summed, columns = sizes
    cluster = load_cluster("8-v100")
    mesh = cluster.mesh(1)
    elements = rows * summed + summed * columns + rows * columns
    flops = 2 * rows * summed * columns
    shapes = ((rows, summed), (summed, columns))
    alone = OperatorWork(
        "contraction", "float32", flops, _FLOAT * elements, 2, "MatMul", (), shapes
    )
    fused = OperatorWork(
        "contraction", "float32", flops + 2 * rows * columns, _FLOAT * (elements + columns), 3,
        FUSED, (), (*shapes, (columns,)),
    )  # fmt: skip
    plain = ClusterCostModel(cluster, mesh)
    product = plain.operator_nanoseconds(alone).total
    return {
        "priced": FusedPrices(cluster, mesh).operator_nanoseconds(fused).total / product,
        "priced with the bias as a factor": plain.operator_nanoseconds(fused).total / product,
    }


if __name__ == "__main__":
    main()
