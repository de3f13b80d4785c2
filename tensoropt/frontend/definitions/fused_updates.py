"""Momentum updates as Keras writes them, replaced by one kernel of TensorFlow in place of six.

Keras computes ``m = momentum * m - rate * g; w = w + m`` with one kernel per operator, which reads
or writes the weight's memory ten times; ``ResourceApplyKerasMomentum`` needs five times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from tensoropt.frontend.definitions.nodes import needed_by, node_of

__all__ = ["fuse_updates"]

_Nodes = Mapping[str, Any]


class _Update(NamedTuple):
    """The nodes of one update.

    Attributes:
        assign: the node that sets the momentum.
        add: the node that changes the weight; it becomes the kernel.
        read: the node that reads the new momentum.
        inputs: inputs of the kernel.
        nesterov: whether the weight changes by the momentum of the following step.
    """

    assign: Any
    add: Any
    read: Any
    inputs: list[str]
    nesterov: bool


def fuse_updates(definition: Any, traced: tf.Graph) -> None:
    """Replace momentum updates in a graph's definition.

    Args:
        definition: the GraphDef, changed in place; all names stay.
        traced: its graph, which has the shapes.
    """
    nodes = {node.name: node for node in definition.node}
    readers: dict[str, list[Any]] = {}
    for node in definition.node:
        for name in _data(node):
            readers.setdefault(node_of(name), []).append(node)
    adds = [node for node in definition.node if node.op == "AssignAddVariableOp"]
    for node in definition.node:
        update = _momentum(node, adds, nodes, readers, traced)
        if update is not None:
            _replace(update, nodes)


def _momentum(
    assign: Any,
    adds: Iterable[Any],
    nodes: _Nodes,
    readers: Mapping[str, list[Any]],
    traced: tf.Graph,
) -> _Update | None:
    """The update of the momentum that a node sets and an addition reads; None if there is none."""
    if assign.op != "AssignVariableOp":
        return None
    momentum = assign.input[0]
    first = _next(assign.input[1], nodes, traced)
    if first is None or _read(first.momentum, nodes) != momentum:
        return None
    between = [node_of(name) for name in (assign.input[1], *first.inside, first.momentum)]
    if any(len(readers[name]) != 1 for name in between):
        return None
    for add in (node for node in adds if node.op == "AssignAddVariableOp"):  # not replaced yet
        step = add.input[1]
        after = _next(step, nodes, traced)
        is_nesterov = after is not None and after[:3] == first[:3]
        name = after.momentum if after is not None and is_nesterov else step
        read = nodes[node_of(name)]
        if _read(name, nodes) != momentum or f"^{assign.name}" not in read.input:
            continue
        further = (name for name in add.input if node_of(name) != node_of(step))
        if len(readers[read.name]) == 1 and assign.name not in needed_by(nodes, further):
            inputs = [add.input[0], momentum, first.rate, first.gradient, first.factor]
            return _Update(assign, add, read, inputs, is_nesterov)
    return None


class _Step(NamedTuple):
    """The names of the tensors of ``factor * momentum - gradient * rate``."""

    factor: str
    gradient: str
    rate: str
    momentum: str
    inside: tuple[str, str]


def _next(name: str, nodes: _Nodes, traced: tf.Graph) -> _Step | None:
    """The step that a tensor computes; None if it computes anything else."""
    node = nodes[node_of(name)]
    if node.op != "Sub":
        return None
    kept, taken = _data(node)
    pairs = []
    for product in (kept, taken):
        multiplied = nodes[node_of(product)]
        if multiplied.op != "Mul":
            return None
        whole, scalar = _data(multiplied)
        if traced.get_tensor_by_name(_full(whole)).shape.rank == 0:
            whole, scalar = scalar, whole
        if traced.get_tensor_by_name(_full(scalar)).shape.rank != 0:
            return None
        pairs.append((whole, scalar))
    (momentum, factor), (gradient, rate) = pairs
    shapes = [traced.get_tensor_by_name(_full(name)).shape for name in (momentum, gradient)]
    if not shapes[0].is_fully_defined() or shapes[0] != shapes[1]:
        return None
    return _Step(factor, gradient, rate, momentum, (kept, taken))


def _read(name: str, nodes: _Nodes) -> str | None:
    """The variable whose value a tensor is; None if it is not a variable's value."""
    node = nodes[node_of(name)]
    return str(node.input[0]) if node.op == "ReadVariableOp" else None


def _replace(update: _Update, nodes: _Nodes) -> None:
    assign, add = update.assign, update.add
    dtype = assign.attr["dtype"].type
    step = nodes[node_of(add.input[1])]
    waits = [source for node in (assign, add, step) for source in node.input if source[0] == "^"]
    waits = sorted(set(waits) - {f"^{assign.name}", f"^{update.read.name}"})
    _set(add, "ResourceApplyKerasMomentum", [*update.inputs, *waits])
    add.attr["T"].type = dtype
    add.attr["use_nesterov"].b = update.nesterov
    _set(assign, "NoOp", [f"^{add.name}"])


def _set(node: Any, kind: str, inputs: Iterable[str]) -> None:
    node.op = kind
    node.attr.clear()
    del node.input[:]
    node.input.extend(inputs)


def _data(node: Any) -> list[str]:
    return [source for source in node.input if source[0] != "^"]


def _full(name: str) -> str:
    return name if ":" in name else f"{name}:0"
