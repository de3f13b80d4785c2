"""Replace a gather from a resource variable by a read of the table and a gather.

Then the layout of the table and that of the gather can be chosen separately.
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
    """Replaces the gathers of one import.

    Args:
        script: the script's graph. Added operators get names that it does not use.
        operators: the operators imported so far, to which reads and axes are added.
    """

    def __init__(self, script: tf.Graph, operators: dict[str, Operator]) -> None:
        self._script = script
        self._operators = operators
        self._after_updates: dict[TensorName, tuple[set[str], list[str]]] = {}

    def rewritten(self, operation: tf.Operation) -> Operator:
        """Return a gather with the script's name. Its input is a read of the table.

        Gathers share the read unless they come after an update of the table. A gather waits for an
        update by a control input, or, since TensorFlow omits implied control inputs, through its
        indices.
        """
        handle, indices = (TensorName(t.op.name, t.value_index) for t in operation.inputs)
        controls = tuple(control.name for control in control_inputs(operation))
        updated = self._updated(handle)
        after_update = not updated.isdisjoint((*controls, indices.operator))
        shape = self._operators[handle.operator].outputs[handle.index].shape
        spec = output_spec(operation.outputs[0])
        table = self._add(
            f"{operation.name if after_update else handle.operator}/table",
            "ReadVariableOp",
            (handle,),
            TensorSpec(shape, spec.dtype),
            {"dtype": spec.dtype},
            (*controls, indices.operator) if after_update else (),
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
        """Return the names of the operators so far that come after an update of a variable."""
        updated, visited = self._after_updates.setdefault(variable, (set(), []))
        for operator in itertools.islice(self._operators.values(), len(visited), None):
            visited.append(operator.name)
            changes = any(operator.inputs[number] == variable for number in operator.mutates)
            if changes or not updated.isdisjoint(operator.predecessors):
                updated.add(operator.name)
        return updated

    def _add(
        self,
        name: str,
        kind: str,
        inputs: tuple[TensorName, ...],
        output: TensorSpec,
        attributes: Mapping[str, object] | None = None,
        controls: tuple[str, ...] = (),
    ) -> TensorName:
        """Add an operator that is not in the script, under a name that the script does not use."""
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
