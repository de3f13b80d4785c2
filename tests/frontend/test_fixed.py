"""A script whose layers are divided by hand trains as on one device."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import tensoropt
from tensoropt.cost.cluster import Kind, load_cluster
from tensoropt.errors import StateError
from tensoropt.json_files import write_json
from tests.oracles.equality.engine import worst_error
from tests.oracles.equality.fixed import BAR, WAYS, Case, keeps, planned, script_of
from tests.oracles.equality.side_by_side import trained

tensoropt.enable_graph_mode()


@pytest.mark.parametrize(
    "case",
    [
        Case("gates", 4, 1, "stages", "gate0", "columns", ("device",)),
        Case("images", 3, 1, "whole batch", "last", "columns", ("device",)),
    ],
    ids=str,
)
def test_a_fixed_plan_equals_plain_tensorflow(case: Case) -> None:
    script, truth = script_of(case.model)
    plan = planned(case)
    assert all(keeps(plan, case).values())
    if not plan.stages:
        assert "divisions searched" in str(plan.explain(case.layer, 1e-9))
        with pytest.raises(StateError, match="Got another plan"):
            dataclasses.replace(plan, notes=("edited",)).explain(case.layer)
        # Uneven pieces are exact, whether or not the plan says that they are divided by hand.
        plan = dataclasses.replace(plan, fixed=())
    assert worst_error(trained(script, plan), truth) <= BAR


def test_fixed_dimensions_and_shares_in_proportion_together_equal_plain_tensorflow(
    tmp_path: Path,
) -> None:
    known = load_cluster("8-v100")
    device = dataclasses.replace(
        known.device,
        peak_flops_per_second=(("default", 1e6),),  # the work outweighs all overheads
        memory_bandwidth_bytes_per_second=1e6,
    )
    cluster = dataclasses.replace(known, device=device, kinds=(Kind("old", (1,), 0.5),))
    write_json(tmp_path / "cluster.json", cluster.to_json())
    tensoropt.init(devices=3, cluster=str(tmp_path / "cluster.json"))
    script, truth = script_of("images")
    with script.graph.as_default():
        plan = tensoropt.find_strategy(
            shapes={f"{name}:0": shape for name, shape in script.shapes.items()},
            fixed={"last": {"columns": "device"}},
            **WAYS["whole batch"],
        )
    assert plan.shares is not None
    assert plan.shares.speeds == (1000, 500, 1000)
    assert plan.shares.extents == (9,)  # the examples
    case = Case("images", 3, 1, "whole batch", "last", "columns", ("device",))
    assert all(keeps(plan, case).values())
    assert worst_error(trained(script, plan), truth) <= BAR
