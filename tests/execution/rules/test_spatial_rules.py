"""Spatial splits of windows, on random shapes, against TensorFlow's kernel on the whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf

import tensoropt
from collectives import Sequence
from tensoropt.execution.rules import spatial
from tensoropt.execution.rules.within import Rule, SplitOperator
from tensoropt.execution.world.world import SingleProcessWorld
from tensoropt.graph.operator import Operator, TensorName
from tensoropt.parallel.configuration import (
    Configuration,
    configurations,
    input_slot,
    output_slot,
)
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.tdl import Derivation, derive
from tensoropt.tensor_spec import TensorSpec
from tests.proofs import proof

tensoropt.enable_graph_mode()

Array = npt.NDArray[Any]

MESHES = (Mesh((2,)), Mesh((2, 2)), Mesh((2, 3)), Mesh((2, 2, 2)))


@dataclass(frozen=True)
class Case:
    """One use of an operator; ``learns`` are the inputs with a gradient."""

    type: str
    inputs: tuple[Array, ...]
    attributes: dict[str, Any]
    learns: tuple[int, ...]

    @property
    def dtype(self) -> Any:
        """The type of the elements."""
        return self.inputs[self.learns[0]].dtype

    def run(self, inputs: Any) -> Any:
        types = tf.raw_ops.__dict__[self.type]
        names = {
            "AvgPool": ("value",),
            "Conv2D": ("input", "filter"),
            "Conv3D": ("input", "filter"),
            "DepthwiseConv2dNative": ("input", "filter"),
            "Dilation2D": ("input", "filter"),
            "MaxPoolV2": ("input", "ksize", "strides"),
        }.get(self.type, ("input",))
        if "Backprop" in self.type:
            names = ("input_sizes", "filter", "out_backprop")
        return types(**dict(zip(names, inputs, strict=True)), **self.attributes)


RULES: dict[str, Rule] = {
    "AvgPool": spatial.average_pool,
    "AvgPool3D": spatial.average_pool,
    "Conv2D": spatial.convolution,
    "Conv2DBackpropInput": spatial.transposed_convolution,
    "Conv3D": spatial.convolution,
    "Conv3DBackpropInputV2": spatial.transposed_convolution,
    "DepthwiseConv2dNative": spatial.convolution,
    "DepthwiseConv2dNativeBackpropInput": spatial.transposed_convolution,
    "Dilation2D": spatial.convolution,
    "MaxPool": spatial.max_pool,
    "MaxPool3D": spatial.max_pool,
    "MaxPoolV2": spatial.max_pool,
}
SINGLE = ("AvgPool3D", "MaxPool3D")


def draw_case(op_type: str, random: np.random.Generator) -> Case | None:
    """A use of the operator, None where the numbers drawn do not make one.

    In float64 but where the CPU has float32 only: pools of volumes, gradients of dilated
    convolutions, channels first.
    """
    rank = 3 if "3D" in op_type else 2
    single = op_type in SINGLE or (op_type == "Conv2D" and bool(random.integers(2)))
    dtype = np.float32 if single else np.float64
    extents = [int(n) for n in random.choice([4, 6, 8, 12, 16, 24], rank)]
    kernel = [int(n) for n in random.integers(1, 6, rank)]
    if op_type in SINGLE and any(k > n for k, n in zip(kernel, extents, strict=True)):
        return None  # TensorFlow's own gradient is wrong there, without oneDNN
    strides = [int(n) for n in random.integers(1, 4, 1)] * rank
    padding = str(random.choice(["SAME", "SAME", "VALID", "EXPLICIT"]))
    if padding == "EXPLICIT" and not op_type.startswith("Conv2D"):
        return None
    dilations = [int(n) for n in random.integers(1, 3, 1)] * rank
    if not (op_type == "Conv2D" and single and max(strides) == 1):
        dilations = [1] * rank
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    edges = [(int(random.integers(k)), int(random.integers(k))) for k in spans]
    if padding == "SAME":
        small = [-(-n // s) for n, s in zip(extents, strides, strict=True)]
    else:
        small = [
            (n + sum(edge) * (padding == "EXPLICIT") - span) // s + 1
            for n, edge, span, s in zip(extents, edges, spans, strides, strict=True)
        ]
    if min(small) < 1:
        return None
    first = single and rank == 2 and bool(random.integers(2))

    def placed(batch: Any, space: list[Any], channels: Any) -> list[Any]:
        return [batch, channels, *space] if first else [batch, *space, channels]

    attributes: dict[str, Any] = {"strides": placed(1, strides, 1), "padding": padding}
    attributes["data_format"] = ("N" + "DHW"[-rank:] + "C") if not first else "NCHW"
    if op_type == "Conv2D":
        attributes["dilations"] = placed(1, dilations, 1)
    if padding == "EXPLICIT":
        attributes["explicit_paddings"] = [n for e in placed((0, 0), edges, (0, 0)) for n in e]
    channels, made = 2, 2 if "Depthwise" in op_type else 4
    data: Array = random.normal(size=placed(2, extents, channels)).astype(dtype)
    filters = random.normal(size=(*kernel, channels, made)).astype(dtype)
    if "Pool" in op_type:
        # Ties, so that it shows which element of several a maximum's gradient goes to.
        data, size = np.round(2 * data), placed(1, kernel, 1)
        if op_type == "MaxPoolV2":
            steps = np.array(attributes.pop("strides"), np.int32)
            return Case(op_type, (data, np.array(size, np.int32), steps), attributes, (0,))
        return Case(op_type, (data,), attributes | {"ksize": size}, (0,))
    if "Backprop" in op_type:
        outs = channels * made if "Depthwise" in op_type else made
        gradient = random.normal(size=placed(2, small, outs)).astype(dtype)
        return Case(
            op_type, (np.array(data.shape, np.int32), filters, gradient), attributes, (1, 2)
        )
    if op_type == "Dilation2D":
        del attributes["data_format"]
        return Case(op_type, (data, filters[..., 0]), attributes | {"rates": [1, 1, 1, 1]}, (0, 1))
    return Case(op_type, (data, filters), attributes, (0, 1))


def cases(op_type: str, number: int, seed: int) -> Iterator[tuple[Case, Mesh, Configuration]]:
    """Uses of operators, each with a split that needs the rule."""
    random = np.random.default_rng(seed)
    while number:
        case = draw_case(op_type, random)
        if case is None:
            continue
        mesh = MESHES[int(random.integers(len(MESHES)))]
        derivation, _ = derived(case)
        ways = [
            way
            for way in configurations(derivation, mesh)
            if any(
                axes and index.spelled_out
                for index, axes in zip(derivation.indices, way.splits, strict=True)
            )
        ]
        if ways:
            number -= 1
            yield case, mesh, ways[int(random.integers(len(ways)))]


def derived(case: Case) -> tuple[Derivation, Operator]:
    with tf.Graph().as_default():
        made = case.run([tf.constant(x) for x in case.inputs])
        shape = tuple(made.shape.as_list())
    inputs = tuple(
        TensorSpec(x.shape, x.dtype.name, x if x.dtype.kind == "i" else None) for x in case.inputs
    )
    outputs = (TensorSpec(shape, case.dtype.name),)
    names = tuple(TensorName(f"x{n}", 0) for n in range(len(inputs)))
    operator = Operator("op", case.type, names, inputs, outputs, case.attributes)
    return derive(case.type, inputs, outputs, case.attributes), operator


def assembled(layout: Layout, pieces: list[Array], shape: tuple[int, ...], mesh: Mesh) -> Array:
    """The tensor that pieces stand for: partial ones add up, replicas are averaged."""
    whole = np.zeros(shape)
    split = mesh.pieces([axis for axes in (*layout.dims, layout.partial) for axis in axes])
    for rank, piece in enumerate(pieces):
        whole[layout.region(shape, mesh, rank)] += piece * split / mesh.size
    return whole


def errors(case: Case, mesh: Mesh, way: Configuration) -> list[float]:
    """Return the errors of the output and of each gradient, relative to the largest element."""
    derivation, operator = derived(case)
    random = np.random.default_rng(1)
    shape = derivation.output_shapes[0]
    upstream = random.normal(size=shape).astype(case.dtype)
    slots = [input_slot(derivation, way, n) for n in range(len(case.inputs))]
    out = output_slot(derivation, way, 0)
    fed: dict[tf.Tensor, Array] = {}

    def given_as(x: Array) -> tf.Tensor:
        """Inputs are fed: TensorFlow loses gradients of pools of constants (2.18, oneDNN)."""
        tensor = tf.compat.v1.placeholder(x.dtype, x.shape)
        fed[tensor] = x
        return tensor

    with tf.Graph().as_default(), tf.compat.v1.Session() as session, Sequence():
        whole = [given_as(x) if x.dtype.kind == "f" else tf.constant(x) for x in case.inputs]
        expected = case.run(whole)
        right = [expected, *tf.gradients(expected, [whole[n] for n in case.learns], upstream)]
        shards = [
            [given_as(x[slot.forward.region(x.shape, mesh, rank)]) for rank in mesh]
            if x.dtype.kind == "f"
            else [tf.constant(x)] * mesh.size
            for x, slot in zip(case.inputs, slots, strict=True)
        ]
        world = SingleProcessWorld(mesh)
        (made,) = RULES[case.type](SplitOperator(world, operator, derivation, way), shards)
        given = [tf.constant(upstream[out.gradient.region(shape, mesh, rank)]) for rank in mesh]
        found = [made]
        for n in case.learns:
            found.append(tf.gradients(made, shards[n], given))
        right, found = session.run([right, found], fed)
    wholes = [assembled(out.forward, found[0], shape, mesh)]
    for n, gradients in zip(case.learns, found[1:], strict=True):
        wholes.append(assembled(slots[n].gradient, gradients, case.inputs[n].shape, mesh))
    return [
        float(np.max(np.abs(a - b)) / max(1.0, np.max(np.abs(b))))
        for a, b in zip(wholes, right, strict=True)
    ]


@pytest.mark.parametrize(
    ("op_type", "number"),
    [
        *((op_type, 2 if "3D" in op_type else 3) for op_type in RULES),
        *(proof(op_type, 6) for op_type in RULES),
    ],
)
def test_pieces_with_halos_are_the_whole(op_type: str, number: int) -> None:
    for case, mesh, way in cases(op_type, number, seed=len(op_type)):
        bar = 1e-11 if case.dtype == np.float64 else 2e-5
        shapes = [x.shape for x in case.inputs]
        assert max(errors(case, mesh, way)) < bar, (shapes, case.attributes, mesh, way)
