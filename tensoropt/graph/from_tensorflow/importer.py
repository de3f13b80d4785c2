"""Import the part of a script's graph that some operators need."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace

import tensorflow as tf

from tensoropt.errors import GraphError
from tensoropt.graph.from_tensorflow.attributes import python_attributes
from tensoropt.graph.from_tensorflow.binding import bind_shapes
from tensoropt.graph.from_tensorflow.folding import Folding
from tensoropt.graph.from_tensorflow.operations import (
    PIPELINE_TYPES,
    control_inputs,
    mutates,
    output_spec,
)
from tensoropt.graph.from_tensorflow.recorded import (
    gradient_operator,
    gradient_tag,
    needed_by_gradient,
)
from tensoropt.graph.from_tensorflow.resource_gather import ResourceGathers, is_resource_gather
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.tensor_spec import TensorSpec
from tensoropt.tensorflow_private import ops

__all__ = ["import_graph", "merge_reads"]

_V1_CONTROL_FLOW = frozenset(
    {"Enter", "Exit", "LoopCond", "Merge", "NextIteration", "Switch"}
    | {"RefEnter", "RefExit", "RefMerge", "RefNextIteration", "RefSwitch"}
)


def import_graph(
    graph: tf.Graph,
    roots: Iterable[str],
    shapes: Mapping[str, Sequence[int | None]] | None = None,
    unset: frozenset[str] | None = None,
) -> Graph:
    """Return the part of a TensorFlow graph that some operators need, as a logical graph.

    Computations on constants and known shapes are folded into constants. A recorded gradient
    becomes one `GRADIENT` operator, which depends on the tensors it is computed from. TensorFlow's
    operators for it are left out. Reads of a variable are merged if nothing changes the variable
    between them.

    Args:
        graph: the script's graph.
        roots: names of the operators to run.
        shapes: shapes of fed tensors by `fed_operator`. A placeholder of known shape may be left
            out. An extent of None is left open: it is -1 in the graph, and so are extents that
            follow from it.
        unset: variables that have no value yet. If it is given, whether a variable is initialised
            is a constant.

    Raises:
        GraphError: if a root is not in the graph.
    """
    roots = tuple(roots)
    bound = bind_shapes(graph, roots, shapes or {})
    try:
        importer = _Importer(graph, bound, unset)
        for root in roots:
            try:
                operation = bound.get_operation_by_name(root)
            except KeyError:
                raise GraphError(
                    f"an operator to run is in the script's graph. Got {root!r}, which is not."
                ) from None
            importer.visit(operation)
    finally:
        ops.dismantle_graph(bound)  # otherwise its reference cycles wait for the garbage collector
    return Graph(merge_reads(importer.operators, roots))


class _Importer:
    def __init__(self, script: tf.Graph, bound: tf.Graph, unset: frozenset[str] | None) -> None:
        self._graph = bound
        self.operators: dict[str, Operator] = {}
        self._folding = Folding(unset)
        self._gathers = ResourceGathers(script, self.operators)

    def visit(self, root: tf.Operation) -> None:
        """Add an operator after all operators it needs. A stack replaces recursion in deep
        graphs."""
        stack: list[tuple[tf.Operation, bool]] = [(root, False)]
        while stack:
            operation, ready = stack.pop()
            if operation.name in self.operators:
                continue
            if ready:
                self.operators[operation.name] = self._convert(operation)
                continue
            stack.append((operation, True))
            for needed in reversed(self._needs(operation)):
                if needed.name not in self.operators:
                    stack.append((needed, False))

    def _needs(self, operation: tf.Operation) -> list[tf.Operation]:
        if operation.type in PIPELINE_TYPES:
            return []
        if self._folding.value(operation) is not None:
            return self._folding.waits(operation)
        tag = gradient_tag(operation)
        if tag is not None:
            return [self._graph.get_operation_by_name(name) for name in needed_by_gradient(tag)]
        return [tensor.op for tensor in operation.inputs] + control_inputs(operation)

    def _convert(self, operation: tf.Operation) -> Operator:
        if operation.type in PIPELINE_TYPES:
            outputs = tuple(output_spec(tensor) for tensor in operation.outputs)
            return Operator(operation.name, "NoOp", (), (), outputs)
        value = self._folding.value(operation)
        if value is not None:
            spec = TensorSpec(tuple(value.shape), operation.outputs[0].dtype.name, value)
            return Operator(
                name=operation.name,
                type="Const",
                inputs=(),
                input_specs=(),
                outputs=(spec,),
                attributes={"dtype": spec.dtype},
                control_inputs=tuple(control.name for control in self._folding.waits(operation)),
            )
        tag = gradient_tag(operation)
        if tag is not None:
            return gradient_operator(operation, tag, self.operators)
        if operation.type in _V1_CONTROL_FLOW:
            raise GraphError(
                "loops and conditionals are functional ones (control flow v2). Got the operator "
                f"{operation.name!r} of type {operation.type}, which is in graphs that were loaded "
                "from a file or built before tensoropt was imported. Build the graph again after "
                "the import, which calls tf.enable_control_flow_v2()."
            )
        if is_resource_gather(operation):
            return self._gathers.rewritten(operation)
        inputs = tuple(TensorName(t.op.name, t.value_index) for t in operation.inputs)
        specs = tuple(self.operators[name.operator].outputs[name.index] for name in inputs)
        return Operator(
            name=operation.name,
            type=operation.type,
            inputs=inputs,
            input_specs=specs,
            outputs=tuple(output_spec(tensor) for tensor in operation.outputs),
            attributes=python_attributes(operation),
            control_inputs=tuple(control.name for control in control_inputs(operation)),
            mutates=tuple(i for i, spec in enumerate(specs) if mutates(operation, i, spec)),
        )


def merge_reads(operators: Mapping[str, Operator], roots: Collection[str]) -> dict[str, Operator]:
    """Return the operators with one read for all reads with the same handle and control inputs.

    TensorFlow adds a read of a resource variable wherever a script uses it, so an unrolled layer
    has one for every step. Operators that read the same tensor share its resharding and the sum of
    its gradients. A read has no data input but the handle, so all that runs before it is in its
    control inputs. If a change lies between two reads, only the second read has it as a control
    input, and the two are not merged. Reads that the script names (to run them, or to differentiate
    by them) stay. So do those that the importer added for lookups of rows, which may be lookups in
    the variable itself.

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
