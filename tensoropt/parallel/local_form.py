"""Values of operands and attributes that differ between a piece and the whole tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensoropt.parallel.configuration import Configuration, input_slot, output_slot
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.tdl import Derivation, Piece, lookup
from tensoropt.tensor_spec import TensorSpec

__all__ = ["local_form", "piece_shape"]


def local_form(
    derivation: Derivation,
    configuration: Configuration,
    mesh: Mesh,
    inputs: Sequence[TensorSpec],
    attributes: Mapping[str, object],
    rank: int = 0,
) -> Mapping[int | str, object]:
    """Return the operands and attributes that the kernel needs in another form for its piece.

    For example, Reshape's shape and Slice's size describe the whole tensor, and a device needs them
    for its piece. They are the same on devices with equal pieces.

    Args:
        derivation: derivation of the operator.
        configuration: how it is split.
        mesh: the devices.
        inputs: specs of the whole inputs, with the values of constants.
        attributes: the operator's attributes in the graph.
        rank: the device.

    Returns:
        Values of operands by input number, and values of attributes by name. Open extents are -1.
        The result is empty if nothing is split or the description has no local form.
    """
    if not any(configuration.splits):
        return {}
    local = lookup(derivation.op_type).local
    if local is None:
        return {}
    return local(
        Piece(
            inputs,
            attributes,
            tuple(
                piece_shape(input_slot(derivation, configuration, i).forward, shape, mesh, rank)
                for i, shape in enumerate(derivation.input_shapes)
            ),
            tuple(
                piece_shape(output_slot(derivation, configuration, o).forward, shape, mesh, rank)
                for o, shape in enumerate(derivation.output_shapes)
            ),
        )
    )


def piece_shape(layout: Layout, shape: Sequence[int], mesh: Mesh, rank: int = 0) -> tuple[int, ...]:
    """Return the shape of a device's piece. Open extents (-1) stay open and are not split."""
    known_only = Layout(
        tuple(axes if n >= 0 else () for n, axes in zip(shape, layout.dims, strict=True))
    )
    return known_only.shape_on(shape, mesh, rank)
