"""The definition of a traced function, made into the definition of a script's graph."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tensoropt.frontend.definitions.nodes import needed_by
from tensoropt.frontend.definitions.own_gradients import has_own_gradient
from tensoropt.graph.from_tensorflow import GRADIENT_ATTRIBUTE, STANDS_FOR, references

__all__ = ["leave_out", "number_functions", "rename", "separate"]


def leave_out(definition: Any, nodes: frozenset[str]) -> None:
    """Remove the control inputs from the part of the step that runs before it."""
    for node in definition.node:
        kept = [source for source in node.input if not (source[0] == "^" and source[1:] in nodes)]
        if len(kept) < len(node.input):
            del node.input[:]
            node.input.extend(kept)


def separate(definition: Any) -> None:
    """Replace each IdentityN by one Identity for each tensor.

    An optimizer of Keras passes all gradients through one IdentityN, with which a plan could not
    split one gradient in another way than the next. An IdentityN with a gradient of its own stays
    if a loss depends on it.
    """
    nodes = {node.name: node for node in definition.node}
    losses = [name for node in definition.node for name in _record(node).get("ys", ())]
    before = needed_by(nodes, losses)
    renamed: dict[str, list[str]] = {}
    for node in [node for node in definition.node if node.op == "IdentityN"]:
        if node.name in before and has_own_gradient(node):
            continue
        types = list(node.attr["T"].list.type)
        controls = [source for source in node.input if source.startswith("^")]
        parts = [f"{node.name}/{number}" for number in range(len(types))]
        for number, (kind, value) in enumerate(zip(types, node.input, strict=False)):
            one = definition.node.add(op="Identity", name=parts[number], input=[value, *controls])
            one.attr["T"].type = kind
            one.attr[STANDS_FOR].s = f"{node.name}:{number}".encode()
        renamed[node.name] = parts
    for node in definition.node:
        inputs: list[str] = []
        for source in node.input:
            name, _, number = source.lstrip("^").partition(":")
            if name not in renamed:
                inputs.append(source)
            elif source.startswith("^"):
                inputs.extend(f"^{part}" for part in renamed[name])
            else:
                inputs.append(renamed[name][int(number or 0)])
        if inputs != list(node.input):
            del node.input[:]
            node.input.extend(inputs)
    for node in [nodes[name] for name in renamed]:
        definition.node.remove(node)


def number_functions(definition: Any, first: int = 0) -> int:
    """Name functions by numbers, because TensorFlow's names of functions differ between ranks.

    Args:
        definition: the GraphDef, changed in place.
        first: the first number.

    Returns:
        The number after the last one.
    """
    known = {item.signature.name: item for item in definition.library.function}
    names: dict[str, str] = {}
    waiting = list(definition.node)[::-1]
    while waiting:
        node = waiting.pop()
        for reference in references(node.attr):
            name = reference.name
            if name in known and name not in names:
                names[name] = f"function_{first + len(names)}"
                waiting += list(known[name].node_def)[::-1]
            reference.name = names.get(name, name)
    for name, function in known.items():
        function.signature.name = names.get(name, name)
    return first + len(names)


def rename(definition: Any, names: Mapping[str, str]) -> None:
    """Replace names of mapped tensors in the records of gradients by those of the new graph."""
    for node in definition.node:
        record = _record(node)
        if not record:
            continue
        record["x"] = names.get(record["x"], record["x"])
        for key in ("ys", "grad_ys", "stop_gradients"):
            record[key] = [names.get(name, name) for name in record[key]]
        node.attr[GRADIENT_ATTRIBUTE].s = json.dumps(record, sort_keys=True).encode()


def _record(node: Any) -> dict[str, Any]:
    """The record of a gradient operator; empty for other operators."""
    record: dict[str, Any] = {}
    if GRADIENT_ATTRIBUTE in node.attr:
        record = json.loads(node.attr[GRADIENT_ATTRIBUTE].s)
    return record
