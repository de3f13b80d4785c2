"""A Keras model is trained and saved; alone by plain Keras, on ranks together.

mpirun -np N python keras_ranks.py FOLDER
"""

from __future__ import annotations

import json
import os
import sys

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np

import tensoropt

layers = keras.layers
X = np.random.default_rng(0).random((32, 8), np.float32)
Y = np.random.default_rng(1).integers(4, size=32)


def main(folder: str) -> None:
    keras.utils.set_random_seed(0)
    is_alone = "PMI_RANK" not in os.environ
    model = keras.Sequential([keras.Input((8,)), layers.Dense(16, "tanh"), layers.Dense(4)])
    if not is_alone:
        model = tensoropt.parallelize(model)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.05), loss)
    saves = keras.callbacks.ModelCheckpoint(f"{folder}/model.keras")
    history = model.fit(X, Y, batch_size=16, epochs=3, shuffle=False, verbose=0, callbacks=[saves])
    loaded = keras.saving.load_model(f"{folder}/model.keras").get_weights()
    weights = model.get_weights()
    if is_alone or tensoropt.rank() == 0:
        found = {
            "losses": history.history["loss"],
            "sums": [float(each.sum()) for each in weights],
            "is_saved": all(map(np.array_equal, loaded, weights)),
        }
        print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
