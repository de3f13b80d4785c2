"""What a table's sparse gradient costs on its way back: its slices, not the table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from tensoropt.cost.cluster import load_cluster
from tensoropt.cost.model import ClusterCostModel
from tensoropt.graph.operator import GRADIENT, GradientTag, Graph, Operator, TensorName
from tensoropt.parallel.assignments import encode
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.resharding.distances import Distances
from tensoropt.problem.annotated_graph import AnnotatedGraph
from tensoropt.problem.edges.sparse_gradients import Slices, slices_times
from tensoropt.problem.from_graph import GraphProblem, graph_problem
from tensoropt.tensor_spec import TensorSpec

ROWS, COLUMNS, LOOKED_UP = 1 << 20, 512, 4096
CLUSTER = load_cluster("8-v100")
MESH = CLUSTER.mesh(4)
COST = ClusterCostModel(CLUSTER, MESH)


def times(
    shape: tuple[int, ...], itemsize: int, sources: Sequence[Layout], targets: Sequence[Layout]
) -> npt.NDArray[np.int64]:
    codes = (np.array([encode(layout) for layout in some]) for some in (sources, targets))
    return Distances(MESH, COST.collective_nanoseconds).between(shape, itemsize, *codes)


def back(source: Layout, target: Layout, *, stays: bool = True, count: int = LOOKED_UP) -> int:
    slices = Slices(count, 4, stays)
    found = slices_times((ROWS, COLUMNS), 4, slices, [source], [target], times, MESH)
    return int(found[0, 0])


WHOLE = Layout(((), ()))
SHARES = Layout(((), ()), (0, 1))


def test_slices_of_a_split_batch_are_gathered_with_their_numbers() -> None:
    share = LOOKED_UP // 4
    gathered = COST.collective_nanoseconds("allgather", (0, 1), share * COLUMNS * 4)
    numbers = COST.collective_nanoseconds("allgather", (0, 1), share * 4)
    assert back(SHARES, WHOLE) <= gathered + numbers
    dense = int(times((ROWS, COLUMNS), 4, [SHARES], [WHOLE])[0, 0])
    assert back(SHARES, WHOLE) < dense / 50


def test_split_rows_cost_nothing_and_columns_their_resharding() -> None:
    rows, columns = Layout(((0, 1), ())), Layout(((), (0, 1)))
    assert back(rows, rows) == back(rows, WHOLE) == back(WHOLE, rows) == 0
    values = times((LOOKED_UP, COLUMNS), 4, [columns], [WHOLE])
    assert back(columns, rows) == int(values[0, 0]) > 0


def test_what_ends_dense_travels_sparse_unless_there_are_more_slices_than_rows() -> None:
    assert back(SHARES, WHOLE, stays=False) == back(SHARES, WHOLE)
    dense = int(times((ROWS, COLUMNS), 4, [SHARES], [WHOLE])[0, 0])
    assert back(SHARES, WHOLE, stays=False, count=2 * ROWS) == dense


def lookup_problem(dense: bool) -> GraphProblem:
    """A table, what is looked up in it, and its gradient."""
    table = Operator(
        "table", "VariableV2", (), (), (TensorSpec((ROWS, COLUMNS), "float32_ref"),),
        {"dtype": "float32"},
    )  # fmt: skip
    read = Operator(
        "read", "Identity", (TensorName("table", 0),), table.outputs,
        (TensorSpec((ROWS, COLUMNS), "float32"),), {"T": "float32"},
    )  # fmt: skip
    ids = Operator("ids", "Placeholder", (), (), (TensorSpec((LOOKED_UP,), "int32"),))
    looked_up = Operator(
        "rows", "Gather", (TensorName("read", 0), TensorName("ids", 0)),
        (*read.outputs, *ids.outputs), (TensorSpec((LOOKED_UP, COLUMNS), "float32"),),
        {"Tparams": "float32"},
    )  # fmt: skip
    y, x = TensorName("rows", 0), TensorName("table", 0)
    part, extent = ("dense", ROWS) if dense else ("values", LOOKED_UP)
    tag = GradientTag(0, part, (y,), x, (None,), ())
    gradient = Operator(
        "gradient", GRADIENT, (y,), looked_up.outputs,
        (TensorSpec((extent, COLUMNS), "float32"),), gradient=tag,
    )  # fmt: skip
    graph = Graph({op.name: op for op in (table, read, ids, looked_up, gradient)})
    return graph_problem(AnnotatedGraph.of(graph, MESH, COST, frozenset({"ids"})))


def strategy(problem: GraphProblem, lookup: tuple[tuple[int, ...], ...]) -> list[int]:
    """The table whole on every device, the lookup as said."""
    wanted = {"rows": Configuration(lookup)}
    return [
        next(
            n
            for n, option in enumerate(group.options)
            if group.leader not in wanted or option[group.leader] == wanted[group.leader]
        )
        for group in problem.choices
    ]


@pytest.mark.parametrize("dense", [False, True])
def test_data_parallel_lookups_do_not_pay_for_the_table(dense: bool) -> None:
    problem = lookup_problem(dense)
    split = strategy(problem, ((0, 1), (), ()))
    _, data_parallel = problem.problem.cost(split)
    allreduce = COST.collective_nanoseconds("allreduce", (0, 1), ROWS * COLUMNS * 4)
    assert data_parallel < allreduce / 50
    # Nor does the lookup read the table, but the rows: on a quarter of them in less time.
    time = problem.costs["rows"].time
    number = problem.problem.nodes.index(
        next(node for node in problem.problem.nodes if node.name == "rows")
    )
    assert time[split[number]] < time[0] < allreduce / 50


def test_a_table_split_by_rows_takes_its_share_of_memory() -> None:
    problem = lookup_problem(dense=False)
    memory = problem.costs["table"].memory
    assert memory.min() * 4 == memory.max() == ROWS * COLUMNS * 4
