"""A tensor from the devices of one mesh to those of another: who sends which slices to whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh

__all__ = ["Message", "Region", "messages", "spread"]

Region = tuple[tuple[int, int], ...]
"""Per dimension where a part of a tensor begins and ends."""


@dataclass(frozen=True, slots=True)
class Message:
    """What one device sends another.

    Attributes:
        source: the sending device, of its own mesh.
        target: the receiving device, of its own mesh.
        region: of the whole tensor.
    """

    source: int
    target: int
    region: Region


def messages(
    shape: Sequence[int], source: Layout, devices: Mesh, target: Layout, others: Mesh
) -> tuple[Message, ...]:
    """The messages that bring a tensor from one layout to another on other devices.

    Each device gets the slices of its own shard and nothing else, every element once; devices
    that hold the same take turns in sending. In the order of receiving devices, and for each in the
    row-major order of regions.

    Args:
        shape: of the tensor.
        source: how it lies, without partial sums.
        devices: that have it.
        target: how it is to lie.
        others: that get it.
    """
    holders: dict[Region, list[int]] = {}
    for device in devices:
        holders.setdefault(_region(source, shape, devices, device), []).append(device)
    found = []
    for device in others:
        wanted = _region(target, shape, others, device)
        for held, senders in sorted(holders.items()):
            common = tuple(
                (max(start, first), min(stop, last))
                for (start, stop), (first, last) in zip(wanted, held, strict=True)
            )
            if all(a < b or not n for (a, b), n in zip(common, shape, strict=True)):
                found.append(Message(senders[device % len(senders)], device, common))
    return tuple(found)


def spread(layout: Layout, shape: Sequence[int], mesh: Mesh) -> Layout:
    """How a tensor arrives at some devices that gather it then: each part of it once.

    Axes that would replicate it split it, too, where a dimension divides. They are the minor ones
    there, so that one all-gather makes of it the layout that is wanted.

    Args:
        layout: that is wanted.
        shape: of the tensor.
        mesh: the devices that get it.
    """
    dims = list(layout.dims)
    for axis, size in enumerate(mesh.axes):
        if axis in layout.axes:
            continue
        local = [n // mesh.pieces(axes) for n, axes in zip(shape, dims, strict=True)]
        fitting = [dim for dim, n in enumerate(local) if n and n % size == 0]
        if fitting:
            dim = max(fitting, key=local.__getitem__)
            dims[dim] = (*dims[dim], axis)
    return Layout(tuple(dims))


def _region(layout: Layout, shape: Sequence[int], mesh: Mesh, device: int) -> Region:
    return tuple((part.start, part.stop) for part in layout.region(shape, mesh, device))
