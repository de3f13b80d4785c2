"""The second reading of the paper's memory model: what layers keep."""

from __future__ import annotations

import pytest

import tensoropt as tf
from examples.models import lstm_language_model, transformer
from reproduction.paper.table1 import GB, estimate

tf.enable_graph_mode()

BATCH, HIDDEN, LAYERS, STEPS, VOCABULARY = 256, 8, 2, 3, 16


def test_a_step_of_an_lstm_keeps_its_gates_its_state_and_its_output() -> None:
    found = estimate(lambda: lstm_language_model(HIDDEN, LAYERS, STEPS, VOCABULARY))
    one = 4 * BATCH * HIDDEN
    scores = 4 * BATCH * STEPS * VOCABULARY
    assert found.layers["MatMul"] * GB == pytest.approx(LAYERS * STEPS * 4 * one + scores)
    assert found.layers["AddV2"] * GB == pytest.approx(LAYERS * STEPS * one)
    assert found.layers["Mul"] * GB == pytest.approx(LAYERS * STEPS * one)
    assert not {"Neg", "Sigmoid", "Split", "Tanh"} & set(found.layers)
    assert found.of_layers < found.of_operators


def test_a_layer_normalisation_has_one_output() -> None:
    width, length, layers = 8, 4, 1
    found = estimate(lambda: transformer(layers, width, 2, 16, length, length, 32))
    norms = 5 * layers  # two in the encoder, three in the decoder, each after a residual sum
    one = 4 * BATCH * length * width
    assert found.layers["AddV2"] * GB == pytest.approx(2 * norms * one)
    assert not {"Mul", "SquaredDifference", "Sub"} & set(found.layers)
