"""Plans for clusters whose devices differ in speed or memory."""

from __future__ import annotations

import json
from dataclasses import replace

import tensorflow as tf

from tensoropt.cost.cluster import Cluster, Kind, load_cluster
from tensoropt.parallel.mesh import Shares
from tensoropt.plan import Plan
from tensoropt.planner.choose import choose, chosen
from tensoropt.planner.market import Market
from tensoropt.planner.offers.kept_frontier import KeptFrontier
from tensoropt.planner.request import PipelineNumbers, Request
from tests.oracles.equality import mlp

ALIKE = load_cluster("8-v100")


def of(cluster: Cluster, devices: int = 2) -> Request:
    """A step of wide products, whose batch of 6000 is most of its work."""
    script = mlp(tf.float32, 1, 6000, (512, 1024, 1024, 512))
    return Request(
        graph=script.imported(),
        cluster_at=lambda _: cluster,
        devices=devices,
        roots=(script.train,),
        shapes=script.shapes,
        batch_placeholders=frozenset(script.feeds[0]),
        rewrite=None,
        keep_less=True,
        accumulate=True,
    )


def mixed(speed: float, memory_bytes: int | None = None) -> Cluster:
    """Machines with every second device of another kind."""
    return replace(ALIKE, kinds=(Kind("old", (1, 3, 5, 7), speed, memory_bytes),))


def test_shares_are_in_proportion_where_devices_differ() -> None:
    request = of(mixed(0.5))
    market, plan = chosen(request, "mini_time")
    even = choose(of(ALIKE), "mini_time")
    assert plan.shares is not None
    assert plan.shares.speeds == (1000, 500)
    assert 6000 in plan.shares.extents
    assert plan.way == "shares in proportion"
    assert even.shares is None
    # Even pieces take twice as long on the slow device; in proportion they take 4/3.
    assert plan.time_nanoseconds < 1.45 * even.time_nanoseconds
    whole = market.offers[0]
    assert whole.price is not None
    assert whole.price > 1.35 * plan.executed_nanoseconds
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    kept = KeptFrontier.from_json(json.loads(json.dumps(market.kept(plan).to_json())))
    last = kept.plan_of(of(mixed(0.5)), "mini_time", len(plan.frontier) - 1)
    assert last.shares == plan.shares


def test_a_plan_says_what_each_kind_of_device_does() -> None:
    notes = choose(of(mixed(0.5)), "mini_time").notes
    fast, slow = (note for note in notes if "compute" in note)
    assert fast.startswith("device 0 (V100-SXM2-16GB) computes 4000 of 6000 examples in ")
    assert slow.startswith("device 1 (old) computes 2000 of 6000 examples in ")


def test_clusters_of_one_kind_are_planned_as_before() -> None:
    plan, market = choose(of(ALIKE), "mini_time"), Market(of(ALIKE))
    assert "proportion" not in market.looked_at
    assert "shares" not in plan.to_json()
    assert "kinds" not in plan.to_json()["cluster"]
    nearly = choose(of(mixed(0.99)), "mini_time")
    assert nearly.shares is None  # within the error of predictions


def test_one_slow_device_of_four_gets_its_share() -> None:
    cluster = replace(ALIKE, kinds=(Kind("old", (3,), 0.5),))
    plan = choose(of(cluster, 4), "mini_time")
    assert plan.shares == Shares(
        (1000, 1000, 1000, 500), plan.shares.extents if plan.shares else ()
    )


def test_memory_is_that_of_the_kind_with_the_least() -> None:
    request = of(mixed(1.0, 2**30))
    assert request.limit_bytes(2) == 2**30
    assert request.limit_bytes(1) == ALIKE.device.memory_bytes


def test_stages_take_the_devices_that_suit_them_and_the_memory_of_their_kind() -> None:
    script = mlp(tf.float32, 1, 512, (1024,) * 9)
    old = Kind("old", (1, 3), 0.5, 2**26)  # the variables and gradients of 8 layers take 64 MiB
    request = Request(
        graph=script.imported(),
        cluster_at=lambda _: replace(ALIKE, kinds=(old,)),
        devices=4,
        roots=(script.train,),
        shapes=script.shapes,
        batch_placeholders=frozenset(script.feeds[0]),
        pipeline=PipelineNumbers(2, 8),
    )
    market, plan = chosen(request, "mini_time")
    assert sorted(map(set, map(plan.devices_of_stage, range(2))), key=min) == [{0, 2}, {1, 3}]
    of_old, of_new = sorted(plan.stages, key=lambda stage: stage.memory_bytes)
    assert of_old.memory_bytes < 2**26 / 2 < of_new.memory_bytes
    assert plan.memory_bytes <= (plan.memory_limit_bytes or 0) < of_new.memory_bytes
    notes = [note for note in plan.notes if "run stage" in note]
    assert any(note.startswith("devices 1, 3 (old) run stage ") for note in notes)
    assert any("67,108,864" in note for note in notes)
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    kept = KeptFrontier.from_json(json.loads(json.dumps(market.kept(plan).to_json())))
    assert plan.point is not None
    assert kept.plan_of(request, "mini_time", plan.point).device_order == plan.device_order
    assert request.limits(4) == (ALIKE.device.memory_bytes, 2**26) * 2
    assert replace(request, memory_limit_bytes=2**25).limits(4) == (2**25,) * 4
