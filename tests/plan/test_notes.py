"""What a plan's notes say of its frontier."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensoropt.cost.cluster import load_cluster
from tensoropt.graph.operator import Graph, Operator
from tensoropt.graph.tensor import TensorSpec
from tensoropt.plan.frontier_search import search_frontier
from tensoropt.plan.notes import notes_of
from tensoropt.plan.request import Request
from tensoropt.search.watch import Watch


@pytest.mark.parametrize(
    ("within", "epsilon", "interrupted", "note"),
    [
        (0.0, 0.0, False, None),
        (0.071, 0.0, False, "proven gap 7.1 %; ask for a smaller one with epsilon=..."),
        (0.071, 0.1, False, "proven gap 7.1 % (epsilon=0.1)"),
        (0.071, 0.01, False, "proven gap 7.1 %: the rest is too large to search"),
        (0.071, 0.01, True, "proven gap 7.1 %: the search was interrupted"),
        (None, 0.0, False, "no proven gap: the rest is too large to search"),
        (None, 0.0, True, "no proven gap: the search was interrupted"),
    ],
)
def test_a_note_has_the_proven_gap(
    within: float | None, epsilon: float, interrupted: bool, note: str | None
) -> None:
    cluster = load_cluster("2x8-v100")
    values = Operator("x", "Placeholder", (), (), (TensorSpec((4,), "float32"),), {})
    request = Request(
        graph=Graph({"x": values}),
        cluster_at=lambda _: cluster,
        devices=1,
        roots=("x",),
        shapes={"x": (4,)},
        batch_placeholders=frozenset(),
        epsilon=epsilon,
    )
    problem, exact = search_frontier(request, 1)
    frontier = replace(exact, exact=within == 0, within=within)
    with Watch(lambda *_: None) as watch:
        watch.interrupted = interrupted
        notes = notes_of(problem, frontier, request)
    assert notes == (() if note is None else (f"approximate frontier, {note}",))
