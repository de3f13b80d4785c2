"""Plans as values and files."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tensoropt.cost.cluster import load_cluster
from tensoropt.errors import PlanError
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import plan_reshard
from tensoropt.plan import Plan
from tensoropt.plan.operator_plan import Dimension, OperatorPlan
from tensoropt.plan.point_peak import PointPeak
from tensoropt.plan.recorded_resharding import RecordedResharding
from tensoropt.plan.validation_result import Trial, Validation
from tests.plan.small_plans import a_plan

names = st.text(min_size=1, max_size=8)
counts = st.integers(0, 2**62)
_OPTIONAL = {"device_order", "fixed", "shares", "units"}


@st.composite
def validations(draw: Any, time: int) -> Validation:
    """Validations of candidates; the first takes ``time``, and is adopted."""
    seconds = st.none() | st.floats(0, 1e3)
    trial = st.builds(
        Trial,
        name=names,
        time_nanoseconds=counts,
        memory_bytes=counts,
        steps=st.integers(0, 9),
        measured_seconds=seconds,
        measured_network_seconds=seconds,
        measured_peak_bytes=st.none() | counts,
        dropped=st.text(),
    )
    adopted = dataclasses.replace(draw(trial), time_nanoseconds=time)
    others = draw(st.lists(trial, max_size=2))
    return Validation(1, (adopted, *others), 0, tuple(draw(st.lists(st.text()))))


@st.composite
def reshardings(draw: Any) -> RecordedResharding:
    """Reshardings from one layout of a matrix on four devices to another."""
    partial = st.sampled_from([(), (1,)])
    source, target = (
        Layout(dims, draw(partial), reducer)
        for dims, reducer in draw(
            st.lists(
                st.tuples(
                    st.sampled_from([((0,), ()), ((), (0,)), ((), ())]),
                    st.sampled_from(["sum", "max"]),
                ),
                min_size=2,
                max_size=2,
                unique=True,
            )
        )
    )
    itemsize = draw(st.sampled_from([2, 4]))
    steps = plan_reshard(Mesh((2, 2)), (4, 4), itemsize, source, target, lambda *_: 1)
    assume(steps)
    return RecordedResharding((4, 4), itemsize, source, target, steps)


point_peaks = st.builds(
    PointPeak, counts, st.sampled_from(["dry run", "estimate", "interpolation"])
)


@st.composite
def plans(draw: Any) -> Plan:
    axes = draw(st.lists(st.sampled_from([2, 3]), max_size=3))
    devices = 1
    for size in axes:
        devices *= size
    places = st.lists(st.sampled_from(range(len(axes))), unique=True) if axes else st.just([])

    def operator(name: str) -> OperatorPlan:
        split = draw(places)
        cut = draw(st.integers(0, len(split)))
        return OperatorPlan(
            name=name,
            type="MatMul",
            splits=(tuple(sorted(split[:cut])), tuple(sorted(split[cut:])), ()),
            mesh="[2]",
            inputs=("[0,-1]", "[-1,-1]"),
            output="[0,-1]",
            time_nanoseconds=draw(counts),
            memory_bytes=draw(counts),
            dimensions=(Dimension("batch", 8), Dimension("columns", 4), Dimension("rows", 4)),
        )

    frontier = draw(st.lists(st.tuples(counts, counts), min_size=1, max_size=4))
    memory, time = draw(st.sampled_from(frontier))
    return Plan(
        option=draw(st.sampled_from(["mini_time", "mini_parallelism"])),
        devices=devices,
        mesh_axes=tuple(axes),
        cluster=load_cluster("2x8-v100"),
        graph_digest="0" * 64,
        roots=tuple(draw(st.lists(names))),
        shapes=draw(st.dictionaries(names, st.lists(st.integers(0, 99)).map(tuple))),
        batch_placeholders=tuple(draw(st.lists(names))),
        operators=tuple(operator(name) for name in draw(st.lists(names, max_size=3))),
        time_nanoseconds=time,
        memory_bytes=memory,
        memory_limit_bytes=draw(st.none() | counts),
        frontier=tuple(frontier),
        exact=draw(st.booleans()),
        executed_nanoseconds=time,
        network_nanoseconds=draw(counts),
        notes=tuple(draw(st.lists(st.text()))),
        algorithm=draw(st.sampled_from(["ft", "optcnn"])),
        validation=draw(st.none() | validations(time)),
        reshardings=tuple(draw(st.lists(reshardings()))),
        batch_norm=draw(st.sampled_from(["global", "local"])),
        compression=draw(st.sampled_from([None, "bf16"])),
        fewer_devices=tuple(
            (count, draw(st.none() | counts)) for count in (1, 2) if count < devices
        ),
        frontier_ways=draw(st.sampled_from([(), ("2 microbatches",) * len(frontier)])),
        frontier_peaks=draw(st.just(()) | st.tuples(*[st.none() | point_peaks] * len(frontier))),
    )


@given(plan=plans())
def test_a_plan_comes_back_from_json(plan: Plan) -> None:
    """Reading a plan checks it against the schema."""
    text = json.dumps(plan.to_json())
    assert Plan.from_json(json.loads(text)) == plan


def test_what_a_plan_says_of_itself() -> None:
    plan = a_plan()
    assert str(plan) == (
        "plan mini_time on 2 devices: 1 of 2 operators split, 2.500 ms a step (predicted), "
        "3.0 MiB a device"
    )
    assert str(dataclasses.replace(plan, algorithm="tofu")).startswith(
        "plan mini_time by tofu on 2 devices: "
    )
    assert plan.predicted_step_seconds == 0.0025
    assert plan.mesh.size == 2
    assert plan.configurations == {
        "one": Configuration(((0,), ())),
        "two": Configuration(((), ())),
    }
    assert [operator.is_split for operator in plan.operators] == [True, False]


@pytest.mark.parametrize(
    ("fewer", "said"),
    [
        ((), ""),
        (((1, 3_000_000),), "; 3.000 ms on one device"),
        (((1, 2_490_000),), "; 2.490 ms on one device, about as fast"),
        (((1, None),), "; does not fit one device"),
        (
            ((1, 500_000), (2, 1_000_000)),
            "; 0.500 ms on one device, the fastest number of devices here: run with mpirun -np 1",
        ),
        (
            ((1, 3_000_000), (2, 1_000_000)),
            "; 3.000 ms on one device; 1.000 ms on 2 devices, the fastest number of devices here: "
            "run with mpirun -np 2",
        ),
    ],
)
def test_a_plan_says_how_it_compares_with_fewer_devices(
    fewer: tuple[tuple[int, int | None], ...], said: str
) -> None:
    plan = dataclasses.replace(a_plan(), devices=4, mesh_axes=(2, 2), fewer_devices=fewer)
    assert str(plan).endswith(f"3.0 MiB a device{said}")
    assert Plan.from_json(plan.to_json()) == plan
    wrong = dataclasses.replace(plan, fewer_devices=((4, 1),)).to_json()
    with pytest.raises(PlanError, match=r"fewer devices for \[4\] in a plan for 4"):
        Plan.from_json(wrong)


def test_a_file_is_readable(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    a_plan().save(file)
    text = file.read_text()
    assert text.endswith("}\n")
    assert len(text.splitlines()) > 40  # one value a line
    assert json.loads(text)["schema"] == 16
    assert Plan.load(file) == a_plan()


@pytest.mark.parametrize("field", sorted({*Plan.__slots__} - _OPTIONAL))
def test_every_field_is_required(field: str) -> None:
    values = a_plan().to_json()
    del values[field]
    with pytest.raises(PlanError, match=f"at {field}: nothing .the name is required"):
        Plan.from_json(values)


def test_an_edited_plan_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    a_plan().save(file)
    values = json.loads(file.read_text())
    edits: list[dict[str, Any]] = [
        {"operators": values["operators"][:1]},
        {"operators": [{**values["operators"][0], "splits": [[], [0]]}, values["operators"][1]]},
        {"graph_digest": "1" * 64},
        {"batch_norm": "local"},
        {"compression": "bf16"},
        {"digest": "0" * 64},
        {"digest": None},
    ]
    for edit in edits:
        file.write_text(json.dumps({**values, **edit}))
        with pytest.raises(
            PlanError, match=r"as it was found\. Got .*plan\.json, which was changed"
        ):
            Plan.load(file)
    file.write_text(json.dumps({name: values[name] for name in values if name != "digest"}))
    with pytest.raises(PlanError, match="which was changed afterwards"):
        Plan.load(file)
    file.write_text(json.dumps(dict(reversed(values.items())), indent=4))
    assert Plan.load(file) == a_plan()  # laid out in another way, it says the same


def test_whose_statistics_a_plan_takes_is_one_of_two() -> None:
    values = a_plan().to_json() | {"batch_norm": "loocal"}
    with pytest.raises(PlanError, match=r"at batch_norm: 'loocal' .*'global' or 'local'"):
        Plan.from_json(values)


def test_splits_are_of_different_axes_in_ascending_order() -> None:
    values = dataclasses.replace(a_plan(), devices=4, mesh_axes=(2, 2)).to_json()
    values["operators"][0]["splits"] = [[1, 0], []]
    with pytest.raises(PlanError, match=r"splits \(\(1, 0\), \(\)\) of 'one': .* ascending order"):
        Plan.from_json(values)


def test_units_of_pieces_are_those_of_a_mesh() -> None:
    plan = dataclasses.replace(a_plan(), units=((40, 5),))
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    assert plan.mesh == Mesh((2,), None, ((40, 5),))
    assert "units" not in a_plan().to_json()
    wrong = dataclasses.replace(plan, units=((40, 7),)).to_json()
    with pytest.raises(PlanError, match=r"shares or units of pieces: .*multiples of a unit"):
        Plan.from_json(wrong)


def test_a_validation_is_of_its_plan() -> None:
    trials = (Trial("one", 2_500_000, 5), Trial("other", 3_000_000, 4))
    good = dataclasses.replace(a_plan(), validation=Validation(1, trials, 0))
    assert Plan.from_json(json.loads(json.dumps(good.to_json()))) == good
    for adopted in (1, 2):
        bad = dataclasses.replace(a_plan(), validation=Validation(1, trials, adopted))
        with pytest.raises(PlanError, match="Got in a plan the validation of another plan"):
            Plan.from_json(bad.to_json())


@pytest.mark.parametrize("schema", [1, 15, 17])
def test_a_plan_of_another_schema_is_refused(schema: int, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({**a_plan().to_json(), "schema": schema}))
    with pytest.raises(PlanError) as caught:
        Plan.load(file)
    assert str(caught.value) == (
        f"this TensorOpt reads plans of schema 16. Got {file} of schema {schema}. Plan again with "
        "this version: `tensoropt plan SCRIPT --output FILE`, or find_strategy."
    )


def test_a_plan_has_a_peak_and_a_way_for_each_point_or_none() -> None:
    for name, value in (("frontier_peaks", None), ("frontier_ways", "one")):
        some: Any = {name: (value,) * 9}
        with pytest.raises(PlanError, match=f"9 {name} for 2 points"):
            Plan.from_json(dataclasses.replace(a_plan(), **some).to_json())


def test_a_plan_names_each_dimension_that_is_split() -> None:
    values = a_plan().to_json()
    del values["operators"][0]["dimensions"][1]
    with pytest.raises(PlanError, match=r"splits .* of 'one' in 1 dimensions"):
        Plan.from_json(values)


def test_a_real_peak_may_exceed_an_estimate() -> None:
    assert a_plan().peak_margin == 1
    assert dataclasses.replace(a_plan(), peak_is_estimated=True).peak_margin > 1


@pytest.mark.parametrize("values", [None, [], "plan", 3, {}])
def test_what_is_no_plan(values: object) -> None:
    with pytest.raises(PlanError, match="Got a plan of schema none"):
        Plan.from_json(values)


def test_a_field_too_many() -> None:
    with pytest.raises(PlanError, match=r"at colour: 'blue' .there is no such name"):
        Plan.from_json({**a_plan().to_json(), "colour": "blue"})
