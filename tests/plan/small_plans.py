"""Plans of two operators, for tests."""

from __future__ import annotations

import dataclasses

from tensoropt.cost.cluster import load_cluster
from tensoropt.plan import Plan
from tensoropt.plan.operator_plan import OperatorPlan, StagePlan


def a_plan() -> Plan:
    operators = [
        OperatorPlan(name, "MatMul", splits, "[2]", ("[0,-1]",), "[0,-1]", 10, 20)
        for name, splits in (("one", ((0,), ())), ("two", ((), ())))
    ]
    return Plan(
        *(
            "mini_time",
            2,
            (2,),
            load_cluster("2x8-v100"),
            "0" * 64,
            ("step",),
            {"x": (8, 4)},
            ("x",),
        ),
        operators=tuple(operators),
        time_nanoseconds=2_500_000,
        memory_bytes=3 * 2**20,
        memory_limit_bytes=None,
        frontier=((2 * 2**20, 5_000_000), (3 * 2**20, 2_500_000)),
        exact=True,
    )


def staged_plan() -> Plan:
    stages = [StagePlan((), (name,), 100_000, 200_000, 50_000, 2**20) for name in ("one", "two")]
    plain = OperatorPlan("one", "MatMul", ((), ()), "[]", ("[-1,-1]",), "[-1,-1]", 10, 20)
    return dataclasses.replace(
        a_plan(),
        operators=(plain, dataclasses.replace(plain, name="two")),
        stages=tuple(stages),
        schedule="1f1b",
        microbatches=4,
    )
