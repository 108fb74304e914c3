"""O7: depthwise convolutions become one operator, grouped ones run, and padding on all sides is not taken for SAME."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from open_cases import Front, largest_error, normal, run_bundle, sqnr_db, truth
from tiny_models import onnx_model

from edgekit.intake import tflite

CASES = {
    "depthwise": (12, 12),
    "multiplier 2": (12, 24),
    "groups": (3, 12),
    "two groups": (2, 12),
    "groups of 2": (6, 24),
}


def network(group: int, channels: int, *, stride: int = 2, size: int = 10) -> Any:
    nodes = [
        helper.make_node("Add", ["x", "a"], ["s"]),
        helper.make_node("Conv", ["s", "w", "b"], ["y"], group=group, strides=[stride] * 2, pads=[1] * 4),
    ]
    constants = {
        "a": normal(1, 12, 1, 1, seed=1),
        "w": normal(channels, 12 // group, 3, 3, seed=2),
        "b": normal(channels, seed=3),
    }
    return onnx_model(nodes, {"x": [1, 12, size, size]}, {"y": None}, constants)


@pytest.mark.parametrize(("size", "stride"), [(10, 2), (11, 2), (10, 1), (12, 3)])
@pytest.mark.parametrize("name", CASES)
def test_values(route: Front, name: str, stride: int, size: int) -> None:
    model = network(*CASES[name], stride=stride, size=size)
    samples = [{"x": normal(1, 12, size, size, seed=seed)} for seed in range(3)]
    made = route.imported(model, samples[:2])
    assert largest_error(truth(model, samples[2]), made.run(samples[2])) < 1e-4


@pytest.mark.parametrize("name", ["depthwise", "multiplier 2"])
def test_depthwise_is_one_operator(route: Front, name: str) -> None:
    made = route.imported(network(*CASES[name]), [{"x": normal(1, 12, 10, 10)}])
    kinds = [operator.name for operator in tflite.graph(tflite.read(made.model.path)).operators]
    assert [kind for kind in kinds if "CONV" in kind] == ["DEPTHWISE_CONV_2D"]


@pytest.mark.parametrize("name", ["depthwise", "multiplier 2", "groups"])
def test_int8(route: Front, name: str) -> None:
    model = network(*CASES[name])
    bundle = route.bundle(model, {"x": normal(64, 12, 10, 10, seed=7)})
    held_out = [{"x": normal(1, 12, 10, 10, seed=seed)} for seed in range(100, 108)]
    expected = np.stack([truth(model, sample)["y"] for sample in held_out])
    got = np.stack([run_bundle(bundle, sample)["y"] for sample in held_out])
    assert sqnr_db(expected, got) > 28
