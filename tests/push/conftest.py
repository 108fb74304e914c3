"""Boards in tests of push: a folder of this machine's that plays a board's home, bundles, and apps that run."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from push_boards import FolderLink, TestedAgent

from edgekit.bundle.golden import write_npz
from edgekit.push.contact import Agent
from edgekit.runtime.backend import available_backends, open_backend
from edgekit.runtime.tensors import dequantize, quantize
from edgekit.values import IoSpec, QuantParams, to_json

MODELS = Path(__file__).parents[1] / "runtime" / "models"


@pytest.fixture
def board(tmp_path: Path) -> FolderLink:
    """A board with nothing on it."""
    home = tmp_path / "home of pi’s"
    home.mkdir()
    return FolderLink(home)


@pytest.fixture
def agent(board: FolderLink) -> Agent:
    """The agent on that board; skips where this Python has no interpreter."""
    if not available_backends():
        pytest.skip("no TFLite interpreter is installed (pip install ai-edge-litert)")
    return TestedAgent(board)


@pytest.fixture
def make_bundle(tmp_path: Path) -> Callable[..., Path]:
    """``make_bundle(name, seed=0, size=0)``: a bundle around ``dense_int8`` whose golden pairs were computed here.

    ``size`` more bytes behind the model (which no interpreter reads) make it as large as is asked for, ``seed`` makes it another.
    """

    def make(name: str = "dense.bundle", *, seed: int = 0, size: int = 0, steps_off: int = 0) -> Path:
        folder = tmp_path / "bundles" / name
        folder.mkdir(parents=True)
        model = folder / "model.tflite"
        shutil.copy(MODELS / "dense_int8.tflite", model)
        with open(model, "ab") as file:
            file.write(np.random.default_rng(seed).bytes(size or 16))
        write_npz(folder / "golden.npz", golden(model, seed, steps_off))
        (folder / "labels.txt").write_text("a\nb\nc\n")
        write_manifest(folder)
        return folder

    return make


def golden(model: Path, seed: int, steps_off: int) -> dict[str, Any]:
    """Golden pairs of the int8 file itself: its output, ``steps_off`` away, and as the float output what the integers mean."""
    inputs = np.random.default_rng(seed).uniform(-20, 20, (4, 1, 4)).astype(np.float32)
    answers = []
    with open_backend(model) as backend:
        tensor, out = backend.inputs[0], backend.outputs[0]
        for value in inputs:
            backend.set_input(0, quantize(value, scale=tensor.scale, zero_point=tensor.zero_point, dtype=tensor.dtype))
            backend.invoke()
            answers.append(backend.get_output(0))
    exact = np.stack(answers)
    real = dequantize(exact, scale=out.scale, zero_point=out.zero_point)
    off = np.clip(exact.astype(int) + steps_off, -128, 127).astype(np.int8)
    return {
        "input/image": inputs,
        "int8/y": off,
        "float/y": dequantize(off, scale=out.scale, zero_point=out.zero_point) if steps_off else real,
    }


def write_manifest(folder: Path) -> None:
    """A manifest of what is in the folder."""
    files = {
        path.name: {"sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "size_bytes": path.stat().st_size}
        for path in sorted(folder.iterdir())
        if path.name != "manifest.json"
    }
    manifest: dict[str, Any] = {
        "schema": 1,
        "edgekit": "0",
        "files": files,
        "inputs": to_json([IoSpec("image", (1, 4), "float32", "x", (1, 4), "int8", quant=QuantParams(0.5, -1))]),
        "outputs": to_json([IoSpec("y", (1, 3), "float32", "y", (1, 3), "int8", quant=QuantParams(1.0, 3))]),
        "preprocessing": None,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
