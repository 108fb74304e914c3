"""Run any form of a sample network (ONNX, Keras, SavedModel) and hold it against another.

Needs numpy, and what the form needs: onnxruntime for ``.onnx``, TensorFlow with Keras 3 for ``.keras`` and SavedModel
folders.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fashion_mnist
import numpy as np
import numpy.typing as npt

FOLDER = Path(__file__).parent
TOLERANCE = 1e-4
"""Largest absolute difference allowed between two forms' logits: float32 rounding, nothing else."""

Floats = npt.NDArray[np.float32]


class DisagreementError(Exception):
    """An exported model does not compute what its source computes."""


def test_images() -> Floats:
    """The 1,000 shipped test images as the networks take them: float32 (1000, 1, 28, 28), -1..1."""
    with np.load(FOLDER / "test.npz", allow_pickle=False) as arrays:
        return fashion_mnist.normalise(arrays["image"])


def test_labels() -> npt.NDArray[np.int64]:
    """The labels of :func:`test_images`: int64 (1000,), 0..9."""
    with np.load(FOLDER / "test.npz", allow_pickle=False) as arrays:
        labels: npt.NDArray[np.int64] = arrays["label"]
        return labels


def logits(path: Path, images: Floats) -> Floats:
    """Logits (n, 10) of the model at ``path`` for NCHW ``images`` (n, 1, 28, 28), whatever its form and layout."""
    if path.suffix == ".onnx":
        run, size = _onnx(path), 1
    elif path.suffix == ".keras":
        run, size = _keras(path), 250
    else:
        run, size = _saved_model(path), 250
    parts = [run(images[start : start + size]) for start in range(0, len(images), size)]
    return np.concatenate(parts).astype(np.float32)


def check(name: str, found: Floats, expected: Floats) -> float:
    """The largest absolute difference; raises DisagreementError when it is not below TOLERANCE, or not a number."""
    if found.shape != expected.shape:
        raise DisagreementError(f"{name}: logits have shape {found.shape}, expected {expected.shape}; not written")
    difference = float(np.abs(found - expected).max())
    if not difference < TOLERANCE:
        raise DisagreementError(f"{name}: logits are off by {difference:.3g}, allowed is {TOLERANCE:.3g}; not written")
    return difference


def quiet_tensorflow() -> None:
    """Keep TensorFlow's start-up remarks off the terminal; to be called before its first import."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")


def _onnx(path: Path) -> Callable[[Floats], Any]:
    import onnxruntime  # type: ignore[import-untyped, unused-ignore]

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda images: session.run(["logits"], {"image": images})[0]


def _keras(path: Path) -> Callable[[Floats], Any]:
    quiet_tensorflow()
    import keras  # type: ignore[import-not-found, unused-ignore]

    model = keras.saving.load_model(path, compile=False)
    return lambda images: model(images.transpose(0, 2, 3, 1), training=False).numpy()


def _saved_model(path: Path) -> Callable[[Floats], Any]:
    quiet_tensorflow()
    import tensorflow as tf  # type: ignore[import-untyped, unused-ignore]

    loaded = tf.saved_model.load(str(path))

    def run(images: Floats) -> Any:
        # Reached through ``loaded``: a signature alone does not keep the variables alive.
        result = loaded.signatures["serving_default"](image=tf.constant(images.transpose(0, 2, 3, 1)))
        return result["logits"].numpy()

    return run
