"""Costs of operators under all configurations, against one configuration at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tensoropt.cost.cluster import load_cluster
from tensoropt.cost.memory import Footprint
from tensoropt.cost.model import ClusterCostModel, CostModel
from tensoropt.graph.operator import Operator, TensorName
from tensoropt.parallel.assignments import assignments, configuration_of
from tensoropt.parallel.configuration import Configuration, input_slot, output_slot
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import derivation_of
from tensoropt.problem.operators.inner_steps import inner_steps
from tensoropt.problem.operators.local_work import has_known_shape, operator_work
from tensoropt.problem.operators.memory import among_kept, memory_amounts
from tensoropt.problem.operators.operator_costs import OperatorCosts
from tensoropt.tdl import Derivation
from tensoropt.tensor_spec import TensorSpec


class ByShapes(ClusterCostModel):
    """A cost model that is asked about every local shape, as a measured model is."""

    times_by_amounts = False


def operator_nanoseconds(
    operator: Operator,
    derivation: Derivation,
    configuration: Configuration,
    mesh: Mesh,
    cost: CostModel,
    differentiated: int = 0,
    recomputed: bool = False,
) -> int:
    """t_c of equation 1, on one device; or what computing the operator once more takes."""
    work = operator_work(operator, derivation, configuration, mesh, differentiated)
    if work is None:
        return 0
    time = cost.operator_nanoseconds(work)
    inner = inner_steps(operator, derivation, configuration, mesh, differentiated)
    return (time.forward if recomputed else time.total) + sum(
        (each.forward if recomputed else each.times)
        * cost.collective_nanoseconds(each.kind, each.axes, each.bytes)
        for each in inner
    )


def operator_memory_bytes(
    operator: Operator,
    derivation: Derivation,
    configuration: Configuration,
    mesh: Mesh,
    cost: CostModel,
    kept: frozenset[TensorName] = frozenset(),
    carried: Sequence[int] = (),
    recomputed: bool = False,
) -> int:
    """m of equation 1, on one device.

    Args:
        operator: which.
        derivation: its iteration space.
        configuration: how it is split.
        mesh: the devices.
        cost: says what of it counts.
        kept: the tensors that are kept where they are made.
        carried: numbers of inputs that are kept as they lie here.
        recomputed: whether no output is kept, the operator being computed again.
    """
    inputs = sum(
        input_slot(derivation, configuration, number).forward.local_elements(spec.shape, mesh)
        * spec.itemsize
        for number, spec in enumerate(operator.input_specs)
        if number in carried and has_known_shape(spec)
    )

    def outputs(among: frozenset[TensorName] | None) -> int:
        return sum(
            output_slot(derivation, configuration, number).forward.local_elements(spec.shape, mesh)
            * operator.value_spec(number).itemsize
            for number, spec in enumerate(operator.outputs)
            if has_known_shape(spec)
            and (among is None or TensorName(operator.name, number) in among)
        )

    made, remaining = outputs(None), outputs(among_kept(operator, kept))
    amounts = memory_amounts(operator, made, remaining, inputs, recomputed)
    return cost.operator_memory(Footprint(**amounts))


def spec(*shape: int, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(shape, dtype)


def operator(kind: str, inputs: list[TensorSpec], output: TensorSpec, **more: object) -> Operator:
    names = tuple(TensorName(f"x{number}", 0) for number in range(len(inputs)))
    return Operator("op", kind, names, tuple(inputs), (output,), more)


AXIS = TensorSpec((), "int32", np.array(0, np.int32))
OPERATORS = [
    operator(
        "MatMul", [spec(8, 12), spec(12, 24)], spec(8, 24), transpose_a=False, transpose_b=False
    ),
    operator(
        "Conv2D", [spec(8, 16, 6, 4), spec(5, 3, 4, 8)], spec(8, 16, 6, 8),
        strides=(1, 1, 1, 1), padding="SAME",
    ),
    operator("BiasAdd", [spec(8, 4), spec(4)], spec(8, 4), data_format="NHWC"),
    operator("Softmax", [spec(8, 4)], spec(8, 4)),
    operator("GatherV2", [spec(16, 8), spec(4, dtype="int32"), AXIS], spec(4, 8), batch_dims=0),
    operator("Identity", [spec(8, 4)], spec(8, 4)),
    operator("VarHandleOp", [], spec(8, 4, dtype="resource"), dtype="float64"),
    operator("Placeholder", [], spec(8, 4)),
]  # fmt: skip


@pytest.mark.parametrize("model", [ClusterCostModel, ByShapes])
@pytest.mark.parametrize("one", OPERATORS, ids=lambda one: one.type)
def test_arrays_are_what_one_configuration_costs(
    one: Operator, model: type[ClusterCostModel]
) -> None:
    cluster = load_cluster("2x8-v100")
    mesh = cluster.mesh(8)
    cost = model(cluster, mesh, "execution")
    derivation = derivation_of(one)
    assigned = assignments(derivation, mesh)
    kept = frozenset({TensorName("op", 0)})
    carried = (0,) if one.inputs else ()
    ways = ("both", "after", "recomputed")
    costs = OperatorCosts(mesh, cost).of(
        one, derivation, np.tile(assigned, (3, 1)), 2, kept, carried, ways
    )
    time, memory = (table.reshape(3, -1).T.tolist() for table in (costs.time, costs.memory))
    found = zip(time, memory, strict=True)
    for row, (times, bytes_) in zip(assigned, found, strict=True):
        configuration = configuration_of(row, len(derivation.indices))
        arguments = one, derivation, configuration, mesh, cost
        plain = operator_nanoseconds(*arguments, 2)
        assert times == [plain, plain, plain + operator_nanoseconds(*arguments, recomputed=True)]
        assert bytes_ == [
            operator_memory_bytes(*arguments, here, carried, again)
            for here, again in ((kept, False), (frozenset(), False), (frozenset(), True))
        ]


def test_only_before_is_kept_where_copies_before_resharding_are() -> None:
    cluster = load_cluster("8-v100")
    mesh = cluster.mesh(2)
    costs = OperatorCosts(mesh, ClusterCostModel(cluster, mesh, "execution"))
    one = OPERATORS[3]
    derivation = derivation_of(one)
    assigned = np.tile(assignments(derivation, mesh), (2, 1))
    edge = frozenset({TensorName("op", 0)})
    found = costs.of(one, derivation, assigned, 1, ways=("both", "before"), only_before=edge)
    both, before = np.split(found.memory, 2)
    assert not both.any()
    assert before.max() == 8 * 4 * 4


def test_halos_are_priced_forward_and_backward() -> None:
    attributes = {"strides": (1, 1, 1, 1), "padding": "SAME"}
    images, filters = spec(8, 64, 32, 16), spec(5, 3, 16, 16)
    convolution = operator("Conv2D", [images, filters], images, **attributes)
    derivation = derivation_of(convolution)
    cluster = load_cluster("8-v100")
    mesh = cluster.mesh(4)
    cost = ClusterCostModel(cluster, mesh)
    # Rows of the image, or the batch, in four pieces.
    names = np.array([[derivation.index(name)] * len(mesh.axes) for name in "yb"], np.int8)

    def inner(differentiated: int) -> int:
        """Return the time beyond that of a split of the batch, which moves nothing."""
        rows, batch = (
            OperatorCosts(mesh, cost).of(convolution, derivation, names, differentiated).time
        )
        return int(rows - batch)

    axes = tuple(range(len(mesh.axes)))
    row_bytes = 8 * 32 * 16 * 4
    halo = cost.collective_nanoseconds("exchange", axes, 4 * row_bytes)
    copy = cost.collective_nanoseconds("slice", axes, (16 + 4) * row_bytes)
    assert inner(2) == 2 * (halo + copy)
    assert inner(1) == halo + copy  # of the filters alone
