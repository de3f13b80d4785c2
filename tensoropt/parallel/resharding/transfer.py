"""Transfers of a tensor between two meshes: which device sends which slices to which device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh

__all__ = ["Message", "Region", "messages", "spread"]

Region = tuple[tuple[int, int], ...]
"""For each dimension, where a part of a tensor begins and ends."""


@dataclass(frozen=True, slots=True)
class Message:
    """A slice that one device sends to another.

    Attributes:
        source: the sending device, numbered on its mesh.
        target: the receiving device, numbered on its mesh.
        region: the slice of the whole tensor.
    """

    source: int
    target: int
    region: Region


def messages(
    shape: Sequence[int], source: Layout, senders: Mesh, target: Layout, receivers: Mesh
) -> tuple[Message, ...]:
    """Return the messages that bring a tensor to another layout on other devices.

    Each receiver gets every element of its piece once, and nothing else. Devices that hold the same
    piece take turns in sending. The messages are ordered by receiving device, then by region.

    Args:
        shape: shape of the tensor.
        source: its layout at the senders, without partial axes.
        senders: the devices that hold it.
        target: its layout at the receivers.
        receivers: the devices that get it.
    """
    holders: dict[Region, list[int]] = {}
    for device in senders:
        holders.setdefault(_region(source, shape, senders, device), []).append(device)
    result = []
    for device in receivers:
        wanted = _region(target, shape, receivers, device)
        for held, devices in sorted(holders.items()):
            common = tuple(
                (max(start, first), min(stop, last))
                for (start, stop), (first, last) in zip(wanted, held, strict=True)
            )
            if all(a < b or not n for (a, b), n in zip(common, shape, strict=True)):
                result.append(Message(devices[device % len(devices)], device, common))
    return tuple(result)


def spread(
    layout: Layout, shape: Sequence[int], mesh: Mesh, over: Sequence[int] | None = None
) -> Layout:
    """Return the layout in which each device has a part of a tensor that others have, too.

    A tensor that is gathered afterwards is received in it, and a partial sum is sent in it. Axes
    that replicate the tensor split it as well, if a dimension divides evenly. They are the minor
    axes of that dimension, so one all-gather, or one reduce-scatter, over them is enough.

    Args:
        layout: the layout without partial sums.
        shape: shape of the tensor.
        mesh: the devices.
        over: the axes that may split it, besides those of the layout; by default all.
    """
    dims = list(layout.dims)
    for axis, size in enumerate(mesh.axes):
        if axis in layout.axes or (over is not None and axis not in over):
            continue
        local = [n // mesh.pieces(axes) for n, axes in zip(shape, dims, strict=True)]
        fitting = [dim for dim, n in enumerate(local) if n and n % size == 0]
        if fitting:
            dim = max(fitting, key=local.__getitem__)
            dims[dim] = (*dims[dim], axis)
    return Layout(tuple(dims))


def _region(layout: Layout, shape: Sequence[int], mesh: Mesh, device: int) -> Region:
    return tuple((part.start, part.stop) for part in layout.region(shape, mesh, device))
