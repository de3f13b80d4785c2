"""Megatron-LM's strategy for a layer of BERT (Unity's Figure 10), found by the search.

Heads and the hidden width are split: the first product of a pair by columns, the second by rows.
This takes two all-reduces of the layer's values forward and two backward. With one sequence of 128
tokens, there is no batch to split, and weights are larger than values.
"""

from __future__ import annotations

from typing import Any

import tensoropt as tf
from reproduction.unity.elements import PRODUCTS, least_elements
from reproduction.unity.models import bert_layer
from tensoropt.graph.from_tensorflow import import_graph

__all__ = ["figure_10"]

WIDTH, HEADS, LENGTH = 1024, 16, 128
_NAMES = {"MatMul": ("rows", "columns", "summands"), "BatchMatMulV2": ("batch", "heads", *"mnk")}
_MEGATRON = {"q": "columns", "k": "columns", "v": "columns", "mixed": "summands"} | {
    "first": "columns",
    "second": "summands",
}


def figure_10() -> dict[str, Any]:
    """The communicated elements, the index by which each product is split, and whether this is
    Megatron-LM's strategy."""
    script = tf.Graph()
    with script.as_default():
        values = tf.placeholder(tf.float32, [LENGTH, WIDTH], name="values")
        upstream = tf.placeholder(tf.float32, [LENGTH, WIDTH], name="gradient")
        start = tf.get_variable("start", [WIDTH])  # the layer's input has a gradient, too
        made = bert_layer(values + start, WIDTH, HEADS, LENGTH)
        train = tf.train.GradientDescentOptimizer(0.01).minimize(tf.reduce_sum(made * upstream))
        graph = import_graph(script, [train.name], {})
    elements, configurations = least_elements(graph)
    split = {}
    for operator in graph:
        if operator.type in PRODUCTS:
            axes = configurations[operator.name].splits
            index = next(number for number, own in enumerate(axes) if own)
            split[operator.name.removesuffix("/MatMul")] = _NAMES[operator.type][index]
    attention = {by for name, by in split.items() if name not in _MEGATRON}
    return {
        "elements": elements,
        "all_reduces": 4 * 2 * LENGTH * WIDTH,
        "split": split,
        "is_megatron": attention == {"heads"}
        and all(split[name] == by for name, by in _MEGATRON.items()),
    }
