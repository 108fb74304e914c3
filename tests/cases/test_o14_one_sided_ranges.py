"""O14: ranges that do not hold zero, and operators that change the sign: the scale is wide enough, the output's its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networks
import numpy as np
from bundles import Bundle, convert
from onnx import helper
from open_cases import run_bundle
from tiny_models import onnx_model


def bundle(folder: Path, frontend: str, node: Any, size: int, low: float, high: float) -> Bundle:
    """y (1, size) of one operator on x (1, size), calibrated on 20 samples between ``low`` and ``high``."""
    model = onnx_model([node], {"x": [1, size]}, {"y": [1, size]}, {})
    x = np.random.default_rng(0).uniform(low, high, (40, size)).astype(np.float32)
    np.savez(folder / "data.npz", x=x)
    path = networks.save(model, folder / "net.onnx")
    return convert(path, folder / "data.npz", folder / "out", frontend=frontend)


def test_inputs_that_are_never_near_zero(tmp_path: Path, any_frontend: str) -> None:
    made = bundle(tmp_path, any_frontend, helper.make_node("Mul", ["x", "x"], ["y"]), 8, 1.3, 1.4)
    got = run_bundle(made, {"x": np.full((1, 8), 1.4, np.float32)})["y"]
    assert np.abs(got - 1.96).max() < 0.02


def test_inputs_that_are_always_negative(tmp_path: Path, any_frontend: str) -> None:
    made = bundle(tmp_path, any_frontend, helper.make_node("Abs", ["x"], ["y"]), 32, -1.0, 0.0)
    assert made.manifest["verification"]["audit"]["full_integer"]
    x = np.random.default_rng(1).uniform(-1.0, 0.0, (1, 32)).astype(np.float32)
    step = made.manifest["outputs"][0]["quant"]["scale"]
    assert np.abs(run_bundle(made, {"x": x})["y"] - np.abs(x)).max() <= 1.5 * step
