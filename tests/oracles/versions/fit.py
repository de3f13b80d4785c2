"""``fit`` of a convolutional model: in parallel, or with ``--plain`` by Keras alone.

The first rank prints the losses of the epochs, then the weights, as one JSON list.
"""

from __future__ import annotations

import json
import sys

import tensoropt  # isort: skip  # before Keras, as the documentation says
import keras
import numpy as np

layers = keras.layers
keras.utils.set_random_seed(7)
images = np.random.default_rng(0).random((96, 8, 8, 3), np.float32)
labels = (images.mean(axis=(1, 2, 3)) > 0.5).astype(np.int32)
model = keras.Sequential(
    [
        keras.Input((8, 8, 3)),
        layers.Conv2D(16, 3, use_bias=False),
        layers.BatchNormalization(),
        layers.Activation("relu"),
        layers.GlobalAveragePooling2D(),
        layers.Dropout(0.2),
        layers.Dense(2, "softmax"),
    ]
)
if "--plain" not in sys.argv:
    model = tensoropt.parallelize(model)
model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "sparse_categorical_crossentropy")
history = model.fit(images, labels, batch_size=32, epochs=3, verbose=0)
numbers = [history.history["loss"], *(each.ravel().tolist() for each in model.get_weights())]
if "--plain" in sys.argv or tensoropt.rank() == 0:
    ranks = 1 if "--plain" in sys.argv else tensoropt.size()
    print(json.dumps({"ranks": ranks, "numbers": numbers}))
