"""Measure the sample models on all 10,000 Fashion-MNIST test images, and on the 1,000 of them that are shipped.

    python sample_models/evaluate.py
    python sample_models/evaluate.py sample_models/fashion_relu6.onnx
    python sample_models/evaluate.py --out sample_models/accuracy.json

Needs the Debian package dataset-fashion-mnist, onnxruntime for the ONNX files, and TensorFlow with Keras 3 for the
others.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import fashion_mnist
import forms
import numpy.typing as npt
from architecture import ACTIVATIONS


def shipped() -> list[Path]:
    """Every form of every sample network, in this folder."""
    endings = (".onnx", ".keras", "_savedmodel")
    return [forms.FOLDER / f"fashion_{activation}{ending}" for activation in ACTIVATIONS for ending in endings]


def count_right(path: Path, images: forms.Floats, labels: npt.NDArray[Any]) -> dict[str, int]:
    """How many of the images the model at ``path`` names rightly, and of how many."""
    right = int((forms.logits(path, images).argmax(axis=1) == labels).sum())
    return {"right": right, "count": len(labels)}


def main() -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Measure the sample models on all 10,000 test images.")
    parser.add_argument("model", nargs="*", type=Path, help="default: all that are shipped")
    parser.add_argument("--data", type=Path, default=fashion_mnist.FOLDER, help="folder with the four .gz files")
    parser.add_argument("--out", type=Path, help="write the counts here, as JSON")
    options = parser.parse_args()
    shipped_images, shipped_labels = forms.test_images(), forms.test_labels()
    try:
        images = fashion_mnist.normalise(fashion_mnist.read_images(options.data, "t10k")[:, None])
        labels = fashion_mnist.read_labels(options.data, "t10k")
    except fashion_mnist.DataSetMissingError as error:
        print(f"evaluate.py: {error}", file=sys.stderr)
        return 2
    results: dict[str, dict[str, dict[str, int]]] = {}
    for path in options.model or shipped():
        try:
            counts = {
                "all": count_right(path, images, labels),
                "shipped": count_right(path, shipped_images, shipped_labels),
            }
        except ImportError as error:
            print(f"evaluate.py: {path.name} needs {error.name}, which this interpreter does not have", file=sys.stderr)
            return 2
        results[path.name] = counts
        parts = [f"{part} {c['right']} of {c['count']} = {c['right'] / c['count']:.2%}" for part, c in counts.items()]
        print(f"{path.name}: {'; '.join(parts)}", flush=True)
    if options.out is not None:
        options.out.write_text(json.dumps(results, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
