"""O11: calibration data that were normalised differently from what the network will get are refused, with both ranges and the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networks
import numpy as np
import pytest
from bundles import convert
from onnx import helper
from open_cases import run_bundle, sqnr_db, truth
from tiny_models import onnx_model

from edgekit.errors import DataError


def network() -> Any:
    """x (1,3,16,16), a convolution with ReLU, global average, a dense layer of 5."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "d", "e"], ["y"], transB=1),
    ]
    weights = {
        "w": networks.normal(8, 3, 3, 3, seed=1),
        "b": networks.normal(8, seed=2),
        "d": networks.normal(5, 8, seed=3),
        "e": networks.normal(5, seed=4),
    }
    return onnx_model(nodes, {"x": [1, 3, 16, 16]}, {"y": [1, 5]}, weights)


def uniform(count: int, low: float, high: float, seed: int) -> Any:
    return np.random.default_rng(seed).uniform(low, high, (count, 3, 16, 16)).astype(np.float32)


def converted(folder: Path, calibration: Any, verification: Any, frontend: str) -> Any:
    np.savez(folder / "c.npz", x=calibration)
    np.savez(folder / "v.npz", x=verification)
    path = networks.save(network(), folder / "net.onnx")
    return convert(path, folder / "c.npz", folder / "out", eval_data=str(folder / "v.npz"), frontend=frontend)


def refused(folder: Path, calibration: Any, verification: Any, frontend: str) -> DataError:
    with pytest.raises(DataError) as caught:
        converted(folder, calibration, verification, frontend)
    assert (caught.value.code, caught.value.exit_code) == ("data_unhealthy", 2)
    assert caught.value.hint and not (folder / "out").exists()
    return caught.value


REAL = (-2.1, 2.6)


def test_the_same_normalisation_passes(tmp_path: Path, any_frontend: str) -> None:
    verification = uniform(20, *REAL, seed=2)
    bundle = converted(tmp_path, uniform(30, *REAL, seed=1), verification, any_frontend)
    outputs = [run_bundle(bundle, {"x": v[None]})["y"] for v in verification]
    expected = [truth(network(), {"x": v[None]})["y"] for v in verification]
    assert sqnr_db(np.concatenate(expected), np.concatenate(outputs)) > 35
    agreed = {f["name"]: f for f in bundle.manifest["health"]["findings"]}["ranges-agree"]
    assert agreed["severity"] == "fine" and agreed["numbers"]["saturated_share"] < 0.01


@pytest.mark.parametrize(
    ("low", "high", "name", "saturated", "words"),
    [
        (0.0, 255.0, "raw-pixels", 2.1 / 4.7, "raw pixels calibrate"),
        (0.0, 1 / 255, "scaled-twice", 1 - 1 / 255 / 4.7, "the calibration data were scaled twice"),
    ],
    ids=["raw pixels", "divided by 255 twice"],
)
def test_another_normalisation_is_refused_with_the_numbers(
    tmp_path: Path, any_frontend: str, low: float, high: float, name: str, saturated: float, words: str
) -> None:
    calibration, verification = uniform(30, low, high, seed=1), uniform(20, *REAL, seed=2)
    error = refused(tmp_path, calibration, verification, any_frontend)
    assert error.details["finding"] == name and words in error.message
    numbers = error.details["numbers"]
    assert numbers["calibration"] == pytest.approx([calibration.min(), calibration.max()])
    assert numbers["verification"] == pytest.approx([verification.min(), verification.max()])
    outside = np.mean((verification < calibration.min()) | (verification > calibration.max()))
    assert numbers["saturated_share"] == pytest.approx(outside, abs=0.01)
    assert outside == pytest.approx(saturated, abs=0.03)
    assert f"{numbers['saturated_share']:.1%} of the verification values" in error.message
    for edge in (*numbers["calibration"], *numbers["verification"]):
        assert f"{edge:.4g}" in error.message


def test_mean_and_deviation_twice_are_named(tmp_path: Path, any_frontend: str) -> None:
    """Nothing saturates, and two of eight bits are lost: said, with the name of the mistake, and the gates judge the rest."""
    calibration = (uniform(30, *REAL, seed=1) - np.float32(0.449)) / np.float32(0.226)
    bundle = converted(tmp_path, calibration, uniform(20, *REAL, seed=2), any_frontend)
    found = {f["name"]: f for f in bundle.manifest["health"]["findings"]}["normalised-twice"]
    assert found["severity"] == "warn" and "the calibration data went through ImageNet's mean" in found["message"]
    assert found["numbers"]["used_share"] == pytest.approx(0.226, abs=0.01)


def test_it_does_not_matter_which_of_both_is_wrong(tmp_path: Path, any_frontend: str) -> None:
    error = refused(tmp_path, uniform(30, *REAL, seed=1), uniform(20, 0, 255, seed=2), any_frontend)
    assert error.details["finding"] == "raw-pixels" and "raw pixels verify" in error.message
