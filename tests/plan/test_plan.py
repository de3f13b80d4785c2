"""Plans as values and files; profiles."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tensoropt.cost.cluster import load_cluster
from tensoropt.errors import LayoutError, PlanError
from tensoropt.json_files import digest_of
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding import ReshardStep, plan_reshard
from tensoropt.plan import ParallelismProfile, Plan
from tensoropt.plan.comparison import ExecutedSteps, compare
from tensoropt.plan.operator_plan import OperatorPlan
from tensoropt.plan.parallelism_profile import ProfilePoint
from tensoropt.plan.recorded_resharding import RecordedResharding
from tensoropt.plan.stage_plan import StagePlan
from tensoropt.plan.validation_result import Trial, Validation
from tensoropt.planner.prices.reshard_steps import step_planner
from tensoropt.transformations.staged.order_of_passes import Schedule

names = st.text(min_size=1, max_size=8)
counts = st.integers(0, 2**62)


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
        notes=tuple(draw(st.lists(st.text()))),
        algorithm=draw(st.sampled_from(["ft", "optcnn"])),
        validation=draw(st.none() | validations(time)),
        reshardings=tuple(draw(st.lists(reshardings()))),
        batch_norm=draw(st.sampled_from(["global", "local"])),
        fewer_devices=tuple(
            (count, draw(st.none() | counts)) for count in (1, 2) if count < devices
        ),
        frontier_ways=draw(st.sampled_from([(), ("2 microbatches",) * len(frontier)])),
    )


@given(plan=plans())
def test_a_plan_comes_back_from_json(plan: Plan) -> None:
    """Reading a plan checks it against the schema."""
    text = json.dumps(plan.to_json())
    assert Plan.from_json(json.loads(text)) == plan


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
    older = {**plan.to_json(), "schema": 10}
    del older["fewer_devices"], older["digest"]
    older["digest"] = digest_of(older)
    assert Plan.from_json(older).fewer_devices == ()
    wrong = dataclasses.replace(plan, fewer_devices=((4, 1),)).to_json()
    with pytest.raises(PlanError, match=r"fewer devices for \[4\] in a plan for 4"):
        Plan.from_json(wrong)


def test_a_file_is_readable(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    a_plan().save(file)
    text = file.read_text()
    assert text.endswith("}\n")
    assert len(text.splitlines()) > 40  # one value a line
    assert json.loads(text)["schema"] == 12
    assert Plan.load(file) == a_plan()


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Plan)])
def test_every_field_is_required(field: str) -> None:
    values = a_plan().to_json()
    del values[field]
    with pytest.raises(PlanError, match=f"at {field}: nothing .the name is required"):
        Plan.from_json(values)


def older(schema: int) -> dict[str, Any]:
    """A plan of a schema before plans had digests."""
    values = a_plan().to_json() | {"schema": schema}
    del values["digest"]
    return values


def test_a_plan_of_the_fourth_schema_has_no_digest() -> None:
    assert Plan.from_json(older(4)) == a_plan()
    with pytest.raises(PlanError, match="changed afterwards"):
        Plan.from_json({**older(4), "digest": "0" * 64})


def test_an_edited_plan_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    a_plan().save(file)
    values = json.loads(file.read_text())
    edits: list[dict[str, Any]] = [
        {"operators": values["operators"][:1]},
        {"operators": [{**values["operators"][0], "splits": [[], [0]]}, values["operators"][1]]},
        {"graph_digest": "1" * 64},
        {"batch_norm": "local"},
        {"digest": "0" * 64},
        {"digest": None},
    ]
    for edit in edits:
        file.write_text(json.dumps({**values, **edit}))
        with pytest.raises(
            PlanError, match=r"as it was found\. Got .*plan\.json, which was changed"
        ):
            Plan.load(file)
    file.write_text(json.dumps(dict(reversed(values.items())), indent=4))
    assert Plan.load(file) == a_plan()  # laid out in another way, it says the same


def test_a_plan_of_the_first_schema_was_not_validated() -> None:
    values = older(1)
    del values["validation"]
    plan = Plan.from_json(values)
    assert plan == a_plan()
    assert plan.validation is None


def test_a_plan_of_the_second_schema_records_no_reshardings() -> None:
    values = older(2)
    del values["reshardings"]
    plan = Plan.from_json(values)
    assert plan == a_plan()
    assert plan.reshardings == ()


def test_a_plan_of_the_third_schema_normalises_by_the_whole_batch() -> None:
    values = older(3)
    del values["batch_norm"]
    assert Plan.from_json(values) == a_plan()
    assert a_plan().batch_norm == "global"


def test_a_plan_of_the_fifth_schema_computes_a_batch_at_once() -> None:
    values = a_plan().to_json() | {"schema": 5}
    del values["microbatches"]
    values["digest"] = digest_of(values)
    assert Plan.from_json(values) == a_plan()
    assert a_plan().microbatches == 1
    with pytest.raises(PlanError, match="changed afterwards"):
        Plan.from_json(values | {"batch_norm": "local"})


def test_a_plan_of_the_ninth_schema_states_no_peaks_of_its_frontier() -> None:
    values = a_plan().to_json() | {"schema": 9}
    del values["frontier_peaks"]
    values["digest"] = digest_of(values)
    assert Plan.from_json(values) == a_plan()
    assert a_plan().frontier_peaks == ()


def test_a_plan_of_the_eleventh_schema_does_not_say_how_its_peak_is_known() -> None:
    values = a_plan().to_json() | {"schema": 11, "frontier_rewrites": []}
    del values["peak_is_estimated"], values["frontier_ways"], values["digest"]
    values["digest"] = digest_of(values)
    assert Plan.from_json(values) == a_plan()
    assert a_plan().peak_margin == 1
    estimated = dataclasses.replace(a_plan(), peak_is_estimated=True)
    assert Plan.from_json(estimated.to_json()) == estimated
    assert estimated.peak_margin > 1


def test_ways_of_points_are_one_for_each_and_of_older_plans_their_substitutions() -> None:
    values = a_plan().to_json() | {"schema": 11}
    del values["peak_is_estimated"], values["frontier_ways"], values["digest"]
    names = [["one", "two"], *([[]] * (len(a_plan().frontier) - 1))]
    given = {**values, "frontier_rewrites": names}
    ways = Plan.from_json({**given, "digest": digest_of(given)}).frontier_ways
    assert ways == ("one, two", *["whole batch"] * (len(names) - 1))
    for wrong in ("one", [1], [[1]]):
        with pytest.raises(PlanError, match="frontier_rewrites"):
            Plan.from_json({**values, "digest": None, "frontier_rewrites": wrong})
    some = dataclasses.replace(a_plan(), frontier_ways=("one",) * 9)
    with pytest.raises(PlanError, match="9 frontier_ways for"):
        Plan.from_json(some.to_json())


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


def test_a_plan_of_the_sixth_schema_has_no_stages() -> None:
    values = a_plan().to_json() | {"schema": 6}
    del values["stages"], values["schedule"]
    values["digest"] = digest_of(values)
    assert Plan.from_json(values) == a_plan()
    assert (a_plan().stages, a_plan().schedule, a_plan().bubble) == ((), None, 0.0)


def test_a_plan_of_stages() -> None:
    plan = staged_plan()
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    assert plan.stage_of == {"one": 0, "two": 1}
    assert plan.bubble == pytest.approx(1 - (4 * 300 + 50) / 2500)
    assert str(plan).startswith("plan mini_time on 2 devices: 2 stages, 0 of 2 operators split")


def test_memory_is_compared_with_what_the_stage_of_a_rank_takes() -> None:
    plan = staged_plan()
    first, second = plan.stages
    stages = first, dataclasses.replace(second, peak_bytes=3 * 2**20)
    plan = dataclasses.replace(plan, peak_bytes=5 * 2**20, stages=stages)
    for stage, predicted in ((None, 5), (0, None), (1, 3)):  # one process has all stages, or one
        peak = compare(plan, ExecutedSteps(stage=stage)).quantities[2]
        assert peak.predicted == predicted
    plan = dataclasses.replace(plan, peak_is_estimated=True)
    peak = compare(plan, ExecutedSteps(stage=0)).quantities[2]
    assert (peak.predicted, peak.margin) == (1, plan.peak_margin)  # the stage's sum


@pytest.mark.parametrize(
    ("stages", "schedule", "reason"),
    [
        ((0, 0), "1f1b", "'one' in several stages"),
        ((0,), "1f1b", r"stages of \[1\] devices for 2"),
        ((0, 2), "1f1b", "'two' in no stage"),
        ((0, 1), None, "schedule None of 2 stages"),
        ((0, 3), "1f1b", r"splits \(\(0,\), \(\)\) of 'two' on 0 axes"),
    ],
)
def test_stages_that_contradict_other_fields(
    stages: tuple[int, ...], schedule: Schedule | None, reason: str
) -> None:
    plan = staged_plan()
    operators = list(plan.operators)
    if stages[-1] == 3:
        operators[1] = dataclasses.replace(operators[1], splits=((0,), ()))
    names = {0: "one", 1: "two", 2: "three", 3: "two"}
    found = tuple(dataclasses.replace(plan.stages[0], operators=(names[n],)) for n in stages)
    wrong = dataclasses.replace(plan, operators=tuple(operators), stages=found, schedule=schedule)
    with pytest.raises(PlanError, match=reason):
        Plan.from_json(wrong.to_json())


def test_whose_statistics_a_plan_takes_is_one_of_two() -> None:
    values = a_plan().to_json() | {"batch_norm": "loocal"}
    with pytest.raises(PlanError, match=r"at batch_norm: 'loocal' .*'global' or 'local'"):
        Plan.from_json(values)


def test_steps_that_are_recorded_are_taken_whatever_others_cost() -> None:
    source, target = Layout(((0,), ())), Layout(((), (0,)))
    gathered = ReshardStep.from_source("allgather", (0,), source, from_dim=0)
    cut = ReshardStep.from_source("slice", (0,), gathered.target, to_dim=1)
    detour = RecordedResharding((8, 4), 4, source, target, (gathered, cut))
    plan = Plan.from_json(dataclasses.replace(a_plan(), reshardings=(detour,)).to_json())
    steps = step_planner(plan)
    assert steps((8, 4), "float32", source, target) == (gathered, cut)
    (direct,) = steps((8, 4), "float64", source, target)
    assert direct.kind == "alltoall"
    assert steps((8, 4), "float64", target, target) == ()
    assert [each.itemsize for each in steps.recorded()] == [4, 8]


def test_recorded_steps_lead_from_one_layout_to_the_other() -> None:
    gathered = ReshardStep.from_source("allgather", (0,), Layout(((0,), ())), from_dim=0)
    whole, columns = Layout(((), ())), Layout(((), (0,)))
    with pytest.raises(LayoutError, match="lead to its target"):
        RecordedResharding((8, 4), 4, gathered.source, columns, (gathered,))
    with pytest.raises(LayoutError, match="where the one before ended"):
        RecordedResharding((8, 4), 4, columns, whole, (gathered,))
    good = RecordedResharding((8, 4), 4, gathered.source, whole, (gathered,))
    values = dataclasses.replace(a_plan(), reshardings=(good,)).to_json()
    values["reshardings"][0]["steps"][0][2] = 1
    with pytest.raises(PlanError, match=r"at reshardings/0: .*allgather over"):
        Plan.from_json(values)
    values["reshardings"][0]["steps"] *= 65
    with pytest.raises(PlanError, match=r"at reshardings/0/steps: .* at most 64 items"):
        Plan.from_json(values)
    values["reshardings"][0]["steps"][0][0] = "teleport"
    values["reshardings"][0]["steps"][1:] = []
    with pytest.raises(PlanError, match=r"at reshardings/0/steps/0/0: 'teleport' .one of 'slice'"):
        Plan.from_json(values)


def test_splits_are_of_different_axes_in_ascending_order() -> None:
    values = dataclasses.replace(a_plan(), devices=4, mesh_axes=(2, 2)).to_json()
    values["operators"][0]["splits"] = [[1, 0], []]
    with pytest.raises(PlanError, match=r"splits \(\(1, 0\), \(\)\) of 'one': .* ascending order"):
        Plan.from_json(values)


def test_a_validation_is_of_its_plan() -> None:
    trials = (Trial("one", 2_500_000, 5), Trial("other", 3_000_000, 4))
    good = dataclasses.replace(a_plan(), validation=Validation(1, trials, 0))
    assert Plan.from_json(json.loads(json.dumps(good.to_json()))) == good
    for adopted in (1, 2):
        bad = dataclasses.replace(a_plan(), validation=Validation(1, trials, adopted))
        with pytest.raises(PlanError, match="Got in a plan the validation of another plan"):
            Plan.from_json(bad.to_json())


@pytest.mark.parametrize("values", [None, [], "plan", 3, {}])
def test_what_is_no_plan(values: object) -> None:
    with pytest.raises(PlanError, match="Got a plan of schema none"):
        Plan.from_json(values)


def test_a_field_too_many() -> None:
    with pytest.raises(PlanError, match=r"at colour: 'blue' .there is no such name"):
        Plan.from_json({**a_plan().to_json(), "colour": "blue"})


@given(
    points=st.lists(
        st.builds(
            ProfilePoint,
            devices=st.integers(1, 64),
            time_seconds=st.none() | st.floats(0, 1e3),
            memory_bytes=counts,
            memory_limit_bytes=st.none() | counts,
            batch_size=st.none() | st.integers(1, 2**20),
            device_hour_cost=st.none() | st.floats(1e-3, 1e3),
            is_measured=st.booleans(),
        )
    )
)
def test_a_profile_comes_back_from_json(points: list[ProfilePoint]) -> None:
    profile = ParallelismProfile(tuple(points))
    again = ParallelismProfile.from_json(json.loads(json.dumps(profile.to_json())))
    assert again == profile
    assert list(again) == points
    assert len(again) == len(points)
    assert [point.fits for point in again] == [p.time_seconds is not None for p in points]


def test_a_profile_says_its_points() -> None:
    points = (
        ProfilePoint(1, None, 3 * 2**20, 2**30, 8, 3.6),
        ProfilePoint(2, 0.00125, 2**20, 2**30),
        ProfilePoint(2, 0.00125, 2**20, 2**30, 8),
        ProfilePoint(2, 0.00125, 2**20, 2**30, 8, 3.6),
    )
    assert str(ParallelismProfile(points)).splitlines() == [
        "1 device: does not fit, 3.0 MiB a device",
        "2 devices: 1.250 ms a step, 1.0 MiB a device",
        "2 devices: 1.250 ms a step, 1.0 MiB a device, 312.5 device-seconds for a million samples",
        "2 devices: 1.250 ms a step, 1.0 MiB a device, 0.3125 for a million samples",
    ]
    assert points[1].samples_per_second is None
    assert points[3].samples_per_second == 6400
