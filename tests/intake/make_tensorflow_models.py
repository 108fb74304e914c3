"""Writes the small Keras files and SavedModels of the tests: ``python make_tensorflow_models.py FOLDER``, in the front end's Python.

Weights are plain numbers that the tests compute with in numpy; they lie beside the models in ``weights.npz``. The models that hold
code touch ``FOLDER/ran`` when that code runs.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import keras  # type: ignore[import-not-found, unused-ignore]
import numpy as np
import tensorflow as tf  # type: ignore[import-not-found, unused-ignore]
import tf_keras  # type: ignore[import-not-found, unused-ignore]
from keras import layers  # type: ignore[import-not-found, unused-ignore]

RNG = np.random.default_rng(5)

SQUARE = RNG.standard_normal((4, 4)).astype(np.float32)


def networks(out: Path) -> None:
    keras.utils.set_random_seed(3)
    pictures = keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(4, 3),
            layers.GlobalAveragePooling2D(),
            layers.Dense(2, activation="softmax"),
        ]
    )
    pictures.save(out / "with a space.keras")
    pictures.save_weights(out / "only.weights.h5")
    pictures.export(out / "exported", verbose=False)
    left, right = keras.Input((5,), name="zeta"), keras.Input((3,), dtype="int32", name="alpha")
    embedded = layers.Flatten()(layers.Embedding(10, 3, name="table")(right))
    joined = layers.Concatenate()([left, layers.Rescaling(1.0)(embedded)])
    first, second = layers.Dense(3, name="out_z")(joined), layers.Dense(2, name="out_a")(joined)
    two = keras.Model([left, right], [first, second])
    table, one, other = RNG.standard_normal((10, 3)), RNG.standard_normal((14, 3)), RNG.standard_normal((14, 2))
    two.get_layer("table").set_weights([table])
    two.get_layer("out_z").set_weights([one, np.zeros(3)])
    two.get_layer("out_a").set_weights([other, np.zeros(2)])
    two.save(out / "two.keras")
    two.save(out / "two.h5")
    np.savez(out / "weights.npz", table=table, out_z=one, out_a=other, square=SQUARE)
    keras.Model({"zeta": left, "alpha": right}, {"late": first, "early": second}).save(out / "dictionary.keras")
    picture = keras.Input((None, None, 3), name="picture")
    keras.Model(picture, layers.GlobalAveragePooling2D()(layers.Conv2D(4, 3)(picture))).save(out / "open.keras")
    steps = keras.Input((6, 4), name="steps")
    keras.Model(steps, layers.Bidirectional(layers.GRU(3, return_sequences=True))(steps)).save(out / "recurrent.keras")
    keras.Model(steps, layers.Activation("silu")(layers.Dense(3)(steps))).save(out / "silu.keras")
    keras.Model(steps, keras.ops.fft2((steps, steps))[0]).save(out / "fourier.keras")
    keras.config.set_dtype_policy("mixed_float16")
    keras.Model(steps, layers.Dense(3, dtype="float32")(layers.Dense(5)(steps))).save(out / "mixed.keras")
    keras.config.set_dtype_policy("float32")
    old = tf_keras.Input((8, 8, 3), name="picture")
    tf_keras.Model(old, tf.nn.relu(tf_keras.layers.DepthwiseConv2D(3)(old)) * 2 + 1).save(out / "keras2.h5")


def code(out: Path) -> None:
    """Files whose code would leave a trace."""
    mark = str(out / "ran")
    run: Any = eval(
        f"lambda t: (__import__('pathlib').Path({mark!r}).touch(), t * 2)[1]"
    )  # its constants travel in the file
    keras.config.enable_unsafe_deserialization()
    picture = keras.Input((4,), name="x")
    for name in ("lambda.keras", "lambda.h5"):
        keras.Model(picture, layers.Lambda(run, name="twice")(picture)).save(out / name)
    old = tf_keras.Input((4,), name="x")
    tf_keras.Model(old, tf_keras.layers.Lambda(run, name="twice")(old)).save(out / "lambda2.h5")

    @keras.saving.register_keras_serializable("mine")
    class Odd(layers.Layer):  # type: ignore[misc, unused-ignore]
        def call(self, x: Any) -> Any:
            return x + 1

    for name in ("custom.keras", "custom.h5"):
        keras.Model(picture, Odd(name="odd_one")(picture)).save(out / name)

    class Reaching(tf.Module):  # type: ignore[misc, unused-ignore]
        @tf.function(input_signature=[tf.TensorSpec((1, 4), tf.float32, name="x")])  # type: ignore[untyped-decorator, unused-ignore]
        def serve(self, x: Any) -> Any:
            tf.io.write_file(mark, "x")
            return x * 2

    reaching = Reaching()
    tf.saved_model.save(reaching, str(out / "writes"), signatures=reaching.serve)

    class Resource(tf.saved_model.experimental.TrackableResource):  # type: ignore[misc, unused-ignore]
        def _create_resource(self) -> Any:
            return tf.raw_ops.MutableHashTableV2(key_dtype=tf.int64, value_dtype=tf.float32)

        def _initialize(self) -> Any:
            tf.io.write_file(mark, "x")

    class Loading(tf.Module):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.resource = Resource()

        @tf.function(input_signature=[tf.TensorSpec((1, 4), tf.float32, name="x")])  # type: ignore[untyped-decorator, unused-ignore]
        def serve(self, x: Any) -> Any:
            self.resource.resource_handle  # noqa: B018  captured, so that it is saved
            return x * 2

    loading = Loading()
    tf.saved_model.save(loading, str(out / "writes_when_loaded"), signatures=loading.serve)
    Path(mark).unlink(missing_ok=True)


class Several(tf.Module):  # type: ignore[misc, unused-ignore]
    def __init__(self) -> None:
        super().__init__()
        self.square = tf.Variable(SQUARE)

    @tf.function(
        input_signature=[tf.TensorSpec((None, 4), tf.float32, name="x"), tf.TensorSpec((None, 4), tf.int32, name="add")]
    )  # type: ignore[untyped-decorator, unused-ignore]
    def project(self, x: Any, add: Any) -> Any:
        return {"sum/of it:0": x @ self.square + tf.cast(add, tf.float32), "twice": x * 2}

    @tf.function(input_signature=[tf.TensorSpec((None, 4), tf.float32, name="x")])  # type: ignore[untyped-decorator, unused-ignore]
    def many(self, x: Any) -> Any:
        return [x + step for step in range(12)]

    @tf.function(input_signature=[tf.TensorSpec((None, None, 4), tf.float32, name="x")])  # type: ignore[untyped-decorator, unused-ignore]
    def open(self, x: Any) -> Any:
        return x @ self.square

    @tf.function(input_signature=[tf.TensorSpec((None,), tf.string, name="text")])  # type: ignore[untyped-decorator, unused-ignore]
    def words(self, text: Any) -> Any:
        return tf.strings.length(text)


def saved(out: Path) -> None:
    module = Several()
    tf.saved_model.save(module, str(out / "several"), signatures={"project": module.project, "many": module.many})
    tf.saved_model.save(module, str(out / "none"))
    for name in ("many", "open", "words"):
        tf.saved_model.save(module, str(out / name), signatures=getattr(module, name))


if __name__ == "__main__":
    target = Path(sys.argv[1])
    networks(target)
    saved(target)
    code(target)
