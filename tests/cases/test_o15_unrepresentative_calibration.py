"""O15: too few, constant or unrepresentative calibration samples are refused or flagged, naming the tensors that suffer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import networks
import numpy as np
import pytest
from bundles import Bundle, convert
from onnx import helper
from open_cases import run_bundle, truth
from tiny_models import onnx_model

from edgekit.errors import DataError


def network() -> Any:
    """a = Relu(Conv3x3(x)); k = Relu(max over channels of x - 4); y = mean over height and width of a k. Real inputs: 0 to 8."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["a"]),
        helper.make_node("ReduceMax", ["x"], ["m"], axes=[1], keepdims=1),
        helper.make_node("Sub", ["m", "four"], ["s"]),
        helper.make_node("Relu", ["s"], ["k"]),
        helper.make_node("Mul", ["a", "k"], ["p"]),
        helper.make_node("ReduceMean", ["p"], ["y"], axes=[2, 3], keepdims=0),
    ]
    weights = {"w": networks.normal(4, 3, 3, 3, seed=1), "b": networks.normal(4, seed=2), "four": np.float32([4])}
    return onnx_model(nodes, {"x": [1, 3, 8, 8]}, {"y": [1, 4]}, weights)


def uniform(count: int, high: float, seed: int) -> Any:
    return np.random.default_rng(seed).uniform(0, high, (count, 3, 8, 8)).astype(np.float32)


def converted(folder: Path, calibration: Any, frontend: str) -> Bundle:
    np.savez(folder / "c.npz", x=calibration)
    np.savez(folder / "v.npz", x=uniform(32, 8.0, seed=9))
    path = networks.save(network(), folder / "net.onnx")
    return convert(path, folder / "c.npz", folder / "out", eval_data=str(folder / "v.npz"), frontend=frontend)


def findings(bundle: Bundle) -> dict[str, Mapping[str, Any]]:
    return {finding["name"]: finding for finding in bundle.manifest["health"]["findings"]}


@pytest.mark.parametrize("value", [0.0, 3.0])
def test_constant_samples_are_refused(tmp_path: Path, any_frontend: str, value: float) -> None:
    with pytest.raises(DataError) as caught:
        converted(tmp_path, np.full((4, 3, 8, 8), value, np.float32), any_frontend)
    assert caught.value.code == "data_constant" and not (tmp_path / "out").exists()


def test_samples_that_are_each_one_value_are_refused(tmp_path: Path, any_frontend: str) -> None:
    """Frames of one brightness each: the range is right, and there is nothing in them."""
    frames = np.linspace(0, 8, 6, dtype=np.float32).reshape(6, 1, 1, 1) * np.ones((1, 3, 8, 8), np.float32)
    with pytest.raises(DataError, match="6 of 6 samples of input 'x' are one single value throughout") as caught:
        converted(tmp_path, frames, any_frontend)
    assert caught.value.code == "data_unhealthy"


def test_a_branch_that_never_fires_is_flagged_by_name(tmp_path: Path, any_frontend: str) -> None:
    bundle = converted(tmp_path, uniform(4, 1.0, seed=1), any_frontend)
    found = findings(bundle)
    dead = found["dead-tensors"]
    assert dead["severity"] == "warn" and dead["hint"]
    ranges = bundle.manifest["calibration"]["ranges"]
    assert dead["numbers"]["tensors"] and all(
        min(ranges[name]["min"], 0) == max(ranges[name]["max"], 0) == 0 for name in dead["numbers"]["tensors"]
    )
    assert all(repr(name) in dead["message"] for name in dead["numbers"]["tensors"][:5])
    assert found["ranges-differ"]["severity"] == "warn"
    assert found["ranges-differ"]["numbers"]["saturated_share"] == pytest.approx(7 / 8, abs=0.02)
    left = found["ranges-left"]["numbers"]["furthest"]
    assert any(item["tensor"] == "x" and item["seen"][1] > 7 and item["calibrated"][1] < 1.01 for item in left)
    assert "input 'x' calibrated" in found["ranges-left"]["message"]
    assert not bundle.manifest["verification"]["passed"]  # and what came of it is not delivered


def test_four_samples_of_the_real_range_are_fine(tmp_path: Path, any_frontend: str) -> None:
    bundle = converted(tmp_path, uniform(4, 8.0, seed=1), any_frontend)
    assert {finding["severity"] for finding in findings(bundle).values()} == {"fine"}
    x = uniform(1, 8.0, seed=30)
    got, expected = run_bundle(bundle, {"x": x})["y"], truth(network(), {"x": x})["y"]
    assert np.abs(got - expected).max() < 0.03 * np.abs(expected).max()


def test_one_sample_is_warned_of(tmp_path: Path, any_frontend: str) -> None:
    found = findings(converted(tmp_path, uniform(1, 8.0, seed=1), any_frontend))
    assert found["count"]["severity"] == "warn" and "one calibration sample" in found["count"]["message"]


def test_a_model_with_many_weights_becomes_at_most_half_as_large(tmp_path: Path, any_frontend: str) -> None:
    """Even from four samples: 147,456 weights in one convolution."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4)]
    model = onnx_model(
        nodes, {"x": [1, 128, 6, 6]}, {"y": [1, 128, 6, 6]}, {"w": networks.normal(128, 128, 3, 3, seed=1, scale=0.05)}
    )
    np.savez(tmp_path / "d.npz", x=networks.normal(20, 128, 6, 6))
    path = networks.save(model, tmp_path / "net.onnx")
    bundle = convert(path, tmp_path / "d.npz", tmp_path / "out", calibration_limit=4, frontend=any_frontend)
    files = {file.name: file.stat().st_size for file in bundle.path.iterdir()}
    assert files[bundle.delivered.name] <= 0.5 * files["float.tflite"]
