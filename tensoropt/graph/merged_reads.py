"""Reads of one variable with no change between them, as one.

TensorFlow makes a read of a resource variable wherever a script uses it: an unrolled layer has one
for every step. What is shared by readers (a resharding, a sum of gradients) is shared per tensor.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import replace

from tensoropt.graph.operator import Operator, TensorName

__all__ = ["merge_reads"]


def merge_reads(operators: Mapping[str, Operator], roots: Collection[str]) -> dict[str, Operator]:
    """The same operators with one read for all that have the same handle and control inputs.

    A read has no data input but the handle, so what runs before it is in its control inputs. A
    change that lies between two reads is before the second alone, and keeps them apart. The reads
    that a script names (to run, or to differentiate by) stay, and so do those that the importer has
    made for lookups of rows, which may read the variable itself.

    Args:
        operators: in topological order, by name.
        roots: names of the operators to run.
    """
    named = {*roots, *(name for operator in operators.values() for name in _in_tag(operator))}
    first: dict[Hashable, str] = {}
    stands_for: dict[str, str] = {}
    found: dict[str, Operator] = {}
    for name, operator in operators.items():
        is_read = operator.type == "ReadVariableOp" and not operator.synthetic
        own = _renamed(operator, stands_for) if stands_for else operator
        if is_read and name not in named:
            key = own.inputs, own.outputs[0].dtype, frozenset(own.control_inputs)
            if first.setdefault(key, name) != name:
                stands_for[name] = first[key]
                continue
        found[name] = own
    return found


def _in_tag(operator: Operator) -> list[str]:
    tag = operator.gradient
    if tag is None:
        return []
    tensors = (*tag.ys, tag.x, *tag.stop_gradients, *(g for g in tag.grad_ys if g is not None))
    return [*(tensor.operator for tensor in tensors), *tag.after]


def _renamed(operator: Operator, names: Mapping[str, str]) -> Operator:
    """An operator that reads and waits for others instead of some."""
    inputs = tuple(
        TensorName(names[tensor.operator], tensor.index) if tensor.operator in names else tensor
        for tensor in operator.inputs
    )
    controls = tuple(dict.fromkeys(names.get(name, name) for name in operator.control_inputs))
    if inputs == operator.inputs and controls == operator.control_inputs:
        return operator
    return replace(operator, inputs=inputs, control_inputs=controls)
