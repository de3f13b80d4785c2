"""Atomic components of real steps: one task each, constants cloned, states with their readers."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tensoropt as tf
from benchmarks.search.bert import bert
from benchmarks.training_step import TrainingStep, gradient_descent_step
from examples.models import wide_resnet
from tensoropt.errors import GraphError
from tensoropt.frontend.inputs.shapes import fed_shapes, training_roots
from tensoropt.graph.from_tensorflow import import_graph
from tensoropt.pipeline.atomic import atomic_components
from tensoropt.pipeline.batch_growth import BatchGrowth
from tests.pipeline.lookups import looked_up
from tests.proofs import proof


def tiny_bert(batch: int) -> TrainingStep:
    return gradient_descent_step(lambda: bert(2, 16, 2, 32, 4, 64), batch)


def test_each_component_has_one_task_and_all_that_it_needs() -> None:
    step = tiny_bert(4)
    atoms = atomic_components(step.graph, step.batch_placeholders)
    tasks = {atom.operator: number for number, atom in enumerate(atoms.atoms)}
    assert len(tasks) == len(atoms)
    for number, atom in enumerate(atoms.atoms):
        assert tasks.keys().isdisjoint(atom.constants)
        for name in (atom.operator, *atom.constants):
            for tensor in step.graph[name].inputs:
                maker = tensor.operator
                here = maker in atom.constants or maker in atom.fed
                assert here or (tasks[maker], number, tensor) in atoms.edges
    assert all(one < other for one, other, _ in atoms.edges)


def test_a_constant_is_cloned_and_a_tied_table_is_shared() -> None:
    step = tiny_bert(4)
    atoms = atomic_components(step.graph, step.batch_placeholders)
    table = atoms.states["bert/words"]
    lookup, scores = (atoms.atoms[number] for number in table.atoms)
    assert table.shared
    assert (lookup.operator, scores.operator) == ("bert/embedding_lookup", "bert/einsum_1/Einsum")
    assert {"bert/words", "bert/words/table"} <= set(lookup.constants)
    assert lookup.fed == ("tokens",)
    assert not atoms.states["bert/layer1/query"].shared
    assert set(atoms.rest) == {"GradientDescent/learning_rate", "GradientDescent"}


def test_an_update_by_slices_follows_its_table() -> None:
    step = gradient_descent_step(looked_up, 8)
    atoms = atomic_components(step.graph, step.batch_placeholders)
    assert len(atoms.states["table"].updates) == 3  # with what is computed for it alone
    assert len(atoms.states["weights"].updates) == 1


def test_moving_averages_and_random_numbers() -> None:
    script = tf.Graph()
    with script.as_default():
        model = wide_resnet(14, 1, 16, 10, base_channels=4, small_images=True)
        dropped = tf.nn.dropout(model.scores, rate=0.5)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=model.placeholders["labels"], logits=dropped
        )
        train = tf.train.MomentumOptimizer(0.1, 0.9).minimize(tf.reduce_mean(losses))
        step = tf.group(train, *tf.get_collection(tf.GraphKeys.UPDATE_OPS))
        fed, batched = fed_shapes(script, 8, None)
        graph = import_graph(script, training_roots(script, [step]), fed)
    atoms = atomic_components(graph, batched)
    drawn = [atom for atom in atoms.atoms if graph[atom.operator].type == "RandomUniform"]
    assert len(drawn) == 1
    weights = next(state for state in atoms.states.values() if len(state.variables) == 2)
    assert weights.variables[1].endswith("Momentum")
    moving = [name for name in atoms.states if name.endswith("moving_mean")]
    assert moving
    for name in moving:
        state = atoms.states[name]
        (holder,) = state.atoms
        assert atoms.atoms[holder].operator.startswith(name.removesuffix("/moving_mean"))
        assert any(graph[update].mutates for update in state.updates)


@pytest.mark.parametrize("examples", [1, proof(2), proof(4), 12])
def test_work_at_a_number_of_examples_is_that_of_a_step_imported_with_so_many(
    examples: int,
) -> None:
    whole, part = tiny_bert(8), tiny_bert(examples)
    of_whole = BatchGrowth(whole.graph, whole.batch_placeholders)
    of_part = BatchGrowth(part.graph, part.batch_placeholders)
    atoms = atomic_components(whole.graph, whole.batch_placeholders)
    for atom in atoms.atoms:
        for name in (atom.operator, *atom.constants):
            here = of_whole.work(name, examples, 1)
            there = of_part.work(name, examples, 1)
            if here is None or there is None or here.operator == "Shape":
                assert (here is None) == (there is None)  # a shape has as many elements
                continue
            assert abs(here.flops - there.flops) <= 1, name  # the division of a mean
            assert replace(here, flops=0) == replace(there, flops=0), name
    for _, _, tensor in atoms.edges:
        if tensor is not None:
            assert of_whole.tensor_bytes(tensor, examples) == part.graph.spec(tensor).bytes


def test_a_step_without_a_batch_is_refused() -> None:
    step = tiny_bert(4)
    with pytest.raises(GraphError, match="fed by placeholders"):
        BatchGrowth(step.graph, ())
    with pytest.raises(GraphError, match="operators that depend on its batch"):
        atomic_components(step.graph, {"targets_of_another_step"})
