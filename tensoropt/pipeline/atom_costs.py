"""Time and memory of atomic components, and the graph that is partitioned into blocks."""

from __future__ import annotations

from collections.abc import Collection
from copy import copy
from math import prod

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.cost.memory import Footprint
from tensoropt.cost.model import CostModel
from tensoropt.cost.operator_time import OperatorTime
from tensoropt.graph.backward_reads import VIEWS, BackwardReads
from tensoropt.graph.differentiation import differentiated_inputs
from tensoropt.graph.operator import Operator, TensorName
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.sparse import known_shape, looks_up_rows
from tensoropt.pipeline.atomic import Atoms
from tensoropt.pipeline.batch_growth import BatchGrowth
from tensoropt.pipeline.blocks.dag import Dag
from tensoropt.problem.operators.reader_gradient_sums import reader_gradient_sums, sum_as_measured

__all__ = ["AtomCosts"]

_ONE_DEVICE = Mesh.of(1, (1,))


class AtomCosts:
    """The costs of components on one device, for any number of examples.

    Args:
        atoms: the components.
        batch_inputs: placeholders whose first dimension is the batch.
        reads: the tensors that the backward pass reads.
        cost: the cost model.

    Attributes:
        atoms: the components.
        growth: how shapes and work grow with the batch.
        differentiated: the inputs of each operator that are differentiated.
        kept: the tensors that are kept for the backward pass.
        saved: int64[atoms, 2]: for each component the bytes of its outputs that are saved for the
            backward pass, for the whole batch; and those of them that do not grow with the batch.
    """

    def __init__(
        self,
        atoms: Atoms,
        batch_inputs: Collection[str],
        reads: BackwardReads,
        cost: CostModel,
    ) -> None:
        graph = atoms.graph
        self.atoms, self._cost = atoms, cost
        self.growth = growth = BatchGrowth(graph, batch_inputs)
        self.differentiated = differentiated_inputs(graph)
        self.kept = reads.kept(graph)
        self._sums = reader_gradient_sums(graph, self.differentiated)
        self._tasks = frozenset(atom.operator for atom in atoms.atoms)
        self._by_examples: dict[int, tuple[Int64Array, ...]] = {}
        numbers: dict[tuple[int, int, tuple[tuple[int, int], ...]], int] = {}
        # Components of one class cost the same; the first of a class stands for all.
        self._class_of = np.zeros(len(atoms), dtype=np.int64)
        self._first_of_class: list[str] = []
        self.saved = np.zeros((len(atoms), 2), dtype=np.int64)
        for place, atom in enumerate(atoms.atoms):
            operator = graph[atom.operator]
            outputs = [TensorName(operator.name, n) for n in range(len(operator.outputs))]
            sums = tuple((t.index, self._sums[t]) for t in outputs if t in self._sums)
            count = len(self.differentiated.get(operator.name, ()))
            number = numbers.setdefault((growth.alike(operator.name), count, sums), len(numbers))
            self._class_of[place] = number
            if number == len(self._first_of_class):
                self._first_of_class.append(operator.name)
            for tensor in outputs:
                saved = self._saved_bytes(tensor, growth.examples)
                self.saved[place] += saved, 0 if growth.tensor_grows(tensor) else saved

    def priced_by(self, cost: CostModel) -> AtomCosts:
        """Return the costs of the same components by another cost model with the same memory."""
        other = copy(self)
        other._cost, other._by_examples = cost, {}
        return other

    def at(self, examples: int) -> tuple[Int64Array, ...]:
        """Return the costs of all tasks, without their constants, as int64[atoms] each.

        Returns:
            Forward nanoseconds, backward nanoseconds, and the bytes that a task needs while it runs
            (forward or backward) besides the saved tensors: in the first microbatch, and in later
            ones, whose gradients by weights are beside the sums of earlier ones until it is added.
        """
        if examples not in self._by_examples:
            costs = [self._task_costs(name, examples) for name in self._first_of_class]
            of_atoms = np.array(costs, dtype=np.int64)[self._class_of]
            self._by_examples[examples] = tuple(np.ascontiguousarray(of_atoms.T))
        return self._by_examples[examples]

    def alike(self, place: int) -> int:
        """Return the class of a component. Tasks of a class cost the same at any batch."""
        return int(self._class_of[place])

    def operator_time(self, name: str, examples: int) -> OperatorTime:
        """Return the nanoseconds of one operator."""
        count = len(self.differentiated.get(name, ()))
        work = self.growth.work(name, examples, count)
        return OperatorTime(0, 0) if work is None else self._cost.operator_nanoseconds(work)

    def saved_at(self, examples: int) -> Int64Array:
        """Return int64[atoms]: the saved bytes of the given number of examples."""
        return self.part(self.saved[:, 0], self.saved[:, 1], examples)

    def part(self, whole: Int64Array, fixed: Int64Array, examples: int) -> Int64Array:
        """Return the sizes for the given number of examples.

        Args:
            whole: sizes for the whole batch.
            fixed: the part of them that does not grow with the batch.
            examples: the number of examples.
        """
        part: Int64Array = fixed + -(-(whole - fixed) * examples // self.growth.examples)
        return part

    def sums_gradient(self, operator: Operator, number: int) -> bool:
        """Whether the dense gradient by an input is summed over microbatches: a task reads what is
        computed once."""
        tensor = operator.inputs[number]
        is_made_once = tensor.operator not in self._tasks and not self.growth.tensor_grows(tensor)
        is_in_passes = operator.name in self._tasks
        return is_in_passes and is_made_once and not looks_up_rows(operator, number)

    def state_bytes(self, name: str) -> tuple[int, int]:
        """Return the bytes of a state's variables and slots, and those of its gradient.

        The gradient is at most as large as the variable, since microbatches add theirs up.
        """
        graph, state = self.atoms.graph, self.atoms.states[name]
        variables = [graph[variable].value_spec(0).bytes for variable in state.variables]
        gradients = sum(graph[gradient].outputs[0].bytes for gradient in state.gradients)
        return sum(variables), min(gradients, graph[name].value_spec(0).bytes)

    def summed_bytes(self, name: str) -> int:
        """Return the bytes whose sum over devices takes as long as that of a state's gradient.

        A sparse gradient has all slices of the batch, however few rows the variable has. Devices
        gather them, which takes half as long as a sum of as many bytes.
        """
        graph, dense, slices = self.atoms.graph, 0, 0
        for operator in (graph[gradient] for gradient in self.atoms.states[name].gradients):
            is_dense = operator.gradient is None or operator.gradient.part == "dense"
            bytes_ = prod(known_shape(operator.outputs[0].shape)) * operator.outputs[0].itemsize
            dense += bytes_ if is_dense else 0
            slices += 0 if is_dense else bytes_
        return min(dense, graph[name].value_spec(0).bytes) + slices // 2

    def slot_bytes(self, name: str) -> int:
        """Return the bytes of a state's slots, which only the stage that updates it holds."""
        return self.state_bytes(name)[0] - self.atoms.graph[name].value_spec(0).bytes

    def constant_bytes(self, name: str) -> int:
        """Return the bytes of a constant's outputs: 0 of a variable and of a view."""
        operator = self.atoms.graph[name]
        if operator.is_variable or operator.type in VIEWS:
            return 0
        return sum(spec.bytes for spec in operator.outputs)

    def dag(self, examples: int) -> Dag:
        """Return the graph of components, each with all of its constants and states.

        The time of a node is that of its forward and backward pass. Its memory is that of its
        states (variables, slots and gradients) and of its saved tensors.
        """
        forward, backward, *_ = self.at(examples)
        time, memory = forward + backward, self.saved_at(examples)
        states = {name: sum(self.state_bytes(name)) for name in self.atoms.states}
        constants: dict[str, int] = {}
        for place, atom in enumerate(self.atoms.atoms):
            for name in atom.constants:
                if name not in constants:
                    constants[name] = self.operator_time(name, examples).total
                time[place] += constants[name]
            memory[place] += sum(states[name] for name in atom.states if name in states)
        edges = [
            (maker, reader, 0 if t is None else self.growth.tensor_bytes(t, examples))
            for maker, reader, t in self.atoms.edges
        ]
        return Dag.of_edges(time, memory, edges)

    def _saved_bytes(self, tensor: TensorName, examples: int) -> int:
        """Return the saved bytes of a tensor, by the memory model. A view has none of its own."""
        operator = self.atoms.graph[tensor.operator]
        if operator.type in VIEWS or operator.mutates:
            return 0
        output = self.growth.tensor_bytes(tensor, examples)
        kept = output if tensor in self.kept else 0
        return self._cost.operator_memory(Footprint(output_bytes=output, kept_bytes=kept))

    def _task_costs(self, name: str, examples: int) -> tuple[int, int, int, int]:
        """Return the costs of one task, as `at` has them."""
        operator, growth = self.atoms.graph[name], self.growth
        time = self.operator_time(name, examples)
        backward = time.backward
        outputs = [TensorName(name, n) for n in range(len(operator.outputs))]
        for tensor in outputs:
            if tensor in self._sums:
                shape = growth.tensor_shape(tensor, examples)
                dtype = operator.value_spec(tensor.index).dtype
                gradient_sum = sum_as_measured(shape, dtype, self._sums[tensor], _ONE_DEVICE)
                backward += self._cost.operator_nanoseconds(gradient_sum.work).total
        output_bytes = sum(growth.tensor_bytes(tensor, examples) for tensor in outputs)
        saved_bytes = sum(self._saved_bytes(tensor, examples) for tensor in outputs)
        # The backward pass holds the gradients of the outputs and those of the inputs.
        input_bytes = weight_bytes = 0
        for n in self.differentiated.get(name, ()):
            bytes_ = growth.tensor_bytes(operator.inputs[n], examples)
            if growth.tensor_grows(operator.inputs[n]):
                input_bytes += bytes_
            elif self.sums_gradient(operator, n):
                weight_bytes += bytes_
        forward_bytes = output_bytes - saved_bytes if operator.type not in VIEWS else 0
        first = max(forward_bytes, output_bytes + input_bytes if input_bytes else 0)
        later = output_bytes + input_bytes + weight_bytes if weight_bytes else 0
        return time.forward, backward, first, max(first, later)
