"""The steps of a job and its machines, as the bytes that the searching process reads.

They are eight bytes with the length of a JSON text, this text, and the steps' graphs as TensorFlow
writes them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import IO, Annotated, Any

import tensorflow as tf

from tensoropt.converters import Natural, Pairs, Text, from_values, to_values
from tensoropt.cost.cluster import Cluster
from tensoropt.cost.measured_links import MeasuredLinks
from tensoropt.execution.world.mpi_world import Transport
from tensoropt.frontend.inputs.shapes import note_examples
from tensoropt.frontend.job.hardware import RankFacts
from tensoropt.planner.options.planning_options import PlanningOptions
from tensoropt.planner.request import Request

__all__ = ["Message", "Step", "read_message", "step_of", "write_message"]

_OF_THE_GRAPH = frozenset({"batch_size", "feed_dict", "fetches", "fixed", "shapes", "validate"})
"""Options that a step's shapes and roots replace, that it has in another form, or that exclude it.
"""
_RULE = "a message between processes of one job follows its schema. Got"
_LENGTH_BYTES = 8

_Value = bool | int | float | str | tuple[float | int, ...] | None


@dataclass(frozen=True, slots=True)
class Step:
    """A training step, besides its graph.

    Attributes:
        options: the options of `find_strategy` that do not refer to the graph, by name.
        fixed: the dimensions that the script divides by hand, as the command line has them.
        roots: the operators that the step runs.
        shapes: the shape of each placeholder.
        batch_placeholders: the placeholders whose first dimension is the batch.
        graph_bytes: the length of its graph.
    """

    options: Annotated[tuple[tuple[str, _Value], ...], Pairs()]
    fixed: tuple[Text, ...]
    roots: tuple[Text, ...]
    shapes: Annotated[tuple[tuple[str, tuple[Natural, ...]], ...], Pairs()]
    batch_placeholders: tuple[Text, ...]
    graph_bytes: Natural = 0

    def planning_options(self, graph: tf.Graph) -> PlanningOptions:
        """The step's options in a graph that was made from its definition."""
        note_examples(graph, self.batch_placeholders)
        options: dict[str, Any] = dict(self.options)
        shapes = dict(self.shapes)
        return PlanningOptions(
            **options, fixed=self.fixed or None, shapes=shapes, fetches=self.roots
        )


@dataclass(frozen=True, slots=True)
class Message:
    """The steps of a job and its machines.

    Attributes:
        starts: the starts to plan for, see `tensoropt.elastic.hosts.NextStart`.
        ranks: the ranks of the present start.
        cluster: the cluster that the script names; None if it names none.
        links: the measured links; None on one machine, and for a named cluster.
        library: name and version of the MPI library.
        transport: see `Job.transport`.
        steps: the steps.
    """

    starts: tuple[tuple[Natural, ...], ...]
    ranks: tuple[RankFacts, ...]
    cluster: Cluster | None
    links: MeasuredLinks | None
    library: str
    transport: Transport
    steps: tuple[Step, ...]


def step_of(options: PlanningOptions, request: Request) -> Step:
    """The step of a request that was made with some options."""
    names = [declared.name for declared in fields(options)]
    return Step(
        tuple((name, getattr(options, name)) for name in names if name not in _OF_THE_GRAPH),
        tuple(map(str, request.pins.words)),
        request.roots,
        tuple((name, tuple(shape)) for name, shape in request.shapes.items()),
        tuple(sorted(request.batch_placeholders)),
    )


def write_message(message: Message, graphs: Sequence[tf.Graph], file: IO[bytes]) -> None:
    """Write a message.

    Args:
        message: the message.
        graphs: the graph of each step.
        file: the file.

    Raises:
        ValueError: if a graph takes more than 2 GiB.
    """
    contents = [graph.as_graph_def(add_shapes=True).SerializeToString() for graph in graphs]
    sized = zip(message.steps, contents, strict=True)
    steps = tuple(replace(step, graph_bytes=len(content)) for step, content in sized)
    text = json.dumps(to_values(replace(message, steps=steps))).encode()
    for content in (len(text).to_bytes(_LENGTH_BYTES, "big"), text, *contents):
        file.write(content)


def read_message(file: IO[bytes]) -> tuple[Message, list[tf.Graph]]:
    """Read a message and the graph of each step: the inverse of `write_message`.

    Raises:
        PlanError: if a value breaks a rule.
        ValueError: if a graph has operators that this process does not know.
    """
    length = int.from_bytes(file.read(_LENGTH_BYTES), "big")
    message = from_values(Message, json.loads(file.read(length)), _RULE, "Report this.")
    graphs = []
    for step in message.steps:
        definition = tf.compat.v1.GraphDef.FromString(file.read(step.graph_bytes))
        graph = tf.Graph()
        with graph.as_default():
            tf.graph_util.import_graph_def(definition, name="")
        graphs.append(graph)
    return message, graphs
