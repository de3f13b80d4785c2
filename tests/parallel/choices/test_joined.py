"""The units of extents in which reshapes join a batch with other dimensions."""

from __future__ import annotations

from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.parallel.choices.joined import joined_units
from tensoropt.tensor_spec import TensorSpec

X = frozenset({"x"})


def graph_of(*chains: tuple[tuple[int, ...], ...], variable: int = 0) -> Graph:
    """Placeholders "x", "y", ..., each reshaped in turn, and a variable of one extent."""
    operators = [Operator("w", "VariableV2", (), (), (TensorSpec((variable,), "float32_ref"),))]
    for name, (first, *shapes) in zip("xyz", chains, strict=False):
        spec = TensorSpec(first, "float32")
        operators.append(Operator(name, "Placeholder", (), (), (spec,)))
        for number, shape in enumerate(shapes):
            sizes = TensorSpec((len(shape),), "int32")
            size = Operator(f"{name}{number}/shape", "Const", (), (), (sizes,))
            inputs = TensorName(operators[-1].name, 0), TensorName(size.name, 0)
            made = TensorSpec(shape, "float32")
            reshape = Operator(f"{name}{number}", "Reshape", inputs, (spec, sizes), (made,))
            operators += [size, reshape]
            spec = made
    return Graph({operator.name: operator for operator in operators})


def test_a_joined_batch_has_the_other_dimensions_as_its_unit() -> None:
    graph = graph_of(((6, 5, 3), (30, 3), (6, 5, 3), (90,)))
    assert joined_units(graph, 4, X) == ((30, 5), (90, 15))


def test_joins_in_turn_have_the_unit_of_all_of_them() -> None:
    graph = graph_of(((6, 4, 5), (24, 5), (120,)))
    assert joined_units(graph, 4, X) == ((24, 4), (120, 20))


def test_even_batches_need_no_units() -> None:
    graph = graph_of(((8, 5), (40,)))
    assert joined_units(graph, 4, X) == ()
    assert joined_units(graph, 4, X, in_proportion=True) == ((40, 5),)
    assert joined_units(graph, 4, X, 4) == ((10, 5),)  # a microbatch has two examples
    assert joined_units(graph, 4, X, 8) == ()


def test_a_fed_joined_batch_is_no_batch_of_its_own() -> None:
    graph = graph_of(((6, 5), (30,)), ((30,), (30, 1)))
    assert joined_units(graph, 4, frozenset({"x", "y"})) == ((30, 5),)


def test_two_batches_that_ask_for_different_units_get_none() -> None:
    graph = graph_of(((6, 5), (30,)), ((10, 3), (30,)), ((10, 7), (70,)))
    assert joined_units(graph, 4, frozenset("xyz")) == ((70, 7),)


def test_no_operator_loses_an_even_split() -> None:
    assert joined_units(graph_of(((6, 8), (48,)), variable=48), 4, X) == ()
    assert joined_units(graph_of(((6, 8), (48,)), variable=47), 4, X) == ((48, 8),)
    heads = graph_of(((6, 8), (48,)), ((2, 48), (2, 4, 12)))
    assert joined_units(heads, 4, X) == ()
    assert joined_units(heads, 3, X) == ()  # nothing is uneven on three devices
    six = graph_of(((6, 8), (48,)), ((2, 48), (2, 6, 8)))
    assert joined_units(six, 4, X) == ((48, 8),)


def test_small_extents_have_no_units() -> None:
    assert joined_units(graph_of(((3, 2), (6,))), 8, X) == ()
