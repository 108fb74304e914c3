"""O2: transposed convolutions with every mix of kernel, stride and pads: exact shape and values, or refused by name. Never a crash."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from open_cases import Front, largest_error, normal, run_bundle, sqnr_db, truth
from tiny_models import onnx_model

CASES: dict[str, dict[str, Any]] = {
    "k3 s2 p1": {"k": 3, "strides": [2, 2], "pads": [1, 1, 1, 1]},
    "k3 s3 p1": {"k": 3, "strides": [3, 3], "pads": [1, 1, 1, 1]},
    "k4 s3 p1": {"k": 4, "strides": [3, 3], "pads": [1, 1, 1, 1]},
    "k3 s2 asymmetric": {"k": 3, "strides": [2, 2], "pads": [0, 1, 1, 0]},
    "k4 s2 p1": {"k": 4, "strides": [2, 2], "pads": [1, 1, 1, 1]},
    "k5 s2 p2 output padding": {"k": 5, "strides": [2, 2], "pads": [2, 2, 2, 2], "output_padding": [1, 1]},
    "k3 s2 p0": {"k": 3, "strides": [2, 2]},
    "k2 s2 p0": {"k": 2, "strides": [2, 2]},
    "k3 s1 p1": {"k": 3, "pads": [1, 1, 1, 1]},
    "k3 s1 2 p0": {"k": 3, "strides": [1, 2]},
    "k3 s2 same upper": {"k": 3, "strides": [2, 2], "auto_pad": "SAME_UPPER"},
    "k3 s2 same lower": {"k": 3, "strides": [2, 2], "auto_pad": "SAME_LOWER"},
    "k3 s2 output shape": {"k": 3, "strides": [2, 2], "output_shape": [28, 20]},
    "k3 s2 dilated": {"k": 3, "strides": [2, 2], "dilations": [2, 2], "pads": [1, 1, 1, 1]},
    "k3 s2 depthwise": {"k": 3, "strides": [2, 2], "pads": [1, 1, 1, 1], "group": 3},
}
SHAPES = {"k3 s2 p1": (27, 19), "k3 s3 p1": (40, 28), "k4 s3 p1": (41, 29), "k3 s2 asymmetric": (28, 20)}


def network(case: dict[str, Any], bias: bool = True) -> Any:
    options = {key: value for key, value in case.items() if key != "k"}
    group = options.get("group", 1)
    weights = {"w": normal(3, 8 // group if group == 1 else 1, case["k"], case["k"], seed=1)}
    weights["b"] = normal(8 if group == 1 else 3, seed=2)
    inputs = ["x", "w", "b"] if bias else ["x", "w"]
    node = helper.make_node("ConvTranspose", inputs, ["y"], name="up", **options)
    return onnx_model([node], {"x": [1, 3, 14, 10]}, {"y": None}, weights)


@pytest.mark.parametrize("name", CASES)
def test_values_and_shape(route: Front, name: str) -> None:
    model = network(CASES[name])
    samples = [{"x": normal(1, 3, 14, 10, seed=seed)} for seed in range(3)]
    expected = truth(model, samples[2])
    if name in SHAPES:
        assert expected["y"].shape[2:] == SHAPES[name]
    made = route.imported(model, samples[:2])
    assert largest_error(expected, made.run(samples[2])) < 1e-4


@pytest.mark.parametrize("name", ["k3 s2 p1", "k3 s2 asymmetric"])
def test_int8(route: Front, name: str) -> None:
    model = network(CASES[name])
    bundle = route.bundle(model, {"x": normal(64, 3, 14, 10, seed=7)})
    held_out = [{"x": normal(1, 3, 14, 10, seed=seed)} for seed in range(100, 108)]
    expected = np.stack([truth(model, sample)["y"] for sample in held_out])
    got = np.stack([run_bundle(bundle, sample)["y"] for sample in held_out])
    assert sqnr_db(expected, got) > 30
