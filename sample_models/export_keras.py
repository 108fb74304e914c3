"""Carry the checkpoints over to Keras 3 and write them as ``.keras`` and as a SavedModel, checked before they are kept.

    python sample_models/export_keras.py relu6 silu

Needs TensorFlow (with Keras 3), onnx and onnxruntime; run ``export_onnx.py`` first: its files are what the Keras
forms are held against. The result is NHWC, ``image`` (n, 28, 28, 1) float32 -> ``logits`` (n, 10), batch
normalisation in layers of its own. The SavedModel has one signature, ``serving_default``.

PyTorch pads one pixel on each side; TensorFlow's "same" with stride 2 pads on the right and the bottom only. So every
3x3 convolution gets its padding as a layer of its own and runs "valid".
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import forms
import numpy as np
import numpy.typing as npt
from architecture import ACTIVATIONS, BLOCKS, CLASSES

forms.quiet_tensorflow()

import keras  # type: ignore[import-not-found, unused-ignore]  # noqa: E402
import tensorflow as tf  # type: ignore[import-untyped, unused-ignore]  # noqa: E402

EPSILON = 1e-5
"""PyTorch's default for batch normalisation; Keras' own is 1e-3."""

Arrays = Mapping[str, npt.NDArray[np.float32]]


def _normalise(x: Any, arrays: Arrays, prefix: str, *, name: str) -> Any:
    """Batch normalisation with the statistics of the checkpoint."""
    layer = keras.layers.BatchNormalization(epsilon=EPSILON, name=name)
    y = layer(x)
    layer.set_weights([arrays[f"{prefix}.{key}"] for key in ("weight", "bias", "running_mean", "running_var")])
    return y


def _convolution(x: Any, arrays: Arrays, prefix: str, *, name: str, stride: int = 1, activation: str | None) -> Any:
    """What network.py calls a convolution: (padding,) convolution, batch normalisation (, activation).

    PyTorch keeps kernels as (out, in / groups, height, width); Keras wants (height, width, in, out), depthwise
    (height, width, in, 1).
    """
    kernel = arrays[f"{prefix}.0.weight"]
    outputs, inputs_per_group, size, _ = kernel.shape
    if size > 1:
        x = keras.layers.ZeroPadding2D(size // 2, name=f"{name}_pad")(x)
    if inputs_per_group < x.shape[-1]:
        layer = keras.layers.DepthwiseConv2D(size, strides=stride, use_bias=False, name=f"{name}_conv")
        weights = kernel.transpose(2, 3, 0, 1)
    else:
        layer = keras.layers.Conv2D(outputs, size, strides=stride, use_bias=False, name=f"{name}_conv")
        weights = kernel.transpose(2, 3, 1, 0)
    x = layer(x)
    layer.set_weights([weights])
    x = _normalise(x, arrays, f"{prefix}.1", name=f"{name}_bn")
    if activation == "relu6":
        return keras.layers.ReLU(max_value=6.0, name=f"{name}_relu6")(x)
    if activation == "silu":
        return keras.layers.Activation("silu", name=f"{name}_silu")(x)
    return x


def _inverted_residual(x: Any, arrays: Arrays, prefix: str, *, name: str, stride: int, activation: str) -> Any:
    y = _convolution(x, arrays, f"{prefix}.expand", name=f"{name}_expand", activation=activation)
    y = _convolution(y, arrays, f"{prefix}.depthwise", name=f"{name}_depthwise", stride=stride, activation=activation)
    y = _convolution(y, arrays, f"{prefix}.project", name=f"{name}_project", activation=None)
    if stride == 1 and x.shape[-1] == y.shape[-1]:
        return keras.layers.Add(name=f"{name}_add")([x, y])
    return y


def build(arrays: Arrays, activation: str) -> Any:
    """The Keras model with the checkpoint's weights."""
    image = keras.Input((28, 28, 1), name="image")
    x = _convolution(image, arrays, "stem", name="stem", stride=2, activation=activation)
    for index, (_, stride, _) in enumerate(BLOCKS):
        x = _inverted_residual(x, arrays, f"blocks.{index}", name=f"block{index}", stride=stride, activation=activation)
    x = _convolution(x, arrays, "head", name="head", activation=activation)
    x = keras.layers.GlobalAveragePooling2D(name="pool")(x)
    layer = keras.layers.Dense(CLASSES, name="logits")
    logits = layer(x)
    layer.set_weights([arrays["classifier.weight"].T, arrays["classifier.bias"]])
    return keras.Model(image, logits, name=f"fashion_{activation}")


def write_saved_model(model: Any, folder: Path) -> None:
    """Write ``model`` as a SavedModel whose only signature takes ``image`` and returns ``logits``."""

    signature = [tf.TensorSpec((None, 28, 28, 1), tf.float32, name="image")]

    @tf.function(input_signature=signature)  # type: ignore[untyped-decorator, unused-ignore]
    def serve(image: Any) -> dict[str, Any]:
        return {"logits": model(image, training=False)}

    # A bare module with the variables and one function: Keras' own writer adds training functions that nobody calls.
    module = tf.Module()
    module.model_variables = model.variables
    module.serve = serve
    tf.saved_model.save(module, str(folder), signatures={"serving_default": serve})


def export(activation: str, out: Path, partial: Path) -> list[str]:
    """Write both forms into ``partial``, hold them against the ONNX file, move them to ``out``.

    Returns a line to show for each form.

    Raises forms.DisagreementError, and then ``out`` is as it was.
    """
    images = forms.test_images()
    expected = forms.logits(out / f"fashion_{activation}.onnx", images)
    with np.load(out / f"fashion_{activation}.npz", allow_pickle=False) as arrays:
        model = build(arrays, activation)
    keras_file, folder = partial / f"fashion_{activation}.keras", partial / f"fashion_{activation}_savedmodel"
    model.save(keras_file)
    write_saved_model(model, folder)
    lines = []
    for made in (keras_file, folder):
        difference = forms.check(made.name, forms.logits(made, images), expected)
        lines.append(f"{out / made.name}: within {difference:.2g} of the ONNX file")
    for made in (keras_file, folder):
        target = out / made.name
        if target.is_dir():
            shutil.rmtree(target)
        made.replace(target)
    return lines


def main() -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Carry the sample networks over to Keras and SavedModel.")
    parser.add_argument("activation", nargs="+", choices=ACTIVATIONS)
    parser.add_argument(
        "--out", type=Path, default=forms.FOLDER, help="where fashion_*.npz and .onnx are, and the result goes"
    )
    options = parser.parse_args()
    for activation in options.activation:
        with tempfile.TemporaryDirectory(dir=options.out, prefix=".partial-") as partial:
            try:
                lines = export(activation, options.out, Path(partial))
            except (forms.DisagreementError, FileNotFoundError) as error:
                print(f"export_keras.py: {error}", file=sys.stderr)
                return 1
        print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
