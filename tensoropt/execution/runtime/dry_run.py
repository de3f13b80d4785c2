"""Dry runs: a step's program on one rank, emitted but not run, and described as plain data.

`tensoropt.cost.peak.program_peak` predicts the step's memory from this data. A dry run needs no
other rank, since no collective runs.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from collectives import Group
from collectives.native.transport import knows
from collectives.operations.calls import (
    CollectiveCall,
    Unwatched,
    Watch,
    on_joined_tensors,
)
from collectives.operations.operation import Collective
from collectives.transport.in_process import InProcessTransport
from tensoropt.cost.peak.device_program import DeviceProgram, Kernel
from tensoropt.cost.peak.kernel_memory import HOST_CALL, MOVE, MOVE_TOGETHER
from tensoropt.cost.peak.repeated import repeated_outputs
from tensoropt.execution.agreement.agreement import Agreement
from tensoropt.execution.edges.edge import PlanSteps
from tensoropt.execution.lowering.step_options import StepOptions
from tensoropt.execution.passes.operation_order import in_order_of_data
from tensoropt.execution.runtime.executor import Executor, Program
from tensoropt.execution.runtime.loops import with_bodies
from tensoropt.execution.stages.stage_ranks import Pipeline, StageWorlds, with_first_ranks
from tensoropt.execution.world.mpi_world import MPIWorld
from tensoropt.execution.world.own_values import step_of_all_ranks
from tensoropt.execution.world.resharding.operations import collective
from tensoropt.execution.world.shard_table import LARGE
from tensoropt.execution.world.world import World
from tensoropt.graph.from_tensorflow import import_graph
from tensoropt.graph.from_tensorflow.called_shapes import LOOPS, inferred_graph
from tensoropt.graph.operator import Graph
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import ReshardStep, Step
from tensoropt.tensor_spec import TensorSpec
from tensoropt.tensorflow_private import ops
from tensoropt.transformations.microbatches.step_graph import named
from tensoropt.transformations.staged.order_of_passes import until_it_repeats

__all__ = ["ScriptStep", "describe", "describe_own", "dry_run", "dry_run_stage"]

_SMALL = 64  # the most elements of a constant that is a kernel's parameter: an axis, a shape


@dataclass(frozen=True, slots=True, eq=False)
class ScriptStep:
    """One step of a script, for any strategy.

    Attributes:
        script: the script's graph.
        roots: names of the operators that the step runs.
        shapes: the shapes of fed tensors, by placeholder operator.
        options: how the step is computed. Later sessions must have the same configuration: the
            first session of a process sets the numbers of threads, and a dry run may open it.
        microbatches: the number of microbatches.
        native: whether collectives are operators in C++, as they are within a machine; otherwise
            they are calls of Python.
        graph: the result of `import_graph` for these roots and shapes; if None, each dry run
            imports the graph.
    """

    script: tf.Graph
    roots: Sequence[str]
    shapes: Mapping[str, tuple[int, ...]]
    options: StepOptions
    microbatches: int = 1
    native: bool = True
    graph: Graph | None = None


def dry_run(
    step: ScriptStep, mesh: Mesh, planned: Mapping[str, Configuration], plan_steps: PlanSteps
) -> DeviceProgram:
    """Emit the program of a step on the rank with the largest pieces, and describe it.

    It is the first rank, or the fastest one if pieces are in proportion to speeds.
    """
    speeds = (1,) if mesh.shares is None else mesh.shares.speeds
    world = _DryRunWorld(mesh, position=speeds.index(max(speeds)), native=step.native)
    pipeline = Pipeline.of_mesh(world, planned, plan_steps, step.microbatches)
    return _emitted(step, pipeline, world, 0)


def dry_run_stage(
    step: ScriptStep,
    meshes: Sequence[Mesh],
    stage: int,
    pipeline: Callable[[StageWorlds], Pipeline],
) -> DeviceProgram:
    """Emit the program of a step on the first rank of a pipeline's stage, and describe it.

    Args:
        step: the step, in the pipeline's number of microbatches.
        meshes: the mesh of each stage.
        stage: the number of the stage.
        pipeline: returns the pipeline, given the worlds of its stages.
    """
    worlds = [World(mesh, (), first) for mesh, first in with_first_ranks(meshes)]
    first = worlds[stage].first
    of_stage = worlds[stage] = _DryRunWorld(meshes[stage], first, native=step.native)
    everyone = _DryRunWorld(Mesh.of(sum(mesh.size for mesh in meshes)), position=first)
    return _emitted(step, pipeline(StageWorlds(tuple(worlds), everyone)), of_stage, stage)


def _emitted(
    step: ScriptStep, pipeline: Pipeline, world: _DryRunWorld, stage: int
) -> DeviceProgram:
    """Emit the program of a step on the rank of a world, and describe it.

    Microbatches are emitted until the stage repeats itself. Without a backward pass nothing ends
    a microbatch, and all are emitted.
    """
    count = pipeline.microbatches
    made = until_it_repeats(pipeline.schedule, stage, len(pipeline.stages), count)
    program = _emitted_part(step, pipeline, world, made)
    if made == count or any(kernel.name.startswith("gradients") for kernel in program.kernels):
        return program
    return _emitted_part(step, pipeline, world, count)


def _emitted_part(
    step: ScriptStep, pipeline: Pipeline, world: _DryRunWorld, made: int
) -> DeviceProgram:
    """Emit the program of a step with its first microbatches, and describe it."""
    pipeline = replace(pipeline, made=made)
    executor = Executor(step.script, pipeline, step.options, Agreement(None), imported=step.graph)
    try:
        program = executor.program((), step.roots, step.shapes)
        described = describe(program.operations, world.moved, world.mesh, world.ranks[0])
        kept = _kept_bytes(executor, executor.initializers(program))
        names = [named("", number) for number in range(made)]
        not_made = pipeline.microbatches - made
        repeated = repeated_outputs(described.kernels, names, not_made)
        return replace(described, kept_bytes=kept, repeated=repeated)
    finally:
        executor.close()
        gc.collect(0)  # The emitter's reference cycles hold much memory.


def describe_own(program: Program, mesh: Mesh) -> DeviceProgram | None:
    """Describe the program by which each rank computes a batch of its own.

    Returns:
        The program; None if batches of any size run by it.
    """
    fed = [placeholder for each in program.fed.values() for placeholder in each.placeholders]
    if not all(placeholder.shape.is_fully_defined() for placeholder in fed):
        return None
    targets = [*program.operations, *(tensor.op for tensor in program.tensors.values())]
    collected = [operation for operation in _needed(targets) if operation.type == MOVE]
    moved = {
        operation.name: (MOVE, (step_of_all_ranks(mesh, operation.outputs[0].shape.rank),))
        for operation in collected
    }
    if not any(operation.type in LOOPS for operation in _needed(targets)):
        return describe(targets, moved, mesh)
    inferred = inferred_graph(_definition(_needed(targets)))
    try:
        here = [inferred.get_operation_by_name(operation.name) for operation in targets]
        return with_bodies(
            describe(here, moved, mesh), inferred, lambda body: describe(body, {}, mesh)
        )
    finally:
        ops.dismantle_graph(inferred)


class _DryRunWorld(MPIWorld):
    """One rank of a mesh. It emits its program, which is never run, without other ranks.

    Args:
        mesh: the devices.
        first: see `World`.
        position: the number of the rank.
        native: see `ScriptStep`.

    Attributes:
        moved: for each operation that stands for a collective, by name, the type of the collective
            and the steps of a resharding that the collective takes.
    """

    def __init__(self, mesh: Mesh, first: int = 0, position: int = 0, native: bool = False) -> None:
        group = Group(InProcessTransport(tuple(range(mesh.size)), position))
        super().__init__(mesh, group, "host", first)
        self._native = native
        self.moved: dict[str, tuple[str, tuple[Step, ...]]] = {}

    @property
    def waits_in_collectives(self) -> bool:
        """See `World.waits_in_collectives`."""
        return self._native

    def reshard(
        self, shards: Sequence[tf.Tensor], steps: Sequence[Step], label: str
    ) -> list[tf.Tensor]:
        """See `World.reshard`."""
        moved = list(shards)
        for at_once in [(step,) for step in steps] if self._native else [tuple(steps)]:
            moved = self._resharded(moved, at_once, label)
            if all(step.is_local for step in at_once):
                continue
            known = self._native and knows(collective(at_once[0]), moved[0].dtype)
            self.moved[moved[0].op.name] = (MOVE if known else HOST_CALL, at_once)
        return moved

    def joins(self, sums: Sequence[ReshardStep], dtype: tf.DType) -> bool:
        """See `World.joins`."""
        return self._native and all(knows(collective(step), dtype) for step in sums)

    def reduce_together(
        self,
        tensors: Sequence[Sequence[tf.Tensor]],
        step: ReshardStep,
        label: str,
        as_bfloat16: bool = False,
    ) -> list[list[tf.Tensor]]:
        """See `World.reduce_together`."""
        del as_bfloat16
        call = CollectiveCall(collective(step), self.groups(step.axes))
        moved = on_joined_tensors(tensors, call, label, Unwatched(), _stand_in)
        self.moved[moved[0][0].op.name] = (MOVE_TOGETHER, (step,))
        return moved


def _stand_in(
    collective: Collective, group: Group, tensors: Sequence[tf.Tensor], record: str, watch: Watch
) -> list[tf.Tensor]:
    """Emit an operation that stands for a collective on several tensors. It is never run."""
    del collective, group, record, watch
    dtypes = [tensor.dtype for tensor in tensors]
    results: list[tf.Tensor] = tf.numpy_function(
        lambda *_: None, list(tensors), dtypes, name="reshard"
    )
    for tensor, result in zip(tensors, results, strict=True):
        result.set_shape(tensor.shape)
    return results


def describe(
    targets: Sequence[tf.Operation],
    moved: Mapping[str, tuple[str, tuple[Step, ...]]],
    mesh: Mesh,
    rank: int = 0,
) -> DeviceProgram:
    """Describe the part of an emitted graph that some operations need.

    Args:
        targets: the operations to run.
        moved: see `_DryRunWorld`.
        mesh: all devices.
        rank: the rank for which the graph was emitted.
    """
    needed = _needed(targets)
    numbers = {operation.name: number for number, operation in enumerate(needed)}
    outputs: dict[str, tuple[TensorSpec, ...]] = {}
    kernels = []
    for operation in needed:
        inputs = tuple(operation.inputs)
        specs = tuple(outputs[t.op.name][t.value_index] for t in inputs)
        outputs[operation.name] = _specs(operation, specs)
        kind, steps = moved.get(operation.name, (operation.type, ()))
        kernels.append(
            Kernel(
                name=operation.name,
                type=kind,
                inputs=tuple((numbers[t.op.name], t.value_index) for t in inputs),
                outputs=outputs[operation.name],
                after=tuple(numbers[op.name] for op in operation.control_inputs),
                operands=_operands(operation),
                equation=operation.get_attr("equation").decode()
                if operation.type == "Einsum"
                else "",
                steps=steps,
            )
        )
    return DeviceProgram(tuple(kernels), mesh, rank)


def _kept_bytes(executor: Executor, initializers: Sequence[str]) -> int:
    """Return the bytes of the constants from which variables get their first values.

    On a mesh, these are the script's constants; of a large constant, the shard that the first rank
    reads. The result is right within some bytes. For a stage, the initializers are emitted, and
    their constants are counted.
    """
    if not initializers:
        return 0
    if executor.stage is not None:
        return _constant_bytes(executor.program((), initializers, {}).operations)
    graph = import_graph(executor.script, initializers)
    strategy = executor.strategy(graph)
    values = [
        spec.value
        for operator in graph
        for spec in operator.outputs
        if spec.value is not None and spec.elements <= LARGE
    ]
    for operator in graph:
        for number, tensor in enumerate(operator.inputs):
            value = graph.spec(tensor).value
            if value is not None and value.size > LARGE:
                layout = strategy.input_slot(operator, number).forward
                values.append(value[layout.region(value.shape, strategy.mesh, 0)])
    return _distinct_bytes(values)


def _constant_bytes(targets: Sequence[tf.Operation]) -> int:
    """The bytes of a program's constants."""
    constants = [op.get_attr("value") for op in _needed(targets) if op.type == "Const"]
    return _distinct_bytes(map(tf.make_ndarray, constants))


def _distinct_bytes(values: Iterable[np.ndarray[Any, Any]]) -> int:
    """The bytes of the distinct constants, since TensorFlow keeps equal constants once."""
    different = {(value.dtype, value.shape, value.tobytes()): value.nbytes for value in values}
    return sum(different.values())


def _needed(targets: Sequence[tf.Operation]) -> list[tf.Operation]:
    """The targets and all operations that they need, in the order of data."""
    needed: set[str] = set()
    waiting = list(targets)
    while waiting:
        operation = waiting.pop()
        if operation.name in needed:
            continue
        needed.add(operation.name)
        waiting += [tensor.op for tensor in operation.inputs]
        waiting += operation.control_inputs
    if not targets:  # A stage without variables has no initial values.
        return []
    operations = targets[0].graph.get_operations()
    return in_order_of_data([op for op in operations if op.name in needed])


def _definition(operations: Sequence[tf.Operation]) -> tf.compat.v1.GraphDef:
    """Return the definition of operations, with the functions that they call."""
    whole = operations[0].graph.as_graph_def()
    names = {operation.name for operation in operations}
    nodes = [node for node in whole.node if node.name in names]
    for node in nodes:
        node.attr.pop("_class", None)  # It may name an operation that is not needed.
    return tf.compat.v1.GraphDef(node=nodes, library=whole.library, versions=whole.versions)


def _specs(operation: tf.Operation, read: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
    """Shapes and types of outputs; for a variable's handle, those of the variable."""
    if operation.type == "VarHandleOp":
        shape = tf.TensorShape(operation.get_attr("shape"))
        return (TensorSpec(tuple(shape.as_list()), operation.get_attr("dtype").name),)
    specs = []
    for tensor in operation.outputs:
        known: tuple[int, ...]
        if tensor.shape.rank is None:
            known = (0,)  # oneDNN's batch normalisation keeps this output for other devices.
        else:
            # An open extent has the rows of the longest input: a lookup also serves other ranks.
            longest = max((spec.shape[0] for spec in read if spec.shape), default=1)
            known = tuple(longest if size is None else size for size in tensor.shape.as_list())
        specs.append(TensorSpec(known, tensor.dtype.base_dtype.name))
    return tuple(specs)


def _operands(operation: tf.Operation) -> dict[int, tuple[int, ...]]:
    """The flat values of small constants that an operation reads, by input; an axis as input -1."""
    operands: dict[int, tuple[int, ...]] = {}
    if operation.type == "Unpack":
        operands[-1] = (operation.get_attr("axis"),)
    for number, tensor in enumerate(operation.inputs):
        if tensor.op.type != "Const" or not tensor.dtype.is_integer:
            continue
        if (tensor.shape.num_elements() or 0) <= _SMALL:
            value = tf.make_ndarray(tensor.op.get_attr("value"))
            operands[number] = tuple(int(element) for element in value.reshape(-1))
    return operands
