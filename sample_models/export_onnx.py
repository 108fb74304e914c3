"""Export the checkpoints to ONNX, as a PyTorch user would, and check the result before it is kept.

    python sample_models/export_onnx.py relu6 silu

Needs PyTorch, onnx and onnxruntime. Opset 17, one file with the weights inside, ``image`` (1, 1, 28, 28) float32 ->
``logits`` (1, 10). The exporter folds batch normalisation into the convolutions.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from pathlib import Path

import forms
import onnx
import torch  # type: ignore[import-not-found, unused-ignore]
from architecture import ACTIVATIONS, INPUT_SHAPE
from network import FashionNet, load_checkpoint

OPSET = 17


def export(network: FashionNet, path: Path) -> None:
    """Write ``network`` as a single ONNX file."""
    with warnings.catch_warnings():
        # The exporter of choice for a static network without control flow; it announces its successor each time.
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.onnx.export(
            network,
            (torch.zeros(INPUT_SHAPE),),
            str(path),
            input_names=["image"],
            output_names=["logits"],
            opset_version=OPSET,
            dynamo=False,
        )
    onnx.checker.check_model(onnx.load(path), full_check=True)


def main() -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Export the sample networks to ONNX.")
    parser.add_argument("activation", nargs="+", choices=ACTIVATIONS)
    parser.add_argument("--out", type=Path, default=forms.FOLDER, help="where fashion_*.npz are, and the result goes")
    options = parser.parse_args()
    images = forms.test_images()
    for activation in options.activation:
        network = load_checkpoint(options.out / f"fashion_{activation}.npz", activation)
        with torch.no_grad():
            expected = network(torch.from_numpy(images)).numpy()
        target = options.out / f"fashion_{activation}.onnx"
        with tempfile.TemporaryDirectory(dir=options.out, prefix=".partial-") as partial:
            made = Path(partial) / target.name
            export(network, made)
            try:
                difference = forms.check(target.name, forms.logits(made, images), expected)
            except forms.DisagreementError as error:
                print(f"export_onnx.py: {error}", file=sys.stderr)
                return 1
            made.replace(target)
        print(f"{target}: {target.stat().st_size} bytes, within {difference:.2g} of PyTorch")
    return 0


if __name__ == "__main__":
    sys.exit(main())
