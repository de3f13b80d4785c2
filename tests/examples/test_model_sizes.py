"""The example models: their numbers of parameters, their outputs, and repeatable initial values."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

import tensoropt
from examples.models import (
    Model,
    lstm_language_model,
    parameter_count,
    transformer,
    vgg16,
    wide_resnet,
)
from examples.models.lstm import lstm_parameters
from examples.models.transformer import transformer_parameters
from examples.models.vgg import vgg16_parameters
from examples.models.wide_resnet import wide_resnet_parameters, wide_resnet_scores

tensoropt.enable_graph_mode()

v1 = tf.compat.v1

SMALL: dict[str, Callable[[], Model]] = {
    "vgg16": lambda: vgg16(8, 1 / 16, 10, 16, image_channels=1, dropout=0.5),
    "wide_resnet": lambda: wide_resnet(14, 1, 8, 10, base_channels=4, small_images=True),
    "lstm": lambda: lstm_language_model(8, 2, 3, 12),
    "transformer": lambda: transformer(1, 8, 2, 16, 5, 4, 12, dropout=0.1, label_smoothing=0.1),
}
SCORES = {"vgg16": [10], "wide_resnet": [10], "lstm": [3, 12], "transformer": [4, 12]}


def counted(build: Callable[[], Model]) -> int:
    with tf.Graph().as_default():
        build()
        return parameter_count()


def test_vgg16_has_the_parameters_of_the_paper() -> None:
    assert counted(vgg16) == vgg16_parameters() == 138_357_544


@pytest.mark.parametrize(
    ("depth", "parameters"), [(50, 25_557_032), (101, 44_549_160), (152, 60_192_808)]
)
def test_resnets_have_their_known_parameters(depth: int, parameters: int) -> None:
    assert wide_resnet_parameters(depth) == parameters


def test_models_have_the_parameters_of_their_formulas() -> None:
    assert counted(lambda: vgg16(40, 0.5, 7, 32, image_channels=1)) == vgg16_parameters(
        40, 0.5, 7, 32, image_channels=1
    )
    assert counted(lambda: wide_resnet(50, 2, 64)) == wide_resnet_parameters(50, 2)
    assert counted(
        lambda: wide_resnet(26, 3, 16, 5, base_channels=8, image_channels=1, small_images=True)
    ) == wide_resnet_parameters(26, 3, 5, 8, 1, small_images=True)
    assert counted(lambda: lstm_language_model(24, 3, 4, 50)) == lstm_parameters(24, 3, 50)
    assert counted(lambda: lstm_language_model(24, 3, 4, 50, embedding=7)) == lstm_parameters(
        24, 3, 50, embedding=7
    )
    assert counted(lambda: transformer(2, 32, 4, 48, 5, 6, 70)) == transformer_parameters(
        2, 32, 48, 70
    )


def test_wider_means_quadratically_more() -> None:
    narrow, wide = (wide_resnet_parameters(152, width) for width in (1, 10))
    assert 90 * narrow < wide < 100 * narrow


def run_small(name: str) -> tuple[float, tuple[int, ...], list[np.ndarray]]:
    graph = tf.Graph()
    with graph.as_default(), v1.Session() as session:
        model = SMALL[name]()
        session.run(v1.global_variables_initializer())
        feed = {}
        for placeholder in model.placeholders.values():
            shape = [6, *placeholder.shape.as_list()[1:]]
            random = np.random.default_rng(0)
            whole = placeholder.dtype.is_integer
            feed[placeholder] = random.integers(10, size=shape) if whole else random.random(shape)
        loss, scores = session.run([model.loss, model.scores], feed)
        return float(loss), scores.shape, session.run(v1.trainable_variables())


@functools.cache
def first_run(name: str) -> tuple[float, tuple[int, ...], list[np.ndarray]]:
    return run_small(name)


@pytest.mark.parametrize("name", SMALL)
def test_a_new_model_knows_nothing_yet_and_is_the_same_every_time(name: str) -> None:
    loss, shape, variables = first_run(name)
    again, _, same = run_small(name)
    assert shape == (6, *SCORES[name])
    assert 0.5 * np.log(shape[-1]) < loss < 3 * np.log(shape[-1])
    assert loss == again
    for one, other in zip(variables, same, strict=True):
        np.testing.assert_array_equal(one, other)


def test_initial_values_differ_between_layers() -> None:
    _, _, variables = first_run("transformer")
    assert len({value.tobytes() for value in variables if value.std() > 0}) == sum(
        value.std() > 0 for value in variables
    )


def test_testing_shares_the_variables_of_training_and_updates_nothing() -> None:
    with tf.Graph().as_default():
        model = wide_resnet(14, 1, 8, 10, base_channels=4, small_images=True)
        before = len(v1.global_variables())
        updates = len(v1.get_collection(v1.GraphKeys.UPDATE_OPS))
        images = model.placeholders["images"]
        wide_resnet_scores(images, 14, 1, 10, 4, small_images=True, training=False)
        assert len(v1.global_variables()) == before
        assert len(v1.get_collection(v1.GraphKeys.UPDATE_OPS)) == updates == 2 * 17


def test_fused_and_spelled_out_batch_normalisation_agree() -> None:
    losses = []
    for dtype in (tf.float32, tf.float64):
        with tf.Graph().as_default(), v1.Session() as session:
            options = {"base_channels": 4, "small_images": True, "dtype": dtype}
            model = wide_resnet(14, 1, 16, 10, **options)
            session.run(v1.global_variables_initializer())
            for variable in v1.trainable_variables():  # seeds mean other values in other types
                values = np.random.default_rng(len(variable.name)).normal(size=variable.shape)
                variable.load(0.3 * values + (variable.shape.rank == 1), session)
            images, labels = model.placeholders.values()
            feed = {images: np.random.default_rng(1).random([8, 16, 16, 3]), labels: range(8)}
            losses.append(session.run(model.loss, feed))
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_heads_divide_the_width() -> None:
    with pytest.raises(ValueError, match="Got 3 and 8"):
        transformer(1, 8, 3, 16, 4, 4, 10)


def test_a_depth_that_no_resnet_has_is_refused() -> None:
    with tf.Graph().as_default(), pytest.raises(KeyError, match="51"):
        wide_resnet(51)
