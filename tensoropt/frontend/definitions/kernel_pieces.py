"""Run an operator's kernel on the pieces of its inputs, and put the results together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tensoropt.errors import DescriptionError
from tensoropt.graph.from_tensorflow.attributes import python_attribute, python_attributes
from tensoropt.parallel.configuration import Configuration, input_slot, output_slot, rescaling
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.local_form import local_form
from tensoropt.parallel.mesh import Mesh
from tensoropt.tdl import Derivation
from tensoropt.tensor_spec import TensorSpec
from tensoropt.tensorflow_private import op_def_library, op_def_registry, unrecorded_gradients

__all__ = ["Kernel", "KernelRun", "assemble", "is_close", "run_in_pieces", "share"]

Array = npt.NDArray[Any]

_MERGE: Mapping[str, Callable[[Array, Array], Array]] = {
    "sum": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "prod": np.multiply,
}

_TOLERANCES = {2: 2e-2, 4: 2e-5, 8: 1e-9}
"""By the bytes of a number, the difference of two orders of a sum relative to the largest value."""


@dataclass(frozen=True, slots=True, eq=False)
class KernelRun:
    """Results of a kernel.

    Attributes:
        outputs: the values of the outputs.
        gradients: for each input its gradient; None for an input without one.
        attributes: the operator's attributes, those with default values included.
    """

    outputs: list[Array]
    gradients: list[Array | None]
    attributes: dict[str, object]


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """An operator type with values of its attributes.

    Attributes:
        op_type: the operator type, of TensorFlow or of a library that the script has loaded.
        attributes: TensorFlow's attributes that are not defaults and do not follow from inputs.
    """

    op_type: str
    attributes: Mapping[str, object]

    def run(
        self,
        inputs: Sequence[Array],
        upstream: Sequence[Array] | None = None,
        changed: Mapping[str, object] | None = None,
    ) -> KernelRun:
        """Run the kernel, and its gradient if there are gradients by the outputs.

        Args:
            inputs: the values of the inputs; lists of tensors spread out.
            upstream: a gradient by each output; None to compute no gradients.
            changed: attributes in place of the kernel's own.
        """
        attributes = {**_defaults(self.op_type), **self.attributes, **(changed or {})}
        config = tf.compat.v1.ConfigProto(device_count={"GPU": 0})
        with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
            tensors = [tf.constant(array) for array in inputs]
            named = self._arguments(tensors)
            made = op_def_library.apply_op(self.op_type, **named, **attributes)
            first = made[0] if isinstance(made, (list, tuple)) else made
            operation = first.op
            results = list(operation.outputs)
            gradients: list[tf.Tensor | None] = [None] * len(tensors)
            if upstream is not None:
                gradients = _gradients(results, tensors, upstream)
            present = [each for each in gradients if each is not None]
            values, computed = session.run((results, present))
            left = iter(computed)
            return KernelRun(
                [np.asarray(value) for value in values],
                [None if each is None else np.asarray(next(left)) for each in gradients],
                python_attributes(operation),
            )

    def _arguments(self, tensors: Sequence[tf.Tensor]) -> dict[str, Any]:
        """The inputs by the names of the operator's arguments; all lists have one length."""
        arguments = op_def_registry.get(self.op_type).input_arg
        lists = [bool(each.number_attr or each.type_list_attr) for each in arguments]
        spread = len(tensors) - lists.count(False)
        length = spread // lists.count(True) if any(lists) else 0
        if spread != length * lists.count(True):
            names = ", ".join(each.name for each in arguments)
            raise DescriptionError(
                f"an operator is tried on a value for each of its inputs. Got {len(tensors)} for "
                f"{self.op_type}, whose inputs are {names or 'none'}. Give inputs=[...] for all."
            )
        left = list(tensors)
        named: dict[str, Any] = {}
        for argument, is_list in zip(arguments, lists, strict=True):
            count = length if is_list else 1
            taken, left = left[:count], left[count:]
            named[argument.name] = taken if is_list else taken[0]
        return named


def _defaults(op_type: str) -> dict[str, object]:
    """The default values of attributes that do not follow from the inputs."""
    definition = op_def_registry.get(op_type)
    inferred = {
        name
        for each in definition.input_arg
        for name in (each.type_attr, each.number_attr, each.type_list_attr)
    }
    return {
        each.name: python_attribute(each.default_value)
        for each in definition.attr
        if each.HasField("default_value") and each.name not in inferred
    }


def _gradients(
    results: Sequence[tf.Tensor], tensors: Sequence[tf.Tensor], upstream: Sequence[Array]
) -> list[tf.Tensor | None]:
    by = [number for number, each in enumerate(tensors) if _is_continuous(each)]
    pairs = [(y, dy) for y, dy in zip(results, upstream, strict=True) if _is_continuous(y)]
    found: list[tf.Tensor | None] = [None] * len(tensors)
    if not by or not pairs:
        return found
    made = unrecorded_gradients(
        [y for y, _ in pairs], [tensors[n] for n in by], [tf.constant(dy) for _, dy in pairs]
    )
    for number, gradient in zip(by, made, strict=True):
        found[number] = None if gradient is None else tf.convert_to_tensor(gradient)
    return found


def _is_continuous(tensor: tf.Tensor) -> bool:
    return bool(tensor.dtype.is_floating or tensor.dtype.is_complex)


def run_in_pieces(
    kernel: Kernel,
    derivation: Derivation,
    configuration: Configuration,
    mesh: Mesh,
    inputs: Sequence[TensorSpec],
    whole: KernelRun,
    upstream: Sequence[Array] | None,
) -> KernelRun:
    """Run a kernel on each device's pieces, and put outputs and gradients together.

    Args:
        kernel: the kernel.
        derivation: its splits.
        configuration: the split that is tried.
        mesh: the devices.
        inputs: the whole inputs, with their values.
        whole: the results of the whole inputs.
        upstream: a gradient by each whole output; None to compute no gradients.

    Raises:
        DescriptionError: if devices disagree on the same piece.
    """
    arrays = [np.asarray(spec.value) for spec in inputs]
    read = [input_slot(derivation, configuration, n) for n in range(len(arrays))]
    made = [output_slot(derivation, configuration, n) for n in range(len(derivation.outputs))]
    factors = [float(rescaling(derivation, configuration, mesh, rank)) for rank in mesh]
    runs = []
    for rank in mesh:
        form = local_form(derivation, configuration, mesh, inputs, whole.attributes, rank)
        changed = {key: value for key, value in form.items() if isinstance(key, str)}
        pieces = [
            np.array(form[n], array.dtype)
            if n in form
            else array[slot.forward.region(array.shape, mesh, rank)]
            for n, (array, slot) in enumerate(zip(arrays, read, strict=True))
        ]
        local = None
        if upstream is not None:
            local = [
                share(dy, slot.gradient, mesh, rank) * dy.dtype.type(factors[rank])
                for dy, slot in zip(upstream, made, strict=True)
            ]
        runs.append(kernel.run(pieces, local, changed))
    outputs = [
        assemble(
            slot.forward,
            [
                r.outputs[n] if factor == 1 else r.outputs[n] * factor
                for r, factor in zip(runs, factors, strict=True)
            ],
            shape,
            mesh,
        )
        for n, (slot, shape) in enumerate(zip(made, derivation.output_shapes, strict=True))
    ]
    gradients: list[Array | None] = []
    for n, (slot, array) in enumerate(zip(read, arrays, strict=True)):
        shares = [each for r in runs if (each := r.gradients[n]) is not None]
        has_all = len(shares) == len(runs)
        gradients.append(assemble(slot.gradient, shares, array.shape, mesh) if has_all else None)
    return KernelRun(outputs, gradients, {})


def share(whole: Array, layout: Layout, mesh: Mesh, rank: int) -> Array:
    """A device's part of a gradient by an output; over partial axes the first device has all."""
    piece = whole[layout.region(whole.shape, mesh, rank)]
    position = mesh.coordinates(rank)
    return np.zeros_like(piece) if any(position[axis] for axis in layout.partial) else piece


def assemble(layout: Layout, pieces: Sequence[Array], shape: Sequence[int], mesh: Mesh) -> Array:
    """Put a tensor together from the devices' pieces.

    Raises:
        DescriptionError: if a piece has another shape than its layout, or devices that hold the
            same piece have different values.
    """
    whole = np.zeros(shape, pieces[0].dtype)
    groups: dict[tuple[int, ...], dict[tuple[int, ...], list[Array]]] = {}
    for rank, piece in enumerate(pieces):
        local = layout.shape_on(shape, mesh, rank)
        if piece.shape != tuple(local):
            raise DescriptionError(
                f"a kernel on pieces returns a piece. Got shape {piece.shape}, not {tuple(local)}."
            )
        position = mesh.coordinates(rank)
        place = tuple(mesh.piece(rank, axes) for axes in layout.dims)
        part = tuple(position[axis] for axis in layout.partial)
        groups.setdefault(place, {}).setdefault(part, []).append(piece)
    for rank in mesh:
        shares = groups[tuple(mesh.piece(rank, axes) for axes in layout.dims)]
        total: Array | None = None
        for replicas in shares.values():
            if not all(is_close(each, replicas[0]) for each in replicas[1:]):
                raise DescriptionError("devices that hold the same piece have the same values.")
            first = replicas[0]
            total = first if total is None else _MERGE[layout.reducer](total, first)
        whole[layout.region(shape, mesh, rank)] = total
    return whole


def is_close(left: Array, right: Array) -> bool:
    """Whether two arrays are equal but for the order of sums."""
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    if left.dtype.kind not in "fc":
        return bool(np.array_equal(left, right))
    tolerance = _TOLERANCES[left.real.dtype.itemsize]
    largest = float(np.max(np.abs(right), initial=0.0))
    return bool(np.allclose(left, right, tolerance, tolerance * largest, equal_nan=True))
