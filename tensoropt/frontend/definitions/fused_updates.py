"""Momentum as Keras writes it, by one kernel of TensorFlow's in place of six.

Keras computes ``m = momentum * m - rate * g; w = w + m`` operator by operator, and goes over the
weight's memory ten times; ``ResourceApplyKerasMomentum`` computes the same in five.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from tensoropt.frontend.definitions.nodes import needed_by, node_of

__all__ = ["fuse_updates"]

_Nodes = Mapping[str, Any]


class _Update(NamedTuple):
    """One that is found.

    Attributes:
        assign: node that sets the momentum.
        add: node that changes the weight; it becomes the kernel.
        read: node that reads the momentum that was set.
        inputs: of the kernel.
        nesterov: whether the weight goes on by the momentum of the next step.
    """

    assign: Any
    add: Any
    read: Any
    inputs: list[str]
    nesterov: bool


def fuse_updates(definition: Any, traced: tf.Graph) -> None:
    """Replace updates by momentum in a graph's definition.

    Args:
        definition: the GraphDef, changed in place; all names stay.
        traced: its graph, which knows shapes.
    """
    nodes = {node.name: node for node in definition.node}
    readers: dict[str, list[Any]] = {}
    for node in definition.node:
        for name in _data(node):
            readers.setdefault(node_of(name), []).append(node)
    adds = [node for node in definition.node if node.op == "AssignAddVariableOp"]
    for node in definition.node:
        found = _momentum(node, adds, nodes, readers, traced)
        if found is not None:
            _replace(found, nodes)


def _momentum(
    assign: Any,
    adds: Iterable[Any],
    nodes: _Nodes,
    readers: Mapping[str, list[Any]],
    traced: tf.Graph,
) -> _Update | None:
    """The update whose momentum a node sets, and one of some others adds; None if there is none."""
    if assign.op != "AssignVariableOp":
        return None
    momentum = assign.input[0]
    first = _next(assign.input[1], nodes, traced)
    if first is None or _read(first.momentum, nodes) != momentum:
        return None
    own = [node_of(name) for name in (assign.input[1], *first.inside, first.momentum)]
    if any(len(readers[name]) != 1 for name in own):
        return None
    for add in (each for each in adds if each.op == "AssignAddVariableOp"):  # not replaced yet
        step = add.input[1]
        after = _next(step, nodes, traced)
        is_nesterov = after is not None and after[:3] == first[:3]
        name = after.momentum if after is not None and is_nesterov else step
        read = nodes[node_of(name)]
        if _read(name, nodes) != momentum or f"^{assign.name}" not in read.input:
            continue
        others = (each for each in add.input if node_of(each) != node_of(step))
        if len(readers[read.name]) == 1 and assign.name not in needed_by(nodes, others):
            inputs = [add.input[0], momentum, first.rate, first.gradient, first.factor]
            return _Update(assign, add, read, inputs, is_nesterov)
    return None


class _Step(NamedTuple):
    """``factor * momentum - gradient * rate``, by the names of tensors."""

    factor: str
    gradient: str
    rate: str
    momentum: str
    inside: tuple[str, str]


def _next(name: str, nodes: _Nodes, traced: tf.Graph) -> _Step | None:
    """What a tensor is, if it is such a step."""
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
    shapes = [traced.get_tensor_by_name(_full(each)).shape for each in (momentum, gradient)]
    if not shapes[0].is_fully_defined() or shapes[0] != shapes[1]:
        return None
    return _Step(factor, gradient, rate, momentum, (kept, taken))


def _read(name: str, nodes: _Nodes) -> str | None:
    """The variable whose value a tensor is."""
    node = nodes[node_of(name)]
    return str(node.input[0]) if node.op == "ReadVariableOp" else None


def _replace(update: _Update, nodes: _Nodes) -> None:
    assign, add = update.assign, update.add
    dtype = assign.attr["dtype"].type
    step = nodes[node_of(add.input[1])]
    waits = [each for node in (assign, add, step) for each in node.input if each[0] == "^"]
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
    return [each for each in node.input if each[0] != "^"]


def _full(name: str) -> str:
    return name if ":" in name else f"{name}:0"
