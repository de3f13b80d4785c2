"""The units of extents in which reshapes join a batch with other dimensions.

A reshape from ``[batch, length]`` to ``[batch * length]`` runs on a device's examples if a piece of
``batch * length`` begins at a multiple of ``length``. A mesh cuts by the extent alone, so the graph
gives such extents a unit (`tensoropt.parallel.mesh.Mesh.units`). Every tensor of the extent is then
cut at multiples of the unit: as right as before, and less even.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import gcd

from tensoropt.graph.operator import Graph
from tensoropt.graph.per_graph import per_graph
from tensoropt.parallel.configuration import tied_extents
from tensoropt.parallel.mesh import Units
from tensoropt.parallel.strategy import derivations_of
from tensoropt.tdl.registry import operator_type

__all__ = ["joined_units"]

_Group = frozenset[int]


@per_graph
def joined_units(
    graph: Graph,
    devices: int,
    batch_placeholders: frozenset[str],
    microbatches: int = 1,
    *,
    in_proportion: bool = False,
) -> Units:
    """Return the units of the extents that reshapes join with a batch of uneven pieces.

    The extent is the product of the batch and its unit. It gets none, and reshapes between it and
    the batch are not split along the batch, if two batches ask for different units, or if an
    operator would lose a split into equal pieces: a variable with a dimension of that extent, or a
    reshape of it that does not concern the batch.

    Args:
        graph: the graph, of the whole batch.
        devices: the number of devices.
        batch_placeholders: placeholders whose first dimension is the batch.
        microbatches: the number of parts of the batch. The extents are those of one part.
        in_proportion: whether batches are cut in proportion to the speeds of devices. If not, only
            those count that the devices do not divide.
    """
    shapes = [graph[name].outputs[0].shape for name in batch_placeholders if name in graph]
    batches = sorted({shape[0] for shape in shapes if shape and shape[0] > microbatches})
    if not in_proportion:
        batches = [batch for batch in batches if batch // microbatches % devices]
    reshapes = _reshapes(graph) if batches else frozenset()
    refused: set[int] = set()
    while reshapes:
        units = _units(batches, reshapes, refused)
        parts = {extent: extent // microbatches for extent in (*batches, *units)}
        unit = {parts[extent]: units[extent] for extent in units if parts[extent] > devices}
        lost = _losing(graph, unit, parts, devices, in_proportion=in_proportion)
        bad = {extent for extent in units if parts[extent] in lost}
        if not bad:
            return tuple(sorted(unit.items()))
        refused |= bad
    return ()


@per_graph
def _reshapes(graph: Graph) -> frozenset[_Group]:
    """Return the extents along each index of reshapes, where they differ."""
    return frozenset(
        extents
        for derivation in derivations_of(graph).values()
        if derivation.op_type == "Reshape"
        for extents in tied_extents(derivation)
        if len(extents) > 1
    )


def _units(
    batches: Iterable[int], reshapes: Collection[_Group], refused: set[int]
) -> dict[int, int]:
    """Return the units of the extents that reshapes join with a batch, directly or in turn.

    Extents that two batches reach with different units are added to ``refused``.
    """
    units: dict[int, int] = {}
    for batch in batches:
        if batch in units:  # itself an extent that is joined with a smaller batch
            continue
        reached = [batch]
        for extent in reached:
            near = (other for group in reshapes if extent in group for other in group)
            for other in near:
                if other % batch or other in refused or other in reached:
                    continue
                if units.setdefault(other, other // batch) != other // batch:
                    refused.add(other)
                reached.append(other)
    return {extent: unit for extent, unit in units.items() if extent not in refused}


def _losing(
    graph: Graph,
    units: Mapping[int, int],
    parts: Mapping[int, int],
    devices: int,
    *,
    in_proportion: bool,
) -> set[int]:
    """Return the extents with units for which an operator loses a split into equal pieces.

    Args:
        graph: the graph, of the whole batch.
        units: the units of the extents of one part.
        parts: for each extent of the whole batch that of one part.
        devices: the number of devices.
        in_proportion: see `joined_units`.
    """
    lost: set[int] = set()
    for whole, is_stored in _rigid(graph):
        group = frozenset(parts.get(extent, extent) for extent in whole)
        concerned = group & units.keys()
        blocks = {extent // units.get(extent, 1) for extent in group}
        if concerned and (is_stored or len(blocks) > 1):
            even = gcd(*group, devices)
            if even > 1 and (in_proportion or gcd(*blocks, devices) != even):
                lost |= concerned
    return lost


@per_graph
def _rigid(graph: Graph) -> frozenset[tuple[_Group, bool]]:
    """Return the extents along indices whose equal splits have to stay, and whether they have to
    stay even if all extents of the index have the same number of units."""
    found: set[tuple[_Group, bool]] = set()
    for operator in graph:
        derivation = derivations_of(graph)[operator.name]
        has_rule = operator_type(derivation.op_type).uneven_rule
        for index, extents in zip(derivation.indices, tied_extents(derivation), strict=True):
            is_stored = operator.is_variable or (index.spelled_out and not has_rule)
            if index.splittable and (is_stored or len(extents) > 1):
                found.add((extents, is_stored))
    return frozenset(found)
