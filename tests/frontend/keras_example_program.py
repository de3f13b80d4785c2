"""A small model of Keras, trained and saved as users do: README's ten lines, and a file."""

import tensoropt  # isort: skip  # before Keras, so that chatter is held back from the begin
import keras
import numpy as np

model = keras.Sequential(
    [keras.Input((32,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(1)]
)
model = tensoropt.parallelize(model)
model.compile("adam", "mse", metrics=["mae"])
features = np.random.default_rng(0).random((512, 32), np.float32)
history = model.fit(features, features[:, :1], batch_size=64, epochs=3)
model.save("model.keras")
