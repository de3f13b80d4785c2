"""Time and memory of atomic components on some examples, and the graph of which blocks are made."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from tensoropt.arrays import Int64Array
from tensoropt.cost.memory import Footprint
from tensoropt.cost.model import CostModel
from tensoropt.cost.operator_time import OperatorTime
from tensoropt.graph.backward_reads import VIEWS, BackwardReads
from tensoropt.graph.differentiation import differentiated_inputs
from tensoropt.graph.operator import TensorName
from tensoropt.parallel.mesh import Mesh
from tensoropt.pipeline.atomic import Atoms
from tensoropt.pipeline.batch_growth import BatchGrowth
from tensoropt.pipeline.blocks.dag import Dag
from tensoropt.problem.operators.gradient_sums import gradient_sums, sum_as_measured

__all__ = ["AtomCosts"]

_ONE_DEVICE = Mesh.of(1, (1,))


class AtomCosts:
    """What components cost on one device, each at its part of the step's examples.

    Args:
        atoms: the components.
        batch_inputs: placeholders whose first dimension is the batch.
        reads: what the backward pass reads.
        cost: the prices.

    Attributes:
        atoms: the components.
        growth: of the step with the batch.
        saved: int64[atoms, 2]: bytes saved for the backward pass of what each makes, of the whole
            batch, and of these what does not grow with it.
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
        self._sums = gradient_sums(graph, self.differentiated)
        self._known: dict[int, tuple[Int64Array, Int64Array, Int64Array]] = {}
        numbers: dict[tuple[int, int, tuple[tuple[int, int], ...]], int] = {}
        self._of = np.zeros(len(atoms), dtype=np.int64)  # of components that cost the same
        self._first: list[str] = []
        self.saved = np.zeros((len(atoms), 2), dtype=np.int64)
        for place, atom in enumerate(atoms.atoms):
            operator = graph[atom.operator]
            outputs = [TensorName(operator.name, n) for n in range(len(operator.outputs))]
            sums = tuple((t.index, self._sums[t]) for t in outputs if t in self._sums)
            count = len(self.differentiated.get(operator.name, ()))
            number = numbers.setdefault((growth.alike(operator.name), count, sums), len(numbers))
            self._of[place] = number
            if number == len(self._first):
                self._first.append(operator.name)
            for tensor in outputs:
                made = self._footprint(tensor, growth.examples)
                self.saved[place] += made, 0 if growth.tensor_grows(tensor) else made

    def at(self, examples: int) -> tuple[Int64Array, Int64Array, Int64Array]:
        """int64[atoms] each, of so many examples: nanoseconds forward and backward, without the
        constants, and bytes while it runs, forward or backward, besides what is saved."""
        if examples not in self._known:
            found = np.array([self._one(name, examples) for name in self._first], dtype=np.int64)
            forward, backward, transient = np.ascontiguousarray(found[self._of].T)
            self._known[examples] = forward, backward, transient
        return self._known[examples]

    def alike(self, place: int) -> int:
        """A number that components share whose tasks cost the same on any number of examples."""
        return int(self._of[place])

    def operator_time(self, name: str, examples: int) -> OperatorTime:
        """Nanoseconds of one operator."""
        count = len(self.differentiated.get(name, ()))
        work = self.growth.work(name, examples, count)
        return OperatorTime(0, 0) if work is None else self._cost.operator_nanoseconds(work)

    def saved_at(self, examples: int) -> Int64Array:
        """int64[atoms]: bytes of so many examples."""
        return self.part(self.saved[:, 0], self.saved[:, 1], examples)

    def part(self, whole: Int64Array, fixed: Int64Array, examples: int) -> Int64Array:
        """Of sizes of the whole batch, with what of them does not grow, those of some examples."""
        part: Int64Array = fixed + -(-(whole - fixed) * examples // self.growth.examples)
        return part

    def state_bytes(self, name: str) -> tuple[int, int]:
        """Of a state: its variables and slots; its gradient, which is as large as the variable at
        most, since the microbatches' are added up."""
        graph, state = self.atoms.graph, self.atoms.states[name]
        held = [graph[each].value_spec(0).bytes for each in state.variables]
        gradients = sum(graph[each].outputs[0].bytes for each in state.gradients)
        return sum(held), min(gradients, graph[name].value_spec(0).bytes)

    def constant_bytes(self, name: str) -> int:
        """Of a constant that is no variable, nor a view of one."""
        operator = self.atoms.graph[name]
        if operator.is_variable or operator.type in VIEWS:
            return 0
        return sum(spec.bytes for spec in operator.outputs)

    def dag(self, examples: int) -> Dag:
        """The components as what blocks are made of, each with all of its constants and states.

        Time is forward and backward; memory that of states, with gradients and slots, and of what
        is saved of so many examples.
        """
        forward, backward, _ = self.at(examples)
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

    def _footprint(self, tensor: TensorName, examples: int) -> int:
        """Bytes saved of a tensor, by the memory model; a view's are those that it is a view of."""
        operator = self.atoms.graph[tensor.operator]
        if operator.type in VIEWS or operator.mutates:
            return 0
        made = self.growth.tensor_bytes(tensor, examples)
        kept = made if tensor in self.kept else 0
        return self._cost.operator_memory(Footprint(output_bytes=made, kept_bytes=kept)).kept

    def _one(self, name: str, examples: int) -> tuple[int, int, int]:
        operator, growth = self.atoms.graph[name], self.growth
        time = self.operator_time(name, examples)
        backward = time.backward
        outputs = [TensorName(name, n) for n in range(len(operator.outputs))]
        for tensor in outputs:
            if tensor in self._sums:
                shape = growth.tensor_shape(tensor, examples)
                dtype = operator.value_spec(tensor.index).dtype
                added = sum_as_measured(shape, dtype, self._sums[tensor], _ONE_DEVICE)
                backward += self._cost.operator_nanoseconds(added.work).total
        made = sum(growth.tensor_bytes(tensor, examples) for tensor in outputs)
        kept = sum(self._footprint(tensor, examples) for tensor in outputs)
        # Backward the gradients of its outputs arrive, and those of its inputs are made.
        passed = sum(
            growth.tensor_bytes(operator.inputs[n], examples)
            for n in self.differentiated.get(name, ())
            if growth.tensor_grows(operator.inputs[n])
        )
        transient = made - kept if operator.type not in VIEWS else 0
        return time.forward, backward, max(transient, made + passed if passed else 0)
