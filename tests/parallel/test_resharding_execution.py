"""Planned resharding, run on simulated devices: every device ends with the right piece."""

from __future__ import annotations

import itertools
import random
import zlib
from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np
import numpy.typing as npt
import pytest

from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh, piece_bounds
from tensoropt.parallel.resharding import Price, ReshardStep, plan_reshard

Array = npt.NDArray[np.float64]

REDUCE: dict[str, Callable[[Array, Array], Array]] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}
NEUTRAL = {"sum": 0.0, "prod": 1.0}


def all_layouts(mesh: Mesh, shape: Sequence[int], reducers: Sequence[str]) -> list[Layout]:
    """Every layout that fits: each axis replicates, is partial, or has a place on a dimension."""
    found = []
    axes = range(len(mesh.axes))
    for places in itertools.product(range(-2, len(shape)), repeat=len(axes)):
        held = [[axis for axis in axes if places[axis] == dim] for dim in range(-1, len(shape))]
        for dims in itertools.product(*map(itertools.permutations, held[1:])):
            for reducer in reducers if held[0] else ("sum",):
                found.append(Layout(dims, tuple(held[0]), reducer))
    return [layout for layout in found if layout.fits(shape, mesh)]


def run_step(step: ReshardStep, mesh: Mesh, pieces: list[Array]) -> list[Array]:
    """What every device holds after a step, as the step's description says it."""
    after = []
    for rank in mesh:
        group = mesh.group(rank, step.axes)
        own = group.index(rank)
        values = [pieces[member] for member in group]
        if step.kind in ("allreduce", "reduce_scatter"):
            assert step.reducer is not None
            values = [reduce(REDUCE[step.reducer], values)] * len(group)
        if step.kind == "mask" and own > 0 and step.reducer in NEUTRAL:
            values[own] = np.full_like(values[own], NEUTRAL[step.reducer])
        if step.to_dim is not None:
            values = [_part(step, mesh, rank, value, step.to_dim) for value in values]
        if step.from_dim is not None:
            after.append(np.concatenate(values, step.from_dim))
        else:
            after.append(values[own])
    return after


def _part(step: ReshardStep, mesh: Mesh, rank: int, value: Array, dim: int) -> Array:
    """The device's part of a value that a step cuts."""
    sizes, position = [mesh.axes[axis] for axis in step.axes], mesh.coordinates(rank)
    part = slice(*piece_bounds(value.shape[dim], sizes, [position[axis] for axis in step.axes]))
    return value[(*[slice(None)] * dim, part)]


def lay_out(truth: Array, layout: Layout, mesh: Mesh, rng: np.random.Generator) -> list[Array]:
    """The devices' pieces of a tensor; partial ones are random and reduce to it exactly."""
    pieces = [truth[layout.region(truth.shape, mesh, rank)] for rank in mesh]
    for group in mesh.partition(layout.partial) if layout.partial else ():
        twins = [pieces[group[0]]]
        for _ in group[1:]:
            noise = rng.integers(1, 9, twins[0].shape).astype(float)
            if layout.reducer == "sum":
                twins = [twins[0] - noise, *twins[1:], noise]
            elif layout.reducer == "prod":
                sign = np.where(noise < 5, -1.0, 1.0)
                twins = [twins[0] * sign, *twins[1:], sign]
            else:
                twins.append(twins[0] - noise if layout.reducer == "max" else twins[0] + noise)
        shift = int(rng.integers(len(group)))
        for place, member in enumerate(group):
            pieces[member] = twins[(place + shift) % len(group)]
    # Replicas hold the same partial values.
    first: dict[tuple[object, ...], Array] = {}
    spread = (*(axis for axes in layout.dims for axis in axes), *layout.partial)
    return [first.setdefault((mesh.piece(r, spread),), piece) for r, piece in enumerate(pieces)]


def check(
    mesh: Mesh, shape: tuple[int, ...], pairs: Sequence[tuple[Layout, Layout]], price: Price
) -> None:
    """Plan and run every pair; the steps must join up and every device end with its piece."""
    rng = np.random.default_rng(1)
    truth = rng.integers(-50, 50, shape).astype(float)
    start = {layout: lay_out(truth, layout, mesh, rng) for layout in {pair[0] for pair in pairs}}
    for source, target in pairs:
        steps = plan_reshard(mesh, shape, 8, source, target, price)
        pieces = start[source]
        at = source
        for step in steps:
            assert step.source == at
            pieces = run_step(step, mesh, pieces)
            at = step.target
            assert [piece.shape for piece in pieces] == [at.shape_on(shape, mesh, r) for r in mesh]
        assert at == target
        for rank in mesh:
            twins = [pieces[member] for member in mesh.group(rank, target.partial)]
            held = reduce(REDUCE[target.reducer], twins)
            assert np.array_equal(held, truth[target.region(shape, mesh, rank)]), (
                source,
                target,
                steps,
            )


def random_price(seed: int) -> Price:
    """Any price at all for every kind, group and number of bytes."""

    def price(kind: str, axes: tuple[int, ...], bytes_: int) -> int:
        return 1 + zlib.crc32(f"{seed} {kind} {axes} {bytes_}".encode()) % 1000

    return price


def plain_price(kind: str, axes: tuple[int, ...], bytes_: int) -> int:
    """Local steps are cheap, others have a latency and a bandwidth."""
    return bytes_ + 1 if kind in ("slice", "mask") else 1000 * (1 + len(axes)) + 10 * bytes_


PRICES = pytest.mark.parametrize("price", [plain_price, random_price(7)], ids=["plain", "random"])


@PRICES
def test_all_pairs_on_4_devices(price: Price) -> None:
    mesh, shape = Mesh((2, 2)), (8, 8)
    layouts = all_layouts(mesh, shape, ["sum"])
    check(mesh, shape, list(itertools.product(layouts, layouts)), price)


@PRICES
def test_pairs_on_8_devices(price: Price) -> None:
    mesh, shape = Mesh((2, 2, 2)), (8, 8)
    layouts = all_layouts(mesh, shape, ["sum"])
    assert len(layouts) == 92
    pairs = list(itertools.product(layouts, layouts))
    check(mesh, shape, random.Random(0).sample(pairs, 1000), price)


@pytest.mark.parametrize(
    ("axes", "shape"),
    [
        ((2, 2, 2), (8,)),
        ((2, 2, 2), (4, 2)),
        ((2, 2, 2), (8, 4, 8)),
        ((2, 2, 3), (12, 12)),
        ((2, 2, 3), (6, 4)),
        ((2, 2, 3), (12, 3, 4)),
        ((6,), (6, 12)),
        ((2, 2), (7, 5)),
        ((2, 3), (7, 4)),
        ((3, 2, 2), (13, 8)),
        ((2, 3), ()),
    ],
    ids=str,
)
def test_pairs_of_any_reducer_on_other_meshes_and_shapes(
    axes: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    mesh = Mesh(axes)
    layouts = all_layouts(mesh, shape, list(REDUCE))
    draw = random.Random(len(layouts))
    pairs = [(draw.choice(layouts), draw.choice(layouts)) for _ in range(100)]
    check(mesh, shape, pairs, random_price(3))
