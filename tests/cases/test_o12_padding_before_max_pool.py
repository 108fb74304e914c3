"""O12: a max-pool padded with the lowest float, behind a convolution without an activation, costs int8 nothing."""

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


def network(offset: float) -> Any:
    """x (1,3,16,16), Conv 3x3 to 8 channels plus ``offset``, MaxPool 3x3 of stride 2, padded by 1."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1] * 4),
        helper.make_node("MaxPool", ["c"], ["y"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
    ]
    weights = {"w": networks.normal(8, 3, 3, 3, seed=1) * np.float32(0.3), "b": np.full(8, offset, np.float32)}
    return onnx_model(nodes, {"x": [1, 3, 16, 16]}, {"y": [1, 8, 8, 8]}, weights)


@pytest.mark.parametrize("offset", [0.0, -10.0], ids=["both-signs", "all-negative"])
def test_the_border_costs_nothing(tmp_path: Path, any_frontend: str, offset: float) -> None:
    np.savez(tmp_path / "data.npz", x=networks.normal(60, 3, 16, 16, seed=2))
    path = networks.save(network(offset), tmp_path / "net.onnx")
    made = convert(path, tmp_path / "data.npz", tmp_path / "out", frontend=any_frontend)
    assert made.manifest["verification"]["passed"] and made.manifest["verification"]["audit"]["full_integer"]
    samples = [{"x": networks.normal(1, 3, 16, 16, seed=100 + i)} for i in range(8)]
    expected = np.stack([truth(network(offset), sample)["y"] for sample in samples])
    got = np.stack([run_bundle(made, sample)["y"] for sample in samples])
    assert sqnr_db(expected, got) > 35.0
