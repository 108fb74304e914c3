"""O3: pools in ceil mode keep their last row, and the border never wins the maximum nor weighs in the average."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from open_cases import Front, largest_error, normal, run_bundle, truth
from tiny_models import onnx_model

CASES: dict[str, dict[str, Any]] = {
    "max k2 s2": {"op": "MaxPool", "kernel_shape": [2, 2], "strides": [2, 2]},
    "max k3 s2": {"op": "MaxPool", "kernel_shape": [3, 3], "strides": [2, 2]},
    "max k3 s2 p1": {"op": "MaxPool", "kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    "max k3 s3": {"op": "MaxPool", "kernel_shape": [3, 3], "strides": [3, 3]},
    "max k2 s3": {"op": "MaxPool", "kernel_shape": [2, 2], "strides": [3, 3]},
    "max k3x2 s2x3 asymmetric": {"op": "MaxPool", "kernel_shape": [3, 2], "strides": [2, 3], "pads": [0, 1, 1, 0]},
    "average k2 s2": {"op": "AveragePool", "kernel_shape": [2, 2], "strides": [2, 2]},
    "average k3 s2 p1": {"op": "AveragePool", "kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    "average k3 s2 p1 counting": {
        "op": "AveragePool", "kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "count_include_pad": 1,
    },
}  # fmt: skip


def network(case: dict[str, Any], ceil_mode: int = 1) -> Any:
    options = {key: value for key, value in case.items() if key != "op"}
    node = helper.make_node(case["op"], ["x"], ["y"], name="pool", ceil_mode=ceil_mode, **options)
    return onnx_model([node], {"x": [1, 4, 15, 20]}, {"y": None})


def test_the_case_is_one() -> None:
    """In ceil mode there is a row more."""
    sample = {"x": normal(1, 4, 15, 20, mean=-5)}
    assert truth(network(CASES["max k2 s2"]), sample)["y"].shape == (1, 4, 8, 10)
    assert truth(network(CASES["max k2 s2"], 0), sample)["y"].shape == (1, 4, 7, 10)


@pytest.mark.parametrize("name", CASES)
def test_negative_values_survive(route: Front, name: str) -> None:
    model = network(CASES[name])
    samples = [{"x": normal(1, 4, 15, 20, seed=seed, mean=-5)} for seed in range(3)]
    made = route.imported(model, samples[:2])
    limit = 0.0 if CASES[name]["op"] == "MaxPool" else 1e-5
    assert largest_error(truth(model, samples[2]), made.run(samples[2])) <= limit


def test_int8(route: Front) -> None:
    model = network(CASES["max k2 s2"])
    bundle = route.bundle(model, {"x": normal(64, 4, 15, 20, seed=7, mean=-5)})
    step = bundle.manifest["outputs"][0]["quant"]["scale"]
    low, high = (
        bundle.manifest["calibration"]["ranges"][bundle.manifest["inputs"][0]["tensor"]][k] for k in ("min", "max")
    )
    sample = {"x": np.clip(normal(1, 4, 15, 20, seed=100, mean=-5), low, high)}
    got = run_bundle(bundle, sample)
    assert largest_error(truth(model, sample), got) <= step * 1.001
