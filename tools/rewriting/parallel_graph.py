"""The parallel computation graph as a value (Unity, section 3).

Operators have degrees and a machine mapping; between them stand the operators that change how a
tensor lies: Partition and Combine, Replicate and Reduce, Pipeline and Batch. A strategy becomes one
and comes back from it, so what is searched here (a configuration for each operator, layouts on
edges) and what Unity searches are two notations of the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import Strategy

__all__ = ["MachineMapping", "Move", "ParallelEdge", "ParallelGraph", "ParallelOperator", "Stage"]


@dataclass(frozen=True, slots=True)
class MachineMapping:
    """Which devices compute which task of an operator (Unity, section 3.2).

    Attributes:
        degrees: per index of the iteration space into how many tasks it falls.
        devices: per task, row-major over the degrees, the devices that compute it, each a copy.
    """

    degrees: tuple[int, ...]
    devices: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, configuration: Configuration, stage: Stage) -> MachineMapping:
        """Of an operator of a stage."""
        degrees = tuple(stage.mesh.pieces(axes) for axes in configuration.splits)
        tasks: dict[int, list[int]] = {}
        for rank in stage.mesh:
            task = 0
            for axes, degree in zip(configuration.splits, degrees, strict=True):
                task = task * degree + stage.mesh.piece(rank, axes)
            tasks.setdefault(task, []).append(stage.devices[rank])
        return cls(degrees, tuple(tuple(tasks[task]) for task in sorted(tasks)))

    def splits(self, stage: Stage) -> tuple[tuple[int, ...], ...]:
        """Per index the axes of the stage's mesh that split it, the major one first."""
        task_of = {device: n for n, group in enumerate(self.devices) for device in group}
        start = self._place(task_of[stage.devices[0]])
        strides: list[dict[int, int]] = [{} for _ in self.degrees]
        for axis in range(len(stage.mesh.axes)):
            step = [int(n == axis) for n in range(len(stage.mesh.axes))]
            place = self._place(task_of[stage.devices[stage.mesh.rank(step)]])
            for index, (here, there) in enumerate(zip(start, place, strict=True)):
                if here != there:
                    strides[index][axis] = there - here
        return tuple(
            tuple(sorted(own, key=lambda axis, own=own: -own[axis]))  # type: ignore[misc]
            for own in strides
        )

    def _place(self, task: int) -> tuple[int, ...]:
        found = []
        for degree in reversed(self.degrees):
            task, own = divmod(task, degree)
            found.append(own)
        return tuple(reversed(found))


@dataclass(frozen=True, slots=True)
class Stage:
    """Some devices; all of them, where there is no pipeline.

    Attributes:
        mesh: how they are linked.
        devices: their numbers, in the order of the mesh.
    """

    mesh: Mesh
    devices: tuple[int, ...]

    @classmethod
    def of(cls, mesh: Mesh, first: int = 0) -> Stage:
        """Consecutive devices."""
        return cls(mesh, tuple(range(first, first + mesh.size)))


@dataclass(frozen=True, slots=True)
class Move:
    """A parallelization operator on an edge.

    Attributes:
        kind: "partition", "combine", "replicate", "reduce", "pipeline" or "batch".
        degree: number of shards, copies or microbatches.
        dim: the dimension; None for copies and sums.
    """

    kind: str
    degree: int
    dim: int | None = None

    def __str__(self) -> str:
        return f"{self.kind}{'' if self.dim is None else f'[{self.dim}]'}({self.degree})"


@dataclass(frozen=True, slots=True)
class ParallelEdge:
    """A tensor from where it is made to where it is read.

    Attributes:
        tensor: which.
        reader: name of the operator.
        number: of its input.
        moves: on the way.
    """

    tensor: str
    reader: str
    number: int
    moves: tuple[Move, ...]


@dataclass(frozen=True, slots=True)
class ParallelOperator:
    """An operator of a parallel computation graph.

    Attributes:
        name: the script's name of it.
        type: TensorFlow's operator type.
        mapping: degrees and devices.
        kept: which copies of its outputs are kept for the backward pass.
    """

    name: str
    type: str
    mapping: MachineMapping
    kept: str = "both"


@dataclass(frozen=True, slots=True)
class ParallelGraph:
    """A strategy as a graph.

    Attributes:
        stages: of a pipeline; one of all devices without.
        operators: in topological order.
        edges: by reader.
        microbatches: how many a step has.
    """

    stages: tuple[Stage, ...]
    operators: tuple[ParallelOperator, ...]
    edges: tuple[ParallelEdge, ...]
    microbatches: int = 1

    @classmethod
    def of(
        cls,
        graph: Graph,
        stages: Sequence[Stage],
        configurations: Mapping[str, Configuration],
        stage_of: Mapping[str, int] | None = None,
        batch_placeholders: frozenset[str] = frozenset(),
        microbatches: int = 1,
    ) -> ParallelGraph:
        """The parallel computation graph of a strategy.

        Args:
            graph: the operators.
            stages: of a pipeline, or one.
            configurations: of operators, by name, each on its stage's mesh; others are in no graph.
            stage_of: the number of each operator's stage; 0 if left out.
            batch_placeholders: what is fed microbatch by microbatch.
            microbatches: how many.
        """
        stage_of = stage_of or {}
        strategies = [
            Strategy(graph, stage.mesh, _own(configurations, stage_of, number), batch_placeholders)
            for number, stage in enumerate(stages)
        ]
        operators = []
        edges: list[ParallelEdge] = []
        for operator in graph:
            if operator.name not in configurations:
                continue
            own, configuration = stage_of.get(operator.name, 0), configurations[operator.name]
            mapping = MachineMapping.of(configuration, stages[own])
            operators.append(
                ParallelOperator(operator.name, operator.type, mapping, configuration.kept)
            )
            for number, tensor in enumerate(operator.inputs):
                if tensor.operator in configurations and operator.gradient is None:
                    there = stage_of.get(tensor.operator, 0)
                    moves = (
                        *_leaving(strategies[there], tensor, stages[there].mesh),
                        *_arriving(strategies[own], operator, number, stages[own].mesh),
                    )
                    if there == own:
                        moves = _between(strategies[own], operator, number, stages[own].mesh)
                    if microbatches > 1:
                        moves = (*moves, *_in_time(graph, operator, tensor, batch_placeholders,
                                                   microbatches))  # fmt: skip
                    edges.append(ParallelEdge(str(tensor), operator.name, number, moves))
        return cls(tuple(stages), tuple(operators), tuple(edges), microbatches)

    def configurations(self) -> dict[str, Configuration]:
        """The configuration of each operator, on its stage's mesh."""
        stage_of = self.stage_of()
        return {
            operator.name: Configuration(
                operator.mapping.splits(self.stages[stage_of[operator.name]]), operator.kept
            )
            for operator in self.operators
        }

    def stage_of(self) -> dict[str, int]:
        """The number of each operator's stage, by its devices."""
        of_device = {
            device: number for number, stage in enumerate(self.stages) for device in stage.devices
        }
        return {each.name: of_device[each.mapping.devices[0][0]] for each in self.operators}

    def __str__(self) -> str:
        """A line for each operator: what it reads, over which parallelization operators."""
        by_reader: dict[str, list[ParallelEdge]] = {}
        for edge in self.edges:
            by_reader.setdefault(edge.reader, []).append(edge)
        lines = []
        for operator in self.operators:
            read = ", ".join(_written(edge) for edge in by_reader.get(operator.name, ()))
            degrees = "x".join(map(str, operator.mapping.degrees)) or "1"
            lines.append(f"{operator.name} = {operator.type}[{degrees}]({read})")
        return "\n".join(lines)

    def to_dot(self) -> str:
        """The graph in Graphviz's language: operators green, what changes layouts orange."""
        lines = ["digraph {", "  node [shape=box, style=filled, fillcolor=palegreen];"]
        for operator in self.operators:
            degrees = "x".join(map(str, operator.mapping.degrees)) or "1"
            lines.append(f'  "{operator.name}" [label="{operator.type} {degrees}"];')
        for edge in self.edges:
            maker = TensorName.parse(edge.tensor).operator
            if not edge.moves:
                lines.append(f'  "{maker}" -> "{edge.reader}";')
                continue
            node = f"{edge.tensor} to {edge.reader} {edge.number}"
            label = "\\n".join(map(str, edge.moves))
            lines.append(f'  "{node}" [label="{label}", fillcolor=orange];')
            lines.append(f'  "{maker}" -> "{node}" -> "{edge.reader}";')
        return "\n".join([*lines, "}"])


def _own(
    configurations: Mapping[str, Configuration], stage_of: Mapping[str, int], number: int
) -> dict[str, Configuration]:
    return {name: own for name, own in configurations.items() if stage_of.get(name, 0) == number}


def _written(edge: ParallelEdge) -> str:
    text = edge.tensor
    for move in edge.moves:
        text = f"{move}({text})"
    return text


def _between(strategy: Strategy, operator: Operator, number: int, mesh: Mesh) -> tuple[Move, ...]:
    """From a layout to another: what differs becomes whole, and then what it is at the reader."""
    source = strategy.output_slot(operator.inputs[number]).forward
    target = strategy.input_slot(operator, number).forward
    if operator.input_specs[number].dtype == "resource":
        return ()
    made, read = _states(source, mesh), _states(target, mesh)
    axes = [axis for axis in range(len(mesh.axes)) if made[axis] != read[axis]]
    return (*_moves(made, axes, mesh, _TO_WHOLE), *_moves(read, axes, mesh, _FROM_WHOLE))


def _leaving(strategy: Strategy, tensor: TensorName, mesh: Mesh) -> tuple[Move, ...]:
    made = _states(strategy.output_slot(tensor).forward, mesh)
    return tuple(_moves(made, range(len(mesh.axes)), mesh, _TO_WHOLE))


def _arriving(strategy: Strategy, operator: Operator, number: int, mesh: Mesh) -> tuple[Move, ...]:
    read = _states(strategy.input_slot(operator, number).forward, mesh)
    return tuple(_moves(read, range(len(mesh.axes)), mesh, _FROM_WHOLE))


_State = tuple[str, int | None]

_TO_WHOLE = {"shards": "combine", "sums": "reduce"}
_FROM_WHOLE = {"shards": "partition", "copies": "replicate"}


def _states(layout: Layout, mesh: Mesh) -> list[_State]:
    """Per axis: which dimension it splits, whether sums are left over it, or copies."""
    found: list[_State] = [("copies", None)] * len(mesh.axes)
    for dim, axes in enumerate(layout.dims):
        for axis in axes:
            found[axis] = ("shards", dim)
    for axis in layout.partial:
        found[axis] = ("sums", None)
    return found


def _moves(
    states: Sequence[_State], axes: Iterable[int], mesh: Mesh, kinds: Mapping[str, str]
) -> Iterator[Move]:
    """What changes the states of some axes, by what does it for each kind of state."""
    degrees: dict[_State, int] = {}
    for axis in axes:
        degrees[states[axis]] = degrees.get(states[axis], 1) * mesh.axes[axis]
    for (kind, dim), degree in degrees.items():
        if kind in kinds:
            yield Move(kinds[kind], degree, dim)


def _in_time(
    graph: Graph,
    operator: Operator,
    tensor: TensorName,
    batch_placeholders: frozenset[str],
    microbatches: int,
) -> Iterator[Move]:
    """Microbatches begin where the batch is read, and end where a gradient is."""
    if tensor.operator in batch_placeholders:
        yield Move("pipeline", microbatches, 0)
    elif graph[tensor.operator].gradient is not None and operator.mutates:
        yield Move("batch", microbatches)
