"""Substitutions in logical graphs: where they match, what takes their place, what stays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, repeat

import numpy as np
import pytest
import tensorflow as tf

from tensoropt.converters import from_values, to_values
from tensoropt.graph.from_tensorflow import import_graph
from tensoropt.graph.operator import Graph, TensorName
from tensoropt.parallel.mesh import Mesh
from tensoropt.rewriting.substitutions import Input, Substitution, kind_of
from tensoropt.rewriting.terms import parse
from tensoropt.transformations.rewritten.application import (
    Rewrite,
    apply,
    rewritten,
    substitutions_by_name,
)
from tensoropt.transformations.rewritten.matching import Match, Matcher
from tensoropt.transformations.rewritten.moves import Move, applicable, moves
from tensoropt.transformations.rewritten.parts import operator_of, other_shape, split_outputs
from tensoropt.transformations.rewritten.patterns import Patterns
from tensoropt.transformations.rewritten.term_builder import TermBuilder
from tests.oracles.equality.engine import Script, train_plain, worst_error
from tests.oracles.equality.rewrite_scripts import (
    REWRITE_SCRIPTS,
    adapters,
    branches,
    encoder,
    experts,
    mobile,
    recommender,
)
from tests.oracles.equality.rewrites import draw_rewrites, train_rewritten
from tests.proofs import proof


def substitution(source: str, target: str, name: str = "under test", rank: int = 2) -> Substitution:
    terms = parse(source), parse(target)
    inputs = tuple(Input(each, rank) for each in terms[0].inputs)
    return Substitution(name, kind_of(*terms), *terms, inputs, ("said here",))


COLUMNS = substitution(
    "tuple(matmul(x, y), matmul(x, z))",
    "tuple(split[1,0](matmul(x, concat[1](y, z))), split[1,1](matmul(x, concat[1](y, z))))",
)
FILTERS = substitution(
    "tuple(conv(x, y), conv(x, z))",
    "tuple(split[3,0](conv(x, concat[3](y, z))), split[3,1](conv(x, concat[3](y, z))))",
    rank=4,
)
DISTRIBUTES = substitution("matmul(x, add(y, z))", "add(matmul(x, y), matmul(x, z))")
ASSOCIATES = substitution("matmul(x, matmul(y, z))", "matmul(matmul(x, y), z)", "associates")


def moved(script: Script, rule: Substitution) -> list[Move]:
    return list(moves(script.imported(), Patterns([rule]), [script.train]))


def types(graph: Graph) -> list[str]:
    return [operator.type for operator in graph if operator.gradient is None]


@pytest.mark.parametrize("make", [adapters, recommender, mobile])
def test_structures_leave_no_match_out(
    make: Callable[[], Script], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = make().imported()
    known = applicable(substitutions_by_name().values())

    def found(substitutions: Sequence[Substitution]) -> list[Match]:
        matcher = Matcher(graph)
        return [match for each in substitutions for match in matcher.matches(each)]

    matches = found(Matcher(graph).fitting(Patterns(known)))
    monkeypatch.setattr(Matcher, "_stands", lambda *_: True)
    assert matches == found(known) != []


def test_sizes_beyond_32_bits_reshape_by_constants_of_64() -> None:
    with tf.Graph().as_default() as script:
        logits = tf.compat.v1.placeholder(tf.float32, (1 << 17, 50_000), "logits")
    graph = import_graph(script, [logits.op.name], {})
    tensor = TensorName(logits.op.name, 0)
    builder = TermBuilder(graph, {"x": tensor}, "new", {}, lambda _: None, {"x": {}})
    flat = builder.tensor(parse("flatten[0](x)"))
    assert builder.spec(flat).shape == ((1 << 17) * 50_000,)
    reshape = builder.operators[flat.operator]
    assert reshape.attributes["Tshape"] == reshape.input_specs[1].dtype == "int64"


def test_parts_of_a_dimension_beyond_32_bits_have_sizes_of_64() -> None:
    with tf.Graph().as_default() as script:
        flat = tf.compat.v1.placeholder(tf.float32, (3 << 31,), "flat")
        pieces = tf.split(flat, [1 << 30, 1 << 30, 1 << 32])
        square = tf.reshape(flat, (3 << 10, 1 << 11, 1 << 10))
    graph = import_graph(script, [each.op.name for each in (*pieces, square)], {})
    split, reshape = graph[pieces[0].op.name], graph[square.op.name]
    parts = operator_of(graph, split_outputs(split.name, 1, 3).operator)
    merged = operator_of(graph, other_shape(reshape, (3 << 31,)).operator)
    for part, attribute in ((parts, "Tlen"), (merged, "Tshape")):
        assert part is not None
        assert part.attributes[attribute] == part.input_specs[1].dtype == "int64"


def test_all_products_of_one_input_are_one() -> None:
    script = experts()
    found = max(moved(script, COLUMNS), key=lambda move: len(move.rewrites))
    before, after = types(script.imported()), types(found.graph)
    assert before.count("MatMul") - after.count("MatMul") == 4  # of five
    (concat,) = (op for op in found.graph if op.type == "ConcatV2" and op.synthetic)
    assert len(concat.inputs) == 6  # and the axis
    assert concat.outputs[0].shape == (16, 3 * 16 + 2 * 32)
    (split,) = (op for op in found.graph if op.type == "SplitV" and op.synthetic)
    assert sorted(spec.shape[1] for spec in split.outputs) == [16, 16, 16, 32, 32]


def test_like_layers_are_rewritten_together() -> None:
    (first, second) = moved(adapters(), DISTRIBUTES)  # the sum's arguments in either order
    assert len(first.rewrites) == len(second.rewrites) == 2
    assert len(moved(branches(), FILTERS)) == 2  # blocks of 4 and 8 channels


def test_moves_end_when_time_is_over() -> None:
    script = adapters()
    every = moved(script, DISTRIBUTES)
    for reads in range(sum(1 + len(move.rewrites) for move in every)):
        is_over = chain(repeat(False, reads), repeat(True)).__next__
        made = moves(script.imported(), Patterns([DISTRIBUTES]), [script.train], None, is_over)
        whole = [move.rewrites for move in made]
        assert whole == [move.rewrites for move in every[: len(whole)]]
        assert len(whole) < len(every)


@pytest.mark.parametrize("make", [adapters, recommender])
def test_moves_that_touch_new_operators_are_those_of_all_matches(
    make: Callable[[], Script], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = make()
    graph, roots = script.imported(), [script.train]
    patterns = Patterns(applicable(substitutions_by_name().values()))
    after = [move.graph for move in moves(graph, patterns, roots)][:8]
    touched = [frozenset(each.operators.keys() - graph.operators.keys()) for each in after]

    def rewrites() -> list[list[tuple[Rewrite, ...]]]:
        return [
            [move.rewrites for move in moves(each, patterns, roots, new)]
            for each, new in zip(after, touched, strict=True)
        ]

    found = rewrites()
    everywhere = frozenset().union(*(each.operators for each in after))
    place = "tensoropt.transformations.rewritten.moves._Behind.within"
    monkeypatch.setattr(place, lambda *_: everywhere)
    assert found == rewrites()
    assert sum(map(len, found)) > len(after)


def test_rewrites_read_back_and_are_made_again() -> None:
    script = adapters()
    move = moved(script, DISTRIBUTES)[0]
    again = tuple(from_values(Rewrite, to_values(rewrite), "", "") for rewrite in move.rewrites)
    assert again == move.rewrites
    known = {DISTRIBUTES.name: DISTRIBUTES}
    made = rewritten(script.imported(), again, [script.train], known)
    assert made.summaries() == move.graph.summaries()


@pytest.mark.parametrize("make", [adapters, encoder])
def test_places_that_are_rewritten_together_are_rewritten_one_after_another(
    make: Callable[[], Script],
) -> None:
    script = make()
    graph, roots = script.imported(), [script.train]
    made = list(moves(graph, Patterns(applicable(substitutions_by_name().values())), roots))
    assert max(len(move.rewrites) for move in made) > 1
    for move in made:
        assert rewritten(graph, move.rewrites, roots).summaries() == move.graph.summaries()


def test_a_place_that_is_not_there_is_left_out() -> None:
    script = adapters()
    graph = script.imported()
    nowhere = Rewrite(DISTRIBUTES.name, ("nowhere:0",), (("x", "given:0"),))
    known = {DISTRIBUTES.name: DISTRIBUTES}
    assert rewritten(graph, [nowhere], [script.train], known) is graph


def test_what_is_differentiated_by_stays() -> None:
    graph = tf.Graph()
    with graph.as_default():
        values = tf.compat.v1.placeholder(tf.float32, [4, 4], name="given")
        weights = tf.compat.v1.get_variable("weights", [4, 4])
        product = tf.matmul(values, tf.matmul(weights, weights), name="product")
        loss = tf.reduce_sum(product, name="loss")
        (gradient,) = tf.compat.v1.gradients(loss, [product])
    feeds = ({"given": np.zeros((4, 4), np.float32)},)
    assert not moved(Script(graph, gradient.op.name, loss.name, feeds), ASSOCIATES)


def test_two_products_of_which_one_reads_the_other_are_not_merged() -> None:
    graph = tf.Graph()
    with graph.as_default():
        values = tf.compat.v1.placeholder(tf.float32, [4, 4], name="given")
        weights = tf.compat.v1.get_variable("weights", [4, 4])
        first = tf.matmul(values, weights)
        loss = tf.reduce_sum(tf.matmul(first, weights), name="loss")
        train = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss)
    rows = substitution(
        "tuple(matmul(x, z), matmul(y, z))",
        "tuple(split[0,0](matmul(concat[0](x, y), z)), split[0,1](matmul(concat[0](x, y), z)))",
    )
    feeds = ({"given": np.zeros((4, 4), np.float32)},)
    assert not moved(Script(graph, train.name, loss.name, feeds), rows)


def test_shapes_that_do_not_fit_are_no_place() -> None:
    """A split elsewhere than between what was concatenated is none of its parts."""
    graph = tf.Graph()
    with graph.as_default():
        values = tf.compat.v1.placeholder(tf.float32, [4, 6], name="given")
        both = tf.concat([values, tf.tanh(values)], 1)
        part = tf.split(both, [4, 8], 1)[0]
        loss = tf.reduce_sum(part * tf.compat.v1.get_variable("weights", [4, 4]), name="loss")
        train = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss)
    feeds = ({"given": np.zeros((4, 6), np.float32)},)
    script = Script(graph, train.name, loss.name, feeds)
    rule = substitution("split[1,0](concat[1](x, y))", "x")
    assert not moved(script, rule)
    wrong = Rewrite(rule.name, ("split:0",), (("x", "given:0"), ("y", "Tanh:0")))
    assert apply(script.imported(), wrong, rule, [script.train]) is None


@pytest.mark.parametrize(
    ("script", "rule"),
    [
        (recommender, "matmul of a concatenation as a sum"),
        (recommender, "lookups in one table merged"),
        (recommender, "embedding(relu(x), y) = relu(embedding(x, y))"),
        (recommender, "relu(split[1,1](x)) = split[1,1](relu(x)), reversed"),
        (mobile, "convolution of a concatenation as a sum"),
        (mobile, "max_pool(concat[3](x, y)) = concat[3](max_pool(x), max_pool(y))"),
        (mobile, "relu(concat[3](x, y)) = concat[3](relu(x), relu(y))"),
        (mobile, "avg_pool(concat[0](x, y)) = concat[0](avg_pool(x), avg_pool(y))"),
        (encoder, "matmul(x, split[1,0](y)) = split[1,0](matmul(x, y)), reversed"),
        (encoder, "a sum of matmuls as one"),
    ],
)
def test_operators_of_the_models_are_seen(script: Callable[..., Script], rule: str) -> None:
    """Lookups, concatenations and splits of several tensors, strides, pools, transposed factors."""
    own = script()
    for move in moved(own, substitutions_by_name()[rule]):
        made = rewritten(own.imported(), move.rewrites, [own.train])
        assert made.summaries() == move.graph.summaries() != own.imported().summaries()
        return
    pytest.fail("no place")


def test_a_product_transposes_what_was_transposed_for_it() -> None:
    """Terms have no transposed factors; no operator is left that transposes alone."""
    own = encoder()
    for move in moved(own, substitutions_by_name()["a sum of matmuls as one"]):
        before, after = types(own.imported()), types(move.graph)
        assert after.count("MatMul") == before.count("MatMul") - 1
        assert after.count("Transpose") <= before.count("Transpose") + 1


def test_a_table_with_sparse_gradient_is_looked_up_as_it_is() -> None:
    """An optimizer that is given rows changes these alone: of a joined table it would be given
    all."""
    graph = tf.Graph()
    with graph.as_default():
        rows = tf.compat.v1.placeholder(tf.int32, [4], name="rows")
        tables = [tf.compat.v1.get_variable(name, [8, 4]) for name in ("one", "other")]
        both = [tf.nn.embedding_lookup(table, rows) for table in tables]
        loss = tf.reduce_sum(tf.concat(both, 1), name="loss")
        train = tf.compat.v1.train.MomentumOptimizer(0.1, 0.9).minimize(loss)
    own = Script(graph, train.name, loss.name, ({"rows": np.zeros(4, np.int32)},))
    assert not moved(own, substitutions_by_name()["lookups of the same rows merged"])


def test_the_ends_of_a_split_into_three_are_no_halves() -> None:
    graph = tf.Graph()
    with graph.as_default():
        values = tf.compat.v1.placeholder(tf.float32, [4, 6], name="given")
        weights = tf.compat.v1.get_variable("weights", [6, 6])
        first, _, last = tf.split(tf.matmul(values, weights), 3, 1)
        loss = tf.reduce_sum(tf.square(tf.concat([first, last], 1)), name="loss")
        train = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss)
    own = Script(graph, train.name, loss.name, ({"given": np.zeros((4, 6), np.float32)},))
    assert not moved(own, substitutions_by_name()["concatenation of split columns"])


REWRITTEN = ("adapters", "experts", "branches", "recommender", "mobile", "encoder")


@pytest.mark.parametrize(
    ("name", "seed"),
    [*((name, 0) for name in REWRITTEN), *(proof(name, 1) for name in REWRITTEN)],
)
def test_random_substitutions_train_as_plain_tensorflow(name: str, seed: int) -> None:
    script = REWRITE_SCRIPTS[name](tf.float64)
    random = np.random.default_rng([seed, len(name)])
    drawn = draw_rewrites(script, random)
    assert drawn.rewrites
    trained = train_rewritten(script, drawn, Mesh((2,)), frozenset({"given"}), random)
    assert worst_error(trained, train_plain(script)) < 1e-10, drawn.rewrites
