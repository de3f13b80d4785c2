"""A gather from a resource variable, as a read of the table and a gather.

Where a table is stored and how its rows are looked up are then two choices.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from tensoropt.graph.from_tensorflow.operations import (
    control_inputs,
    has_operation,
    output_spec,
)
from tensoropt.graph.operator import VARIABLE_TYPES, Operator, TensorName
from tensoropt.tensor_spec import TensorSpec

__all__ = ["ResourceGathers", "is_resource_gather"]

_GATHERS = {"ResourceGather": "GatherV2", "ResourceGatherNd": "GatherNd"}


def is_resource_gather(operation: tf.Operation) -> bool:
    """Whether an operation looks up rows of a resource variable."""
    return operation.type in _GATHERS and operation.inputs[0].op.type in VARIABLE_TYPES


class ResourceGathers:
    """Rewrites the gathers of one import.

    Args:
        script: the script's graph; what is added has names that its operations have not.
        operators: those imported so far, to which reads and axes are added.
    """

    def __init__(self, script: tf.Graph, operators: dict[str, Operator]) -> None:
        self._script = script
        self._operators = operators
        self._after_updates: dict[TensorName, tuple[set[str], list[str]]] = {}

    def rewritten(self, operation: tf.Operation) -> Operator:
        """A gather under the script's name, of a read of its table.

        Gathers share the read, but for those that come after an update of the table. These wait
        for it themselves or, since TensorFlow leaves out what is implied, through their indices.
        """
        handle, indices = (TensorName(t.op.name, t.value_index) for t in operation.inputs)
        controls = tuple(control.name for control in control_inputs(operation))
        updated = self._updated(handle)
        waits = not updated.isdisjoint((*controls, indices.operator))
        shape = self._operators[handle.operator].outputs[handle.index].shape
        spec = output_spec(operation.outputs[0])
        table = self._add(
            f"{operation.name if waits else handle.operator}/table",
            "ReadVariableOp",
            (handle,),
            TensorSpec(shape, spec.dtype),
            {"dtype": spec.dtype},
            (*controls, indices.operator) if waits else (),
        )
        inputs = [table, indices]
        attributes = {"Tparams": spec.dtype, "Tindices": operation.inputs[1].dtype.name}
        if operation.type == "ResourceGather":
            batch_dims = operation.get_attr("batch_dims")
            axis = TensorSpec((), "int32", np.array(batch_dims, np.int32))
            inputs.append(self._add(f"{operation.name}/axis", "Const", (), axis))
            attributes |= {"Taxis": "int32", "batch_dims": batch_dims}
        return Operator(
            name=operation.name,
            type=_GATHERS[operation.type],
            inputs=tuple(inputs),
            input_specs=tuple(self._operators[n.operator].outputs[n.index] for n in inputs),
            outputs=(spec,),
            attributes=attributes,
            control_inputs=controls,
            synthetic=True,
        )

    def _updated(self, variable: TensorName) -> set[str]:
        """What comes after an update of a variable, by name, among the operators so far."""
        found, seen = self._after_updates.setdefault(variable, (set(), []))
        for operator in itertools.islice(self._operators.values(), len(seen), None):
            seen.append(operator.name)
            changes = any(operator.inputs[number] == variable for number in operator.mutates)
            if changes or not found.isdisjoint(operator.predecessors):
                found.add(operator.name)
        return found

    def _add(
        self,
        name: str,
        kind: str,
        inputs: tuple[TensorName, ...],
        output: TensorSpec,
        attributes: Mapping[str, object] | None = None,
        controls: tuple[str, ...] = (),
    ) -> TensorName:
        """Add an operator that the script does not have, under a name that it does not use."""
        while has_operation(self._script, name):
            name += "_"
        if name not in self._operators:
            self._operators[name] = Operator(
                name=name,
                type=kind,
                inputs=inputs,
                input_specs=tuple(self._operators[n.operator].outputs[n.index] for n in inputs),
                outputs=(output,),
                attributes=attributes or {"dtype": output.dtype},
                control_inputs=controls,
                synthetic=True,
            )
        return TensorName(name, 0)
