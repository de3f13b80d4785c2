"""The peak that a plan promises, and the point that is taken where a faster one's is too high."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from tensoropt.cost.cluster import load_cluster
from tensoropt.cost.peak.estimated_peak import Peak, PlanSteps
from tensoropt.errors import InfeasibleError
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh
from tensoropt.plan.plan import Plan
from tensoropt.planner.choose import choose
from tensoropt.planner.offers.strategies import Strategies
from tensoropt.planner.prices.peak import fitting_point, predicted_peak
from tensoropt.planner.request import Request
from tensoropt.planner.searches.frontier_search import search_frontier
from tensoropt.tensor_spec import TensorSpec
from tensoropt.transformations.rewritten.application import Rewrite

MB = 1 << 20
LAYERS = 4


def layers() -> Graph:
    """Products with weights of 4 MiB each: devices may keep all of them, or pieces."""
    x = Operator("x", "Placeholder", (), (), (TensorSpec((64, 1024), "float32"),), {})
    made, last = [x], x
    for number in range(LAYERS):
        weights = Operator(
            f"w{number}", "VariableV2", (), (), (TensorSpec((1024, 1024), "float32"),), {}
        )
        last = Operator(
            f"product{number}",
            "MatMul",
            (TensorName(last.name, 0), TensorName(weights.name, 0)),
            (last.outputs[0], weights.outputs[0]),
            (TensorSpec((64, 1024), "float32"),),
            {"transpose_a": False, "transpose_b": False},
        )
        made += [weights, last]
    return Graph({operator.name: operator for operator in made})


class DryRuns:
    """A strategy takes what it splits of the weights, and something else."""

    def __init__(self, besides: Mapping[int, int] | int = 0, refused: str = "") -> None:
        self.asked: list[int] = []
        self._besides = besides
        self._refused = refused

    def __call__(
        self,
        mesh: Mesh,
        planned: Mapping[str, Configuration],
        plan_steps: PlanSteps,
        parts: int,
        rewrites: Sequence[Rewrite],
    ) -> Peak | str:
        assert (parts, rewrites) == (1, ())
        if self._refused:
            return self._refused
        split = sum(bool(any(planned[f"w{number}"].splits)) for number in range(LAYERS))
        self.asked.append(split)
        more = self._besides if isinstance(self._besides, int) else self._besides[split]
        kept = LAYERS * 4 * MB - split * 4 * MB // 2 * (mesh.size > 1)
        return Peak(kept + more, kept, "product0")


def request(dry_runs: DryRuns | None, limit: int | None = None, devices: int = 2) -> Request:
    cluster = load_cluster("2x8-v100")
    return Request(
        graph=layers(),
        cluster_at=lambda _: cluster,
        devices=devices,
        roots=(f"product{LAYERS - 1}",),
        shapes={"x": (64, 1024)},
        batch_placeholders=frozenset({"x"}),
        memory_limit_bytes=limit,
        dry_run_peak=dry_runs,
    )


def test_a_plan_has_the_peak_of_its_dry_run() -> None:
    dry_runs = DryRuns(besides=12345)
    plan = choose(request(dry_runs), "mini_time")
    assert len(dry_runs.asked) == 1
    assert plan.peak_bytes is not None
    assert plan.peak_bytes % MB == 12345
    assert not any("dry run" in note for note in plan.notes)


def test_a_plan_far_below_the_limit_is_not_rehearsed() -> None:
    """The estimate has a margin of 1.3; a dry run decides where that is above the limit."""
    dry_runs = DryRuns(besides=12345)
    saving = replace(request(dry_runs), saves_dry_runs=True)
    estimated = choose(saving, "mini_time")
    assert dry_runs.asked == []
    assert estimated.peak_is_estimated
    assert estimated.peak_bytes == choose(request(None), "mini_time").peak_bytes
    assert not any("dry run" in note for note in estimated.notes)
    far = math.ceil(1.3 * (estimated.peak_bytes or 0))
    assert choose(replace(saving, memory_limit_bytes=far), "mini_time").peak_is_estimated
    assert dry_runs.asked == []
    near = choose(replace(saving, memory_limit_bytes=far - 1), "mini_time")
    assert len(dry_runs.asked) == 1
    assert (near.peak_bytes or 0) % MB == 12345
    assert not near.peak_is_estimated


def test_a_strategy_far_above_the_limit_is_not_rehearsed() -> None:
    """The estimate may be 1.5 times what a dry run finds; the search's sum fits."""
    dry_runs = DryRuns()
    wanted = request(dry_runs)
    problem, frontier = search_frontier(wanted, wanted.devices)
    strategy = frontier.strategies[-1].tolist()
    estimated = predicted_peak(replace(wanted, dry_run_peak=None), problem, strategy).bytes
    for limit, count in ((math.ceil(estimated / 1.5) - 1, 0), (math.ceil(estimated / 1.5), 1)):
        peak = predicted_peak(replace(wanted, memory_limit_bytes=limit), problem, strategy)
        assert len(dry_runs.asked) == count
        assert peak.from_dry_run == bool(count)
        assert count or peak.excess_bytes(limit) == estimated - limit


def test_without_a_dry_run_the_peak_is_estimated_and_the_plan_says_why_one_failed() -> None:
    estimated = choose(request(None), "mini_time")
    failed = choose(request(DryRuns(refused="ValueError: no kernel")), "mini_time")
    assert estimated.peak_bytes == failed.peak_bytes
    assert estimated.peak_is_estimated
    assert failed.peak_is_estimated
    assert not any("dry run" in note for note in estimated.notes)
    (note,) = [note for note in failed.notes if "dry run" in note]
    assert "estimated" in note
    assert "(ValueError: no kernel)" in note


def points(limit: int, dry_runs: DryRuns) -> tuple[int, int, list[int]]:
    """The point without dry_runs, the one with them, and memory along the frontier."""
    wanted = request(dry_runs, limit)
    problem, frontier = search_frontier(wanted, wanted.devices)
    point, _ = fitting_point(wanted, problem, frontier)
    fastest = frontier.fastest(wanted.usable_bytes(wanted.devices))
    return fastest, point, frontier.memory.tolist()


def test_an_estimate_counts_where_a_dry_run_failed() -> None:
    failed = Strategies.of(request(DryRuns(refused="ValueError: no kernel"))).choice.peak
    assert failed.excess_bytes(failed.bytes - MB) == MB
    assert not failed.excess_bytes(failed.bytes)
    unasked = Strategies.of(request(None)).choice.peak
    assert not unasked.excess_bytes(unasked.bytes - MB)


def test_a_point_whose_peak_is_too_high_gives_way_to_a_smaller_one() -> None:
    fastest, point, memory = points(64 * MB, DryRuns())
    assert point == fastest
    assert len(memory) > 2, "there is something to choose from"
    most = DryRuns()
    points(64 * MB, most)
    peak = LAYERS * 4 * MB - most.asked[0] * 2 * MB
    tight = DryRuns(besides=64 * MB - peak + 1)  # one byte too many
    fastest, point, _ = points(64 * MB, tight)
    assert point < fastest
    assert len(tight.asked) > 1
    assert tight.asked[-1] > tight.asked[0], "more is split"
    assert len(tight.asked) <= 6


def test_a_wrong_estimate_of_the_fastest_point_leaves_no_faster_point_out() -> None:
    """Its peak is far above its estimate, so by its error most other points would not fit."""
    most = DryRuns()
    points(128 * MB, most)
    wrong = {split: 26 * MB if split == most.asked[0] else 0 for split in range(LAYERS + 1)}
    wanted = request(DryRuns(besides=wrong), 24 * MB)
    problem, frontier = search_frontier(wanted, wanted.devices)
    point, peak = fitting_point(wanted, problem, frontier)
    fastest = frontier.fastest(wanted.usable_bytes(wanted.devices))
    assert 0 < point < fastest
    assert peak.bytes <= 24 * MB
    assert frontier.time[point] <= 1.03 * frontier.time[fastest - 1]


def test_the_last_dry_run_leaves_a_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first peak is 1.3 times the estimate, others are 2 % higher."""
    monkeypatch.setattr("tensoropt.planner.prices.peak._DRY_RUN_OPERATORS", 0)
    problem, frontier = search_frontier(request(None), 2)
    strategies = [strategy.tolist() for strategy in frontier.strategies]
    estimates = [predicted_peak(request(None), problem, each).bytes for each in strategies]
    asked: list[int] = []

    def dry_run(_: Mesh, planned: Mapping[str, Configuration], *__: object) -> Peak:
        found = (problem.configurations(each) for each in strategies)
        asked.append(list(found).index(dict(planned)))
        return Peak(int(1.3 * estimates[asked[-1]] * (1.02 if len(asked) > 1 else 1)), 0, "")

    fits = max(n for n, each in enumerate(estimates) if each < 0.9 * estimates[-1])
    limit = int(1.005 * 1.3 * estimates[fits])
    wanted = replace(request(None, limit), dry_run_peak=dry_run)
    point, peak = fitting_point(wanted, problem, frontier)
    assert len(asked) == 2
    assert asked[1] == point < fits
    assert peak.bytes <= limit


def test_where_no_peak_fits_the_error_says_which_limit_would_do() -> None:
    dry_runs = DryRuns(besides={split: (9 - split) * 64 * MB for split in range(LAYERS + 1)})
    tight = request(dry_runs, 64 * MB)
    with pytest.raises(InfeasibleError, match="peak memory is at most the memory limit") as caught:
        choose(tight, "mini_time")
    assert 1 <= len(dry_runs.asked) <= 6
    text = str(caught.value)
    enough = int(text.rsplit("a limit of ", 1)[1].split()[0].replace(",", ""))
    plan = choose(replace(tight, memory_limit_bytes=enough), "mini_time")
    assert plan.peak_bytes == enough


def test_fewest_devices_are_those_on_which_a_peak_fits() -> None:
    def halved(mesh: Mesh, *_: object) -> Peak:
        return Peak(100 * MB // mesh.size, 0, "")

    def plan(limit: int) -> Plan:
        wanted = replace(request(None, limit, devices=4), dry_run_peak=halved)
        return choose(wanted, "mini_parallelism")

    assert plan(120 * MB).devices == 1
    assert plan(60 * MB).devices == 2
    assert plan(26 * MB).devices == 4
    assert plan(26 * MB).option == "mini_parallelism"
    with pytest.raises(InfeasibleError, match="on 4 devices"):
        plan(24 * MB)


def test_a_choice_knows_its_peak() -> None:
    wanted = request(DryRuns(besides=7))
    choice = Strategies.of(wanted).choice
    strategy = choice.frontier.strategies[choice.point].tolist()
    assert choice.peak == predicted_peak(wanted, choice.problem, strategy)
    assert choice.peak.from_dry_run
    assert choice.plan("mini_time").peak_bytes == choice.peak.bytes


def test_a_strategy_whose_dry_run_fails_gives_way_to_the_next_one() -> None:
    def peak(mesh: Mesh, planned: Mapping[str, Configuration], *_: object) -> Peak | str:
        split = [number for number in range(LAYERS) if any(planned[f"w{number}"].splits)]
        return Peak(MB, MB, "product0") if split else "ValueError: no kernel"

    wanted = replace(request(None), dry_run_peak=peak)
    unknown = replace(wanted, saves_dry_runs=True)
    assert choose(unknown, "mini_time").peak_is_estimated  # its emission is yet to fail
    limit = Strategies.of(unknown).choice.peak.bytes
    near = replace(unknown, memory_limit_bytes=int(1.2 * limit))
    assert any("cannot be executed" in note for note in choose(near, "mini_time").notes)
    plan = choose(wanted, "mini_time")
    assert any(each.is_split for each in plan.operators if each.name.startswith("w"))
    assert plan.executed_nanoseconds > plan.frontier[-1][1], "a slower one"
    (note,) = [note for note in plan.notes if "ValueError: no kernel" in note]
    assert "a faster plan cannot be executed and is left out" in note
    demanded = choose(replace(wanted, algorithm="data_parallel"), "mini_time")
    assert not any(each.is_split for each in demanded.operators if each.name.startswith("w"))
