"""Merge reads of one variable between which nothing changes it.

TensorFlow adds a read of a resource variable wherever a script uses it, so an unrolled layer has
one for every step. Operators that read the same tensor share its resharding and the sum of its
gradients.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import replace

from tensoropt.graph.operator import Operator, TensorName

__all__ = ["merge_reads"]


def merge_reads(operators: Mapping[str, Operator], roots: Collection[str]) -> dict[str, Operator]:
    """Return the operators with one read for all reads with the same handle and control inputs.

    A read has no data input but the handle, so all that runs before it is in its control inputs. If
    a change lies between two reads, only the second read has it as a control input, and the two are
    not merged. Reads that the script names (to run them, or to differentiate by them) stay. So do
    those that the importer added for lookups of rows, which may be lookups in the variable itself.

    Args:
        operators: the operators by name, in topological order.
        roots: names of the operators to run.
    """
    named = {*roots, *(name for operator in operators.values() for name in _in_tag(operator))}
    first_read: dict[Hashable, str] = {}
    stands_for: dict[str, str] = {}
    merged: dict[str, Operator] = {}
    for name, operator in operators.items():
        is_read = operator.type == "ReadVariableOp" and not operator.synthetic
        renamed = _renamed(operator, stands_for) if stands_for else operator
        if is_read and name not in named:
            key = renamed.inputs, renamed.outputs[0].dtype, frozenset(renamed.control_inputs)
            if first_read.setdefault(key, name) != name:
                stands_for[name] = first_read[key]
                continue
        merged[name] = renamed
    return merged


def _in_tag(operator: Operator) -> list[str]:
    """Return the names of the operators in the record of a gradient."""
    tag = operator.gradient
    if tag is None:
        return []
    tensors = (*tag.ys, tag.x, *tag.stop_gradients, *(g for g in tag.grad_ys if g is not None))
    return [*(tensor.operator for tensor in tensors), *tag.after]


def _renamed(operator: Operator, names: Mapping[str, str]) -> Operator:
    """Return an operator with renamed inputs and control inputs."""
    inputs = tuple(
        TensorName(names[tensor.operator], tensor.index) if tensor.operator in names else tensor
        for tensor in operator.inputs
    )
    controls = tuple(dict.fromkeys(names.get(name, name) for name in operator.control_inputs))
    if inputs == operator.inputs and controls == operator.control_inputs:
        return operator
    return replace(operator, inputs=inputs, control_inputs=controls)
