"""Bodies of loops, conditionals and data pipelines, copied from the script's graph.

TensorFlow's gradient of a loop rewrites the loop and its body. Therefore each operator of each rank
and program has a body of its own, copied under a new name.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, MutableMapping, Sequence

import tensorflow as tf

from tensoropt.graph.from_tensorflow import called_functions, function_closure, references
from tensoropt.tensorflow_private import function_def_to_graph

__all__ = ["called_in_place", "copy_functions", "job_seeds", "order_draws", "seed_operator"]

_copies = itertools.count()

Attributes = MutableMapping[str, tf.compat.v1.AttrValue]


def job_seeds(name: str, seed: int) -> tuple[int, int]:
    """Return seeds for an unseeded random operator, from its name and the job's seed."""
    digest = hashlib.sha256(name.encode()).digest()
    return seed, int.from_bytes(digest[:4], "big") >> 1


def seed_operator(attributes: Attributes, name: str, seed: int) -> None:
    """Give an unseeded random operator the job's seed, so that all ranks draw alike."""
    if "seed" not in attributes or "seed2" not in attributes:
        return
    if attributes["seed"].i == 0 and attributes["seed2"].i == 0:
        for key, value in zip(("seed", "seed2"), job_seeds(name, seed), strict=True):
            _set(attributes, key, value)


def order_draws(script: tf.Graph, attributes: Attributes) -> None:
    """Let the iterations of a loop with random operators run one after the other.

    If TensorFlow ran them in parallel, any iteration might draw first, and a random operator has a
    state. So the values would differ between ranks and between runs.
    """
    if "parallel_iterations" not in attributes:
        return
    functions = function_closure(script, called_functions(attributes)).values()
    if any({"seed", "seed2"} <= set(node.attr) for each in functions for node in each.node_def):
        _set(attributes, "parallel_iterations", 1)


def _set(attributes: Attributes, key: str, value: int) -> None:
    """Set an attribute in a dictionary, or in a protocol buffer's map, which forbids assignment."""
    attribute = tf.compat.v1.AttrValue(i=value)
    if isinstance(attributes, dict):
        attributes[key] = attribute
    else:
        attributes[key].CopyFrom(attribute)


def copy_functions(
    script: tf.Graph,
    target: tf.Graph,
    attributes: Mapping[str, tf.compat.v1.AttrValue],
    seed: int,
) -> dict[str, tf.compat.v1.AttrValue]:
    """Copy the functions that an operator calls, and return its attributes with the new names.

    Args:
        script: the script's graph.
        target: the graph into which the functions are copied.
        attributes: the operator's attributes.
        seed: the job's seed, for unseeded random operators in the functions.
    """
    called = called_functions(attributes)
    if not called:
        return dict(attributes)
    number = next(_copies)
    functions = function_closure(script, called)
    renamed = {name: f"{name}_copy{number}" for name in functions}
    definition = tf.compat.v1.GraphDef(versions=script.graph_def_versions)
    for name, new in renamed.items():
        function = definition.library.function.add()
        function.CopyFrom(functions[name])
        function.signature.name = new
        for node in function.node_def:
            node.op = renamed.get(node.op, node.op)
            seed_operator(node.attr, f"{name}/{node.name}", seed)
            order_draws(script, node.attr)
            for reference in references(node.attr):
                reference.name = renamed[reference.name]
    with target.as_default():
        tf.graph_util.import_graph_def(definition, name="")
    copied = {}
    for name, value in attributes.items():
        copied[name] = tf.compat.v1.AttrValue()
        copied[name].CopyFrom(value)
    for reference in references(copied):
        reference.name = renamed[reference.name]
    return copied


def called_in_place(
    target: tf.Graph, name: str, inputs: Sequence[tf.Tensor], called: str
) -> tf.Operation:
    """Emit a function's operators in place of a call, so that TensorFlow can differentiate them.

    The operators have no control dependencies, because a loop among them gets more inputs when
    TensorFlow differentiates it.

    Args:
        target: the default graph, which has the function.
        name: the name of the function.
        inputs: the arguments of the function.
        called: the name of the returned operation.

    Returns:
        An operation with the function's outputs.
    """
    definition = function_closure(target, [name])[name]
    body, flat = function_def_to_graph.function_def_to_graph_def(definition)
    arguments = [each.name for each in definition.signature.input_arg]
    results = [flat[definition.ret[each.name]] for each in definition.signature.output_arg]
    body.ClearField("library")
    by_argument = dict(zip(arguments, inputs, strict=True))
    kept = [node for node in body.node if node.name not in by_argument]
    del body.node[:]
    body.node.extend(kept)
    with target.control_dependencies(None):
        outputs = tf.graph_util.import_graph_def(
            body, input_map=by_argument, return_elements=results, name=f"{called}_body"
        )
    return tf.identity_n(outputs, name=called)[0].op
