"""Plans of two operators, for tests."""

from __future__ import annotations

import dataclasses

from tensoropt.cost.cluster import load_cluster
from tensoropt.plan import Plan
from tensoropt.plan.operator_plan import Dimension, OperatorPlan, StagePlan

_DIMENSIONS = (Dimension("batch", 8), Dimension("columns", 4))


def a_plan() -> Plan:
    operators = [
        OperatorPlan(name, "MatMul", splits, "[2]", ("[0,-1]",), "[0,-1]", 10, 20, _DIMENSIONS)
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
        point=1,
        exact=True,
        executed_nanoseconds=2_500_000,
        network_nanoseconds=2_499_980,
    )


def staged_plan() -> Plan:
    stages = [StagePlan((), (name,), 100_000, 200_000, 50_000, 2**20) for name in ("one", "two")]
    whole = [
        dataclasses.replace(each, splits=((), ()), mesh="[]", inputs=("[-1,-1]",), output="[-1,-1]")
        for each in a_plan().operators
    ]
    return dataclasses.replace(
        a_plan(),
        operators=tuple(whole),
        stages=tuple(stages),
        schedule="1f1b",
        microbatches=4,
    )
