"""Files of dataclasses: each kind takes no value of another type, and no other names."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from math import inf, nan
from pathlib import Path
from typing import Annotated, Any

import pytest
from annotated_types import Ge, Le

from tensoropt.converters import Natural, Number, Pairs, from_values, to_values
from tensoropt.cost.cluster import Cluster, load_cluster
from tensoropt.cost.machine_profile import Profile, measured_cluster
from tensoropt.errors import PlanError
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.resharding import ReshardStep
from tensoropt.plan import Plan
from tensoropt.plan.point_peak import PointPeak
from tensoropt.plan.recorded_resharding import RecordedResharding
from tensoropt.plan.validation_result import Trial, Validation
from tensoropt.rewriting.substitutions import FILE, read
from tensoropt.transformations.rewritten.application import Rewrite
from tests.cost.test_slowdown_in_steps import profile
from tests.plan.small_plans import staged_plan

Place = tuple[Any, ...]
Values = dict[str, Any]
ANY_NAMES = ("shapes", "skipped", "attributes", "inputs", "peak_flops_per_second", "efficiency")
"""Objects whose names the file chooses."""


@dataclass(frozen=True, slots=True)
class Measured:
    share: Annotated[Number, Ge(0), Le(1)]
    pairs: Annotated[tuple[tuple[str, Natural], ...], Pairs(sorted)] = ()


def measured(values: object) -> Measured:
    return from_values(Measured, values, "a file is a measurement. Got in a file", "Measure again.")


def test_a_value_comes_back_and_a_number_stays_as_it_is_written() -> None:
    for share in (0, 1, 0.5):
        values = {"share": share, "pairs": {"b": 2, "a": 1}}
        assert measured(values) == Measured(share, (("a", 1), ("b", 2)))
        assert json.dumps(to_values(measured(values)), sort_keys=True) == json.dumps(
            values, sort_keys=True
        )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"share": nan, "pairs": {}}, "at share: nan (input should be a finite number)"),
        ({"share": inf, "pairs": {}}, "at share: inf (input should be a finite number)"),
        ({"share": 2, "pairs": {}}, "at share: 2 (input should be less than or equal to 1)"),
        ({"share": 1, "pairs": {"a": 2.0}}, "at pairs/a: 2.0 (input should be a valid integer)"),
        ({"share": 1, "pairs": {"a": 2**63}}, "at pairs/a: 9223372036854775808 (input should be"),
        ({"share": 1, "pairs": [["a", 1]]}, "at pairs: [['a', 1]] (input should be an object)"),
        ({"share": 1}, "at pairs: nothing (the name is required)"),
        ({"share": 1, "pairs": {}, "x": 1}, "at x: 1 (there is no such name)"),
        ([], "at the whole: [] (input should be an object)"),
        ({"share": "x" * 200, "pairs": {}}, f"at share: '{'x' * 99}... (input"),
    ],
)
def test_an_error_has_the_place_the_value_and_the_rule(values: object, message: str) -> None:
    with pytest.raises(PlanError) as caught:
        measured(values)
    assert str(caught.value).startswith(f"a file is a measurement. Got in a file {message}")
    assert str(caught.value).endswith("). Measure again.")


def whole_plan() -> Values:
    """The values of a plan in which each list has an item."""
    split = Layout(((0,), ()), (1,))
    steps = [ReshardStep.from_source("allgather", (0,), split, from_dim=0)]
    steps.append(ReshardStep.from_source("allreduce", (1,), steps[0].target, reducer="sum"))
    resharding = RecordedResharding((8, 4), 4, split, Layout(((), ())), tuple(steps))
    plan = staged_plan()
    trial = Trial("best", plan.time_nanoseconds, 5, 5, 0.25, 0.125, 2**20)
    return replace(
        plan,
        cluster=measured_cluster(load_cluster("8-v100"), profile()),
        validation=Validation(1, (trial,), 0, ("no peak",)),
        reshardings=(resharding,),
        rewrites=(Rewrite("a rule", ("y:0",), (("x", "x:0"),)),),
        notes=("a note",),
        frontier_ways=("whole batch",) * len(plan.frontier),
        frontier_peaks=(PointPeak(2, "estimate"),) * len(plan.frontier),
        fewer_devices=((1, 3),),
    ).to_json()


def one_substitution() -> Values:
    """The values of a file with a substitution of inputs that lie in several ways."""
    known = json.loads(FILE.read_text())["parallel"]
    placed = (each for each in known if ",space=" in each["equation"])
    return {"schema": 2, "algebraic": [], "parallel": [next(placed)], "hybrid": []}


def read_substitutions(values: Values, folder: Path) -> Any:
    (folder / "file.json").write_text(json.dumps(values))
    return read(folder / "file.json")


FILES: dict[str, tuple[Callable[[], Values], Callable[[Values, Path], Any]]] = {
    "plan": (whole_plan, lambda values, _: Plan.from_json(values)),
    "cluster": (
        lambda: measured_cluster(load_cluster("8-v100"), profile()).to_json(),
        lambda values, _: Cluster.from_json(values, "a file"),
    ),
    "profile": (lambda: profile().to_json(), lambda values, _: Profile.from_json(values, "a file")),
    "substitutions": (one_substitution, read_substitutions),
}


def places(values: Any) -> Iterator[tuple[Place, Any]]:
    """The places and values inside of a value."""
    for key, value in values.items() if isinstance(values, dict) else enumerate(values):
        yield (key,), value
        if isinstance(value, dict | list):
            yield from (((key, *deeper), inside) for deeper, inside in places(value))


def changed(values: Values, place: Place, value: object) -> Values:
    """A copy with another value at a place."""
    copy = inside = deepcopy(values)
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = value
    return copy


def of_another_type(value: object) -> list[object]:
    if isinstance(value, bool):
        return [int(value), str(value).lower()]
    if isinstance(value, int | float):
        return [str(value), bool(value)]
    if value is None:
        return [[], True]
    return [7, "a text" if isinstance(value, dict | list) else []]


@pytest.mark.parametrize("kind", FILES)
def test_a_file_takes_no_value_of_another_type_and_no_other_names(
    kind: str, tmp_path: Path
) -> None:
    original, reader = FILES[kind]
    values = original()
    reader(values, tmp_path)
    for place, value in places(values):
        where = "/".join(map(str, place))
        if where in ("schema", "digest"):  # their errors say so
            continue
        for wrong in of_another_type(value):
            with pytest.raises(PlanError, match=rf"at {where}[:/]"):
                reader(changed(values, place, wrong), tmp_path)
        if isinstance(value, dict) and place[-1] not in ANY_NAMES:
            with pytest.raises(PlanError, match=f"at {where}/colour: 1 .there is no such name"):
                reader(changed(values, (*place, "colour"), 1), tmp_path)
