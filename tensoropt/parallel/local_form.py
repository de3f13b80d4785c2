"""What the kernel on a device's piece is given instead of the graph's operands and attributes."""

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
) -> Mapping[int | str, object]:
    """By input number a value, by name an attribute; the same on every device.

    Operands such as Reshape's shape or Slice's size speak of the whole tensor; a device's kernel
    needs them for its piece. Empty where nothing is split or the description asks for nothing.

    An extent that only a run decides is -1 in a piece, too.

    Args:
        derivation: of the operator.
        configuration: how it is split.
        mesh: the devices.
        inputs: the whole inputs, with the values of constants.
        attributes: the graph's.
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
                piece_shape(input_slot(derivation, configuration, i).forward, shape, mesh)
                for i, shape in enumerate(derivation.input_shapes)
            ),
            tuple(
                piece_shape(output_slot(derivation, configuration, o).forward, shape, mesh)
                for o, shape in enumerate(derivation.output_shapes)
            ),
        )
    )


def piece_shape(layout: Layout, shape: Sequence[int], mesh: Mesh) -> tuple[int, ...]:
    """The shape of a device's piece, where an extent may be open (-1), and so in pieces, too."""
    known = Layout(
        tuple(axes if n >= 0 else () for n, axes in zip(shape, layout.dims, strict=True))
    )
    return known.local_shape(shape, mesh)
