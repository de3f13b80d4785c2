"""Counters of a session's random operators.

A stateful random kernel of TensorFlow has a counter, which every run advances. Programs for
different fetches would have different kernels, so the counter is kept here and fed to the programs.
Therefore drawn values depend neither on the programs that ran nor on the plan.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tensoropt.errors import GraphError
from tensoropt.execution.lowering.functions import job_seeds
from tensoropt.execution.lowering.microbatches import whole_region
from tensoropt.execution.lowering.open_shapes import static_shape
from tensoropt.execution.rules.random import draw_piece, draw_region, stream_of
from tensoropt.graph.operator import Graph, Operator
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.local_form import piece_shape
from tensoropt.parallel.mesh import Mesh
from tensoropt.tdl.ops.random import STATEFUL

__all__ = ["Draws", "ProgramDraws", "RandomOperator"]

_RESERVED = 256  # blocks per element by which a run advances the counter (ReserveRandomOutputs)
_COUNTERS = 1 << 64


@dataclass(frozen=True, slots=True)
class RandomOperator:
    """A stateful random operator of a program.

    Attributes:
        name: the name of the script's operator.
        seeded: whether the script gave the operator seeds; otherwise the job does.
    """

    name: str
    seeded: bool


class Draws:
    """The counters of a session's random operators.

    Args:
        unseeded: the counters of operators without seeds, by name. The next session goes on with
            them, so that it draws other values. A seeded operator starts anew in every session.

    Attributes:
        unseeded: see above.
    """

    def __init__(self, unseeded: MutableMapping[str, int] | None = None) -> None:
        self._seeded: dict[str, int] = {}
        self.unseeded: MutableMapping[str, int] = {} if unseeded is None else unseeded

    def counters(self, operators: tuple[RandomOperator, ...]) -> npt.NDArray[np.uint64]:
        """Return the counter at which each operator's next draw starts."""
        return np.array([self._kept(op).get(op.name, 0) for op in operators], np.uint64)

    def advance(self, drawn: Mapping[RandomOperator, int]) -> None:
        """Advance the counters after a run.

        Args:
            drawn: the number of elements of each operator's whole tensor.
        """
        for operator, elements in drawn.items():
            kept = self._kept(operator)
            advanced = kept.get(operator.name, 0) + elements * _RESERVED
            kept[operator.name] = advanced % _COUNTERS

    @property
    def seeded(self) -> dict[str, int]:
        """The counters of operators with seeds, by name."""
        return dict(self._seeded)

    def go_on_from(self, seeded: Mapping[str, int]) -> None:
        """Set the counters of operators with seeds that have drawn nothing yet."""
        self._seeded = {**seeded, **self._seeded}

    def _kept(self, operator: RandomOperator) -> MutableMapping[str, int]:
        return self._seeded if operator.seeded else self.unseeded


class ProgramDraws:
    """The random operators of one program. The program's graph is the default one in all calls.

    Args:
        graph: the part of the script's graph that the program needs.
        seed: the job's seed.

    Attributes:
        operators: the stateful random operators.
        counters: the placeholder of `Draws.counters`; None if there are no stateful operators.
        elements: the number of elements that each operator draws; a tensor if only a run knows it.
    """

    def __init__(self, graph: Graph, seed: int) -> None:
        self._seed = seed
        drawing = [operator for operator in graph if operator.type in STATEFUL]
        named = {op.script_name: any(_seeds(op)) for op in drawing}
        self.operators = tuple(RandomOperator(name, seeded) for name, seeded in named.items())
        self.elements: dict[RandomOperator, int | tf.Tensor] = {}
        self.counters: tf.Tensor | None = None
        self._numbers = {name: n for n, name in enumerate(named)}
        if drawing:
            with tf.control_dependencies(None):
                self.counters = tf.compat.v1.placeholder(tf.uint64, [len(named)], "draws")

    def draw(
        self, operator: Operator, inputs: Sequence[tf.Tensor], layout: Layout, mesh: Mesh, rank: int
    ) -> tf.Tensor:
        """Draw a device's shard of a random operator's output.

        Args:
            operator: a described random operator.
            inputs: the operator's inputs on the device.
            layout: the layout of the output.
            mesh: the devices.
            rank: the rank of the device.
        """
        dtype, shape = operator.outputs[0].dtype, _known_shape(operator)
        if operator.type in STATEFUL:
            number = self._numbers[operator.script_name]
            counted = self.operators[number]
            assert self.counters is not None, "there is a counter for each stateful operator"
            if shape is None:
                elements = tf.reduce_prod(tf.cast(inputs[0], tf.int64))
                self.elements.setdefault(counted, elements)
            else:
                self.elements[counted] = prod(shape)
            seeds = (
                _seeds(operator) if counted.seeded else job_seeds(operator.script_name, self._seed)
            )
            stream = stream_of(operator.type, dtype, inputs, seeds, self.counters[number])
        else:
            stream = stream_of(operator.type, dtype, inputs)
        if shape is None:
            piece = draw_piece(stream, inputs[0], layout, mesh, rank)
            if operator.outputs[0].shape:  # () also stands for an unknown number of dimensions.
                local = piece_shape(layout, operator.outputs[0].shape, mesh)
                piece.set_shape(static_shape(local))
            return piece
        region = layout.region(operator.outputs[0].shape, mesh, rank)
        return draw_region(stream, shape, whole_region(operator, region))

    def note(self, operator: Operator) -> None:
        """Count the elements that a stateful random operator draws in another process.

        Raises:
            GraphError: if only a run decides the shape.
        """
        shape = _known_shape(operator)
        if shape is None:
            raise GraphError(
                "a random operator in a pipeline draws a known shape, so that all ranks can count "
                f"the elements. Got {operator.script_name!r}, whose shape only a run decides."
            )
        self.elements[self.operators[self._numbers[operator.script_name]]] = prod(shape)


def _known_shape(operator: Operator) -> tuple[int, ...] | None:
    """The shape of the drawn tensor; None if only a run decides it."""
    value = operator.input_specs[0].value
    if value is not None:
        return tuple(int(extent) for extent in value)
    shape = operator.outputs[0].shape  # () also stands for an unknown number of dimensions.
    return shape if shape and -1 not in shape else None


def _seeds(operator: Operator) -> tuple[int, int]:
    first, second = (int(str(operator.attributes.get(key, 0))) for key in ("seed", "seed2"))
    return first, second
