"""Makes the small bundle that proves a board: an int8 network with golden pairs, kept in the package as edgekit/push/proof.

python tools/make_proof.py
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np

from edgekit.bundle.golden import write_npz
from edgekit.bundle.manifest import file_entry
from edgekit.runtime.backend import open_backend
from edgekit.runtime.naming import describe
from edgekit.runtime.tensors import dequantize, quantize
from edgekit.values import to_json

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "tests" / "runtime" / "models" / "dense_int8.tflite"
TARGET = ROOT / "edgekit" / "push" / "proof"


def main() -> None:
    """Writes the three files anew."""
    TARGET.mkdir(exist_ok=True)
    model = TARGET / "model.tflite"
    shutil.copyfile(SOURCE, model)
    inputs = np.random.RandomState(0).uniform(-30, 30, (4, 1, 4)).astype(np.float32)
    with open_backend(model) as backend:
        into, out = describe(backend)
        tensor = backend.inputs[0]
        answers = []
        for value in inputs:
            backend.set_input(0, quantize(value, scale=tensor.scale, zero_point=tensor.zero_point, dtype=tensor.dtype))
            backend.invoke()
            answers.append(backend.get_output(0))
    exact = np.stack(answers)
    result = backend.outputs[0]
    real = dequantize(exact, scale=result.scale, zero_point=result.zero_point)
    arrays = {f"input/{into[0].name}": inputs, f"int8/{out[0].name}": exact, f"float/{out[0].name}": real}
    write_npz(TARGET / "golden.npz", arrays)
    files = {name: file_entry(TARGET / name) for name in ("golden.npz", "model.tflite")}
    manifest = {"schema": 1, "edgekit": "", "files": files, "inputs": to_json(into), "outputs": to_json(out)}
    (TARGET / "manifest.json").write_text(json.dumps({**manifest, "preprocessing": None}, indent=1) + "\n")


if __name__ == "__main__":
    main()
