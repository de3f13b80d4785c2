"""A step's function as a script's graph: traced once, then handled like any graph of a script."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from tensoropt.errors import GraphError, TensorOptError
from tensoropt.execution.world.shares import Share
from tensoropt.frontend.definitions.fused_updates import fuse_updates
from tensoropt.frontend.definitions.own_gradients import pass_to_gradients
from tensoropt.frontend.definitions.script_nodes import (
    leave_out,
    number_functions,
    rename,
    separate,
)
from tensoropt.frontend.definitions.trace_checks import check_loops, check_python
from tensoropt.frontend.inputs.shapes import note_examples
from tensoropt.frontend.inputs.step_arguments import Held
from tensoropt.frontend.job.eager_copies import updates_allowed
from tensoropt.frontend.steps.lookups import Lookups, lookups_of
from tensoropt.frontend.steps.recorded_tape import recorded_tape
from tensoropt.frontend.steps.step_graph import Captured, StepGraph, graph_for
from tensoropt.frontend.steps.traced_loops import loops_as_functions
from tensoropt.frontend.steps.traced_variables import CreatedVariables, all_variables
from tensoropt.graph.from_tensorflow import GRADIENT_ATTRIBUTE
from tensoropt.tensorflow_private import func_graph, nest

__all__ = ["TracedStep", "own_error", "traced_step"]


@dataclass(frozen=True, slots=True, eq=False)
class TracedStep:
    """A step in its graph.

    Attributes:
        home: the graph, which other steps with the same variables may share.
        trains: whether the step computes gradients.
        inputs: names of placeholders for the arrays among the arguments and the parts of composite
            tensors, in their order; None for an input that only ``lookups`` reads.
        outputs: the structure that the function returns, with tensors of the graph.
        fetched: names of these tensors.
        operations: names of operators with side effects, which run in every call.
        captured: the captured variables.
        lookups: the part of the step that runs before it, eagerly.
        looked_up: names of placeholders for the results of ``lookups``.
    """

    home: StepGraph
    trains: bool
    inputs: tuple[str | None, ...]
    outputs: Any
    fetched: tuple[str, ...]
    operations: tuple[str, ...]
    captured: tuple[Captured, ...]
    lookups: Lookups
    looked_up: tuple[str, ...]

    @property
    def graph(self) -> tf.Graph:
        """The graph, which TensorOpt handles as a script's graph."""
        return self.home.graph

    @property
    def is_owner(self) -> bool:
        """Whether the step keeps its graph alive."""
        return self.trains or not self.home.trains

    def values(self, arrays: Sequence[Any]) -> dict[str, Any]:
        """The values to feed for the arrays, shares and parts among some arguments, by
        `fed_operator`."""
        given = zip(self.inputs, arrays, strict=True)
        feeds = {
            name: value if isinstance(value, Share) else np.asarray(value)
            for name, value in given
            if name is not None
        }
        return feeds | dict(zip(self.looked_up, self.lookups.values(arrays), strict=True))


def traced_step(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    has_examples: Sequence[bool],
) -> TracedStep:
    """Trace a function.

    Functions that it calls become part of it, decorated by ``tf.function`` or not. Its Python code
    runs only while it is traced. If it creates variables it is traced twice, as by ``tf.function``,
    and the second trace, which has them from its beginning, is used.

    Args:
        function: the function.
        args: its positional arguments, with specifications of fed tensors; other arguments are
            constants of the trace.
        kwargs: its named arguments, likewise.
        has_examples: for each fed array and part of a composite tensor, whether its first dimension
            may count examples.

    Raises:
        GraphError: if gradients are computed inside a loop, or through a loop that collects
            tensors; if an operator calls Python; if the function captures something other than a
            variable, a tensor or a table that looks up its arguments, such as an iterator; or if it
            creates variables in every trace.
    """
    given, named = _with_names(function, args, kwargs)
    traced, created = _traced(function, given, named)
    if created:
        traced, created = _traced(function, given, named)
    if created:
        raise GraphError(
            "a step creates its variables when it runs first, and keeps them. Got "
            f"{created[0]!r}, which it creates each time; create it before, or once."
        )
    return _as_script(traced, has_examples)


def _with_names(function: Callable[..., Any], given: Any, named: Any) -> tuple[Any, Any]:
    """The arguments with specifications named after parameters, as in errors: ``images``,
    ``x/text``."""
    is_python = inspect.isfunction(function) or inspect.ismethod(function)
    parameters = inspect.signature(function).parameters.values() if is_python else ()
    names = [item.name for item in parameters if item.kind <= item.POSITIONAL_OR_KEYWORD]
    names += [f"argument_{number}" for number in range(len(names), len(given))]
    by_name = dict(zip(names, given, strict=False))

    def call(path: str, value: Any) -> Any:
        if not isinstance(value, tf.TensorSpec):
            return value
        return tf.TensorSpec(value.shape, value.dtype, path)

    named = nest.map_structure_with_paths(call, named)
    return tuple(nest.map_structure_with_paths(call, by_name).values()), named


def _traced(
    function: Callable[..., Any], given: Sequence[Any], named: Mapping[str, Any]
) -> tuple[func_graph.FuncGraph, list[str]]:
    """The graph of a function, and the names of the variables that the trace created."""
    traced = func_graph.FuncGraph(getattr(function, "__name__", "step"))
    created = CreatedVariables(traced)

    def call(arguments: Any) -> Any:
        args, kwargs = tf.nest.map_structure(
            lambda leaf: leaf.value if isinstance(leaf, Held) else leaf, arguments
        )
        with tf.variable_creator_scope(created.create):
            return _converted(function)(*args, **kwargs)

    eagerly = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)  # inner functions become part of this trace
    try:
        with (
            updates_allowed(),
            recorded_tape(traced),
            loops_as_functions(traced),
            all_variables(traced),
        ):
            structure = [(given, named)]  # TensorFlow takes one argument where others have names
            func_graph.func_graph_from_py_func(traced.name, call, structure, {}, func_graph=traced)
    except Exception as error:  # AutoGraph's, which names the line of the script
        with updates_allowed():
            created.initialize(traced)  # the script may keep the variables for another trace
        original = own_error(error)
        if original is None or original is error:
            raise
        raise original from error
    finally:
        tf.config.run_functions_eagerly(eagerly)
    with updates_allowed():
        created.initialize(traced)
    return traced, created.names


def own_error(error: BaseException | None) -> TensorOptError | None:
    """TensorOpt's error from which another error was raised; None if there is none."""
    while error is not None and not isinstance(error, TensorOptError):
        error = error.__cause__ or error.__context__
    return error


def _converted(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with Python's conditions and loops over tensors turned into TensorFlow's."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return tf.__internal__.autograph.tf_convert(
            function, tf.__internal__.autograph.control_status_ctx()
        )(*args, **kwargs)

    return call


def _as_script(traced: func_graph.FuncGraph, has_examples: Sequence[bool]) -> TracedStep:
    """The step of a function's graph; captured variables become variables of the new graph."""
    definition = traced.as_graph_def()
    check_python(definition)
    names = {node.name for node in definition.node}
    with traced.as_default():  # handles that are looked up in a graph are captured and not read
        variables = {id(variable.handle): variable for variable in traced.variables}
    trains = any(GRADIENT_ATTRIBUTE in node.attr for node in definition.node)
    home = graph_for(variables.values(), trains)
    graph = home.graph
    scope = graph.unique_name(_scope(traced.name), mark_as_used=False) if home.captured else ""
    lookups, looked_up = lookups_of(traced, variables), list[str]()
    with graph.as_default():
        mapped, handles = _stand_ins(traced, variables, names, home)
        for name, spec in lookups.outputs.items():
            given = tf.compat.v1.placeholder(spec.dtype, spec.shape, name="looked_up")
            looked_up.append(given.op.name)
            mapped[name] = given
        leave_out(definition, lookups.nodes)
        by = pass_to_gradients(definition, traced)
        fuse_updates(definition, traced)
        separate(definition)
        home.functions = number_functions(definition, home.functions)
        rename(definition, {name: tensor.name for name, tensor in mapped.items()})
        tf.import_graph_def(definition, input_map=mapped, name=scope)
        if trains:
            check_loops(graph, by)
        captured = tuple(_captured(traced, home, *handle) for handle in handles)
    prefix = f"{scope}/" if scope else ""
    captures = {id(internal) for _, internal in traced.captures}

    def here(value: Any) -> Any:
        if not tf.is_tensor(value):
            return value
        name = mapped[value.name].name if value.name in mapped else f"{prefix}{value.name}"
        return graph.get_tensor_by_name(name)

    given = [tensor for tensor in traced.inputs if id(tensor) not in captures]
    inputs = tuple(
        None if tensor.op.name in lookups.unread else here(tensor).op.name for tensor in given
    )
    _note_examples(graph, inputs, has_examples, looked_up)
    with graph.as_default():
        outputs = tf.nest.map_structure(here, traced.structured_outputs, expand_composites=True)
    # TensorFlow returns a set; all ranks need the same order.
    operations = sorted(
        f"{prefix}{op.name}"
        for op in traced.control_outputs
        if op.type != "ReadVariableOp" and op.name not in lookups.nodes
    )
    flat = tf.nest.flatten(outputs, expand_composites=True)
    fetched = dict.fromkeys(tensor.name for tensor in flat if tf.is_tensor(tensor))
    return TracedStep(
        home,
        trains,
        inputs,
        outputs,
        tuple(fetched),
        tuple(operations),
        captured,
        lookups,
        tuple(looked_up),
    )


def _scope(name: str) -> str:
    """A function's name as TensorFlow allows it for a scope: a lambda's has other characters."""
    return re.sub(r"[^A-Za-z0-9_.]", "_", name).lstrip("_") or "step"


def _stand_ins(
    traced: func_graph.FuncGraph,
    variables: Mapping[int, tf.Variable],
    names: set[str],
    home: StepGraph,
) -> tuple[dict[str, tf.Tensor], list[tuple[tf.Variable, tf.Tensor, str]]]:
    """Tensors of the default graph for what a function captures.

    Args:
        traced: the function's graph.
        variables: the variables that it captures, by the `id` of their handles.
        names: names of the function's nodes.
        home: the default graph, with the variables that it has already.

    Returns:
        The tensors by the names of captures; for each variable itself, its handle in the default
        graph and the capture's name.
    """
    mapped: dict[str, tf.Tensor] = {}
    handles: list[tuple[tf.Variable, tf.Tensor, str]] = []
    for external, internal in traced.captures:
        if id(external) in variables:
            variable = variables[id(external)]
            if id(variable) in home.captured:
                handle = home.graph.get_tensor_by_name(f"{home.captured[id(variable)].handle}:0")
            else:
                handle = _variable(variable, names)
            handles.append((variable, handle, internal.name))
            mapped[internal.name] = handle
        elif external.dtype not in (tf.resource, tf.variant):
            mapped[internal.name] = tf.constant(external.numpy())
    return mapped, handles


def _note_examples(
    graph: tf.Graph,
    inputs: Sequence[str | None],
    has_examples: Sequence[bool],
    looked_up: Sequence[str],
) -> None:
    """Note which placeholders have examples; lookups of these have examples, too."""

    def extent(name: str) -> int | None:
        shape = graph.get_tensor_by_name(f"{name}:0").shape
        return shape[0] if shape.rank else -1

    names = [name for name, has in zip(inputs, has_examples, strict=True) if has and name]
    extents = {extent(name) for name in names}
    note_examples(graph, [*names, *(name for name in looked_up if extent(name) in extents)])


def _variable(variable: tf.Variable, taken: set[str]) -> tf.Tensor:
    """The handle of a new variable in the default graph, like a variable of the script.

    The variable has no initializer: the script's value is passed on before the first run.
    """
    name = str(variable.name).partition(":")[0]
    first, *rest = name.split("/")
    while _is_taken(first, rest, taken):
        first += "_variable"
    name = "/".join([first, *rest])
    return tf.raw_ops.VarHandleOp(
        dtype=variable.dtype, shape=variable.shape, shared_name=name, name=name
    )


def _is_taken(first: str, rest: Sequence[str], taken: set[str]) -> bool:
    """Whether an operator has this name, or the name of a scope around it.

    A conditional whose branch creates a variable has the name of that scope.
    """
    scopes = itertools.accumulate([first, *rest], "{}/{}".format)
    return not taken.isdisjoint(scopes)


def _captured(
    traced: func_graph.FuncGraph,
    home: StepGraph,
    variable: tf.Variable,
    handle: tf.Tensor,
    internal: str,
) -> Captured:
    """A captured variable's counterparts in the default graph; made if it has none there yet."""
    readers = traced.get_tensor_by_name(internal).consumers()
    is_written = any(operation.type != "ReadVariableOp" for operation in readers)
    if id(variable) not in home.captured:
        given = tf.compat.v1.placeholder(variable.dtype, variable.shape, name="given")
        home.captured[id(variable)] = Captured(
            variable,
            handle.op.name,
            tf.raw_ops.ReadVariableOp(resource=handle, dtype=variable.dtype).name,
            tf.raw_ops.AssignVariableOp(resource=handle, value=given).name,
            given.op.name,
            is_written,
        )
    return replace(home.captured[id(variable)], is_written=is_written)
