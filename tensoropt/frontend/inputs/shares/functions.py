"""The effects of a function of a data pipeline, and its call on an element."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from tensoropt.tensorflow_private import op_def_registry, structure, structures

__all__ = ["Effects", "applied", "applied_to_rows", "effects", "effects_of", "function_name"]

_PYTHON = frozenset({"EagerPyFunc", "PyFunc"})

_HARMLESS = frozenset(
    {"Assert", "DummyMemoryCache", "DummySeedGenerator", "MatchingFiles", "Print", "PrintV2"}
    | {"ReadFile", "ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VarIsInitializedOp"}
    | {"Case", "If", "StatefulPartitionedCall", "While"}
    | {"LookupTableFind", "LookupTableFindV2", "LookupTableSize", "LookupTableSizeV2"}
    | {"PyFuncStateless", "AnonymousSeedGenerator", "AnonymousMemoryCache"}
)
"""Operators that TensorFlow lists as stateful. They change no value that a later call reads. The
bodies of calls and loops are judged by their own operators."""


@dataclass(frozen=True, slots=True)
class Effects:
    """Effects of a function besides its outputs.

    Attributes:
        python: whether it calls a Python function, whose results may differ between processes.
        state: type of an operator that changes a state which later calls read; empty for none.
        draws: type of an operator that draws random numbers; empty for none.
        unseeded: whether draws differ between processes, since they have no seed.
        unordered: whether a data set inside of the function may change the order of its elements.
    """

    python: bool = False
    state: str = ""
    draws: str = ""
    unseeded: bool = False
    unordered: bool = False

    @property
    def is_pure(self) -> bool:
        """Whether the outputs of one call do not depend on other calls."""
        return not (self.python or self.state or self.draws)


def effects(wrapper: Any) -> Effects:
    """Return the effects of a function of a data set, including the functions that it calls."""
    return effects_of(_bodies(wrapper.function))


def effects_of(bodies: Iterable[Any]) -> Effects:
    """Return the effects of a function.

    Args:
        bodies: the operators of the function, and those of each function that it calls.
    """
    python, state, draws, unseeded, unordered = False, "", "", False, False
    for nodes in bodies:
        named = {node.name: node for node in nodes}
        for node in nodes:
            definition = op_def_registry.get(node.op)
            arguments = [] if definition is None else [a.name for a in definition.input_arg]
            unordered |= node.attr["deterministic"].s == b"false"
            if node.op in _PYTHON:
                python = True
            elif {"seed", "seed2"} <= set(node.attr) and definition.is_stateful:
                draws = node.op
                unseeded |= not node.attr["seed"].i and not node.attr["seed2"].i
            elif {"seed", "seed2"} <= set(arguments):
                unseeded |= all(
                    _is_zero(named.get(node.input[arguments.index(name)].partition(":")[0]))
                    for name in ("seed", "seed2")
                )
            elif _changes_state(node.op, definition):
                state = node.op
    return Effects(python, state, draws, unseeded, unordered)


def function_name(wrapper: Any) -> str:
    """The name of the Python function that a function of a data set was traced from."""
    return str(getattr(wrapper._func, "__name__", type(wrapper._func).__name__))


def applied(wrapper: Any, element: Any) -> Any:
    """Call a function of a data set, as it was traced, on an element."""
    flat = structure.to_tensor_list(wrapper._input_structure, element)
    outputs = wrapper.function(*flat)
    return structure.from_compatible_tensor_list(wrapper.output_structure, outputs)


def applied_to_rows(wrapper: Any, element: Any) -> Any:
    """Call a function of a data set, without side effects, on some rows of a batch.

    The function was traced for whole batches, whose number of rows may be a part of its signature.
    So its operators are copied.

    Args:
        wrapper: the function. Its arguments and results are dense tensors.
        element: the rows.
    """
    graph, target = wrapper.function.graph, tf.compat.v1.get_default_graph()
    captured = [target.capture(value) for value in wrapper.function.captured_inputs]
    given = [*structures.flatten(element), *captured]
    results = tf.graph_util.import_graph_def(
        graph.as_graph_def(),
        input_map={tensor.name: value for tensor, value in zip(graph.inputs, given, strict=True)},
        return_elements=[tensor.name for tensor in graph.outputs],
    )
    return structures.pack_sequence_as(wrapper.output_structure, results)


def _bodies(function: Any) -> Iterator[Any]:
    definition = function.graph.as_graph_def()
    yield definition.node
    for called in definition.library.function:
        yield called.node_def


def _changes_state(op_type: str, definition: Any) -> bool:
    if definition is None or not definition.is_stateful or op_type in _HARMLESS:
        return False
    return "Dataset" not in op_type


def _is_zero(node: Any) -> bool:
    return (
        node is not None
        and node.op == "Const"
        and not tf.make_ndarray(node.attr["value"].tensor).any()
    )
