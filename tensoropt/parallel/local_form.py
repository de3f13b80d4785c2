"""What the kernel on a device's piece is given instead of the graph's operands and attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tensoropt.graph.tensor import TensorSpec
from tensoropt.parallel.configuration import Configuration, input_slot, output_slot
from tensoropt.parallel.mesh import Mesh
from tensoropt.tdl import Derivation, Piece, lookup

__all__ = ["local_form"]


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
                input_slot(derivation, configuration, i).forward.local_shape(shape, mesh)
                for i, shape in enumerate(derivation.input_shapes)
            ),
            tuple(
                output_slot(derivation, configuration, o).forward.local_shape(shape, mesh)
                for o, shape in enumerate(derivation.output_shapes)
            ),
        )
    )
