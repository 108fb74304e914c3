"""Benchmarks of the runtime's small models on this machine, with a home of their own."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.bench import plan
from edgekit.runtime.backend import available_backends
from edgekit.values import IoSpec, QuantParams, to_json

MODELS = Path(__file__).parents[1] / "runtime" / "models"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The board's folder, and where ``run_benchmark`` finds it."""
    if not available_backends():
        pytest.skip("no TFLite interpreter is installed (pip install ai-edge-litert)")
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(plan, "WARMUP_MIN_S", 0.05)
    monkeypatch.setattr(plan, "BLOCK_S", 0.1)
    return tmp_path / "home"


@pytest.fixture
def models() -> Path:
    return MODELS


@pytest.fixture
def bundle(tmp_path: Path) -> Callable[..., Path]:
    """``bundle()``: a bundle folder around ``dense_int8``, with a float model and golden inputs."""

    def make(name: str = "dense.bundle") -> Path:
        folder = tmp_path / name
        folder.mkdir()
        shutil.copy(MODELS / "dense_int8.tflite", folder / "model.tflite")
        shutil.copy(MODELS / "convs.tflite", folder / "float.tflite")
        np.savez(folder / "golden.npz", **{"input/image": np.zeros((2, 1, 4), np.float32)})
        data = (folder / "model.tflite").read_bytes()
        manifest: dict[str, Any] = {
            "schema": 1,
            "files": {"model.tflite": {"sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data)}},
            "inputs": to_json([IoSpec("image", (1, 4), "float32", "x", (1, 4), "int8", quant=QuantParams(0.5, -1))]),
            "outputs": to_json([IoSpec("y", (1, 3), "float32", "y", (1, 3), "int8", quant=QuantParams(1.0, 3))]),
            "preprocessing": None,
        }
        (folder / "manifest.json").write_text(json.dumps(manifest))
        return folder

    return make
