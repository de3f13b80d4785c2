"""What a plan's notes say of its frontier."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensoropt.cost.cluster import load_cluster
from tensoropt.graph.operator import Graph, Operator
from tensoropt.planner.notes import notes_of
from tensoropt.planner.request import Request
from tensoropt.planner.searches.frontier_search import search_frontier
from tensoropt.search.pareto.frontier import EndedBy
from tensoropt.tensor_spec import TensorSpec


@pytest.mark.parametrize(
    ("within", "epsilon", "ended_by", "note"),
    [
        (0.0, 0.0, "", None),
        (0.007, 0.0, "", "proven gap 0.7 %; ask for a smaller one with epsilon=..."),
        (0.007, 0.0, "time", "proven gap 0.7 %; search_seconds=... allows more"),
        (0.071, 0.0, "", "proven gap 7.1 %: the rest is too large to search"),
        (0.071, 0.1, "", "proven gap 7.1 % (epsilon=0.1)"),
        (0.071, 0.1, "time", "proven gap 7.1 % (epsilon=0.1)"),
        (0.071, 0.01, "", "proven gap 7.1 %: the rest is too large to search"),
        (0.071, 0.01, "interruption", "proven gap 7.1 %: the search was interrupted"),
        (None, 0.0, "", "no proven gap: the rest is too large to search"),
        (None, 0.0, "interruption", "no proven gap: the search was interrupted"),
        (None, 0.0, "time", "no proven gap; search_seconds=... allows more"),
    ],
)
def test_a_note_has_the_proven_gap(
    within: float | None, epsilon: float, ended_by: EndedBy, note: str | None
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
    frontier = replace(exact, exact=within == 0, within=within, ended_by=ended_by)
    notes = notes_of(problem, frontier, request)
    assert notes == (() if note is None else (f"approximate frontier, {note}",))
