"""Initial values: plain TensorFlow's where they are seeded, one draw for all ranks where not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tensoropt
from tensoropt.parallel.configuration import Configuration
from tensoropt.parallel.mesh import Mesh
from tests.oracles.equality import executor_of, random_prices
from tests.proofs import proof

v1 = tf.compat.v1
SHAPE = [12, 12]
LARGE = [480, 240]
TABLE = np.arange(144.0).reshape(SHAPE)

SEEDED: dict[str, Callable[[int | None], Any]] = {
    "uniform": lambda s: v1.random_uniform_initializer(-1, 2, seed=s),
    "normal": lambda s: v1.random_normal_initializer(1.0, 0.5, seed=s),
    "truncated normal": lambda s: v1.truncated_normal_initializer(seed=s),
    "variance scaling": lambda s: v1.variance_scaling_initializer(seed=s),
    "glorot uniform": lambda s: v1.glorot_uniform_initializer(seed=s),
    "glorot normal": lambda s: v1.glorot_normal_initializer(seed=s),
    "he": lambda s: v1.variance_scaling_initializer(2.0, seed=s),
    "lecun": lambda s: v1.variance_scaling_initializer(1.0, distribution="uniform", seed=s),
    "orthogonal": lambda s: v1.orthogonal_initializer(seed=s),
}
FIXED: dict[str, Callable[[], Any]] = {
    "identity": lambda: v1.initializers.identity(),
    "constant": lambda: v1.constant_initializer(0.3),
    "array": lambda: v1.constant_initializer(TABLE),
    "zeros": lambda: v1.zeros_initializer(),
    "ones": lambda: v1.ones_initializer(),
}
WORLDS = [
    (1, ((), ())),
    (4, ((), ())),
    (4, ((0, 1), ())),
    (4, ((1,), (0,))),
    (6, ((), (0, 1))),
    (8, ((0, 1), (2,))),
]

tensoropt.enable_graph_mode()


def parallel(
    graph: tf.Graph, devices: int, splits: tuple[tuple[int, ...], ...], seed: int = 1
) -> list[Any]:
    """The initial values of a graph's variables, all stored under these splits."""
    variables = graph.get_collection("variables")
    planned = {variable.op.name: Configuration(splits) for variable in variables}
    executor = executor_of(graph, Mesh.of(devices), planned, random_prices(0), seed=seed)
    names = [graph.as_graph_element(v, allow_operation=False).name for v in variables]
    found = executor.run(names, [], {})
    executor.close()
    return [found[name] for name in names]


def plain(graph: tf.Graph) -> list[Any]:
    """Return the initial values that plain TensorFlow gives."""
    with v1.Session(graph=graph) as session:
        variables = graph.get_collection("variables")
        session.run([variable.initializer for variable in variables])
        return list(session.run(variables))


def seeded(dtype: tf.DType, resource: bool, first: int | None) -> tf.Graph:
    """A variable of every kind; without ``first`` the operators have no seeds."""
    graph = tf.Graph()
    with graph.as_default(), v1.variable_scope("", use_resource=resource):
        for number, make in enumerate(SEEDED.values()):
            seed = None if first is None else first + number
            v1.get_variable(f"v{number}", SHAPE, dtype, make(seed))
    return graph


# References are the older form of the same variables.
@pytest.mark.parametrize(
    ("resource", "devices", "splits"),
    [
        *((True, *WORLDS[n]) for n in (0, 2, 3, 5)),
        (False, *WORLDS[2]),
        *(proof(True, *WORLDS[n]) for n in (1, 4)),
        proof(False, *WORLDS[3]),
    ],
)
def test_seeded_values_are_tensorflows(resource: bool, devices: int, splits: Any) -> None:
    dtype = tf.float64 if resource else tf.float32
    graph = seeded(dtype, resource, 7)
    for name, value, truth in zip(
        SEEDED, parallel(graph, devices, splits), plain(graph), strict=True
    ):
        np.testing.assert_array_equal(value, truth, err_msg=name)


IN_PIECES: dict[str, Callable[[], Any]] = {
    **{name: lambda make=make: make(5) for name, make in SEEDED.items() if name != "orthogonal"},
    "constant": lambda: v1.constant_initializer(0.3),
    "array": lambda: v1.constant_initializer(np.arange(480.0 * 240).reshape(LARGE)),
    "zeros": lambda: v1.zeros_initializer(),
    "ones": lambda: v1.ones_initializer(),
}


@pytest.mark.parametrize(
    ("resource", "devices", "splits"),
    [(False, 4, ((0, 1), ())), (True, 2, ((0,), ())), (True, 4, ((), (0, 1)))],
)
def test_no_device_makes_a_large_variable_whole(resource: bool, devices: int, splits: Any) -> None:
    """No elementwise initializer makes the whole value, whether rows or columns are split."""
    graph = tf.Graph()
    with graph.as_default(), v1.variable_scope("", use_resource=resource):
        for number, make in enumerate(IN_PIECES.values()):
            v1.get_variable(f"v{number}", LARGE, tf.float32, make())
    variables = graph.get_collection("variables")
    planned = {variable.op.name: Configuration(splits) for variable in variables}
    executor = executor_of(graph, Mesh.of(devices), planned, random_prices(0))
    program = executor.program((), [variable.initializer.name for variable in variables], {})
    made = [t for op in program.operations[0].graph.get_operations() for t in op.outputs]
    elements = [tensor.shape.num_elements() or 0 for tensor in made]
    piece = LARGE[0] * LARGE[1] // devices
    assert elements.count(piece) >= len(IN_PIECES) * devices
    assert max(elements) <= max(piece, 1 << 16) < LARGE[0] * LARGE[1]
    executor.run([], [variable.initializer.name for variable in variables], {})
    names = [graph.as_graph_element(v, allow_operation=False).name for v in variables]
    values = executor.run(names, [], {})
    executor.close()
    for kind, name, right in zip(IN_PIECES, names, plain(graph), strict=True):
        np.testing.assert_array_equal(values[name], right, err_msg=kind)


@pytest.mark.parametrize(("devices", "splits"), WORLDS[1:4])
def test_fixed_values_are_tensorflows(devices: int, splits: Any) -> None:
    graph = tf.Graph()
    with graph.as_default():
        for name, make in FIXED.items():
            v1.get_variable(name, SHAPE, tf.float32, make())
        v1.get_variable("of_an_array", initializer=TABLE)
        v1.Variable(TABLE, name="old")
        v1.Variable(lambda: TABLE, name="called")
    for value, truth in zip(parallel(graph, devices, splits), plain(graph), strict=True):
        np.testing.assert_array_equal(value, truth)


def test_unseeded_values_follow_the_job_and_not_the_number_of_ranks() -> None:
    graph = seeded(tf.float32, True, None)
    first = parallel(graph, 1, ((), ()))
    for devices, splits in WORLDS[2:5]:
        for value, truth in zip(parallel(graph, devices, splits), first, strict=True):
            np.testing.assert_array_equal(value, truth)
    another = parallel(graph, 4, ((0,), (1,)), seed=2)
    assert not any(np.array_equal(a, b) for a, b in zip(first, another, strict=True))
    assert len({value.tobytes() for value in first}) == len(first)


def test_the_graphs_seed_is_tensorflows() -> None:
    """Operators take their seeds in the order they are made; recorded gradients take none."""

    def build() -> tf.Graph:
        graph = tf.Graph()
        with graph.as_default():
            v1.set_random_seed(42)
            before = v1.get_variable("before", SHAPE)
            loss = tf.reduce_sum(tf.square(before))
            v1.gradients(loss, before)
            v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
            v1.get_variable("after", SHAPE, initializer=v1.random_normal_initializer())
        return graph

    graph = build()
    with v1.Session(graph=without_recording(build)) as session:
        variables = session.graph.get_collection("variables")
        session.run([variable.initializer for variable in variables])
        truth = session.run(variables)
    for value, right in zip(parallel(graph, 4, ((0,), (1,))), truth, strict=True):
        np.testing.assert_array_equal(value, right)


def without_recording(build: Callable[[], tf.Graph]) -> tf.Graph:
    """The graph that plain TensorFlow makes of a script."""
    from tensorflow.python.ops import gradients as gradients_module
    from tensorflow.python.ops import gradients_impl

    from tensoropt.tensorflow_private import unrecorded_gradients

    recorded = gradients_impl.gradients
    original = unrecorded_gradients
    try:
        for module in (gradients_module, gradients_impl, v1):
            module.gradients = original
        return build()
    finally:
        for module in (gradients_module, gradients_impl, v1):
            module.gradients = recorded
