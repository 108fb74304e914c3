"""``--keep-layout``: the delivered model takes and gives arrays as the source does; rewrites are judged again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import networks
import numpy as np
import pytest
from bundles import convert
from onnx import helper
from tiny_models import onnx_model, shared

from edgekit.calibrate.sources import DataOptions
from edgekit.errors import ParityError
from edgekit.intake import tflite
from edgekit.quantize import recipe
from edgekit.rewrite import transpose_ends
from edgekit.values import Preprocessing


def saved(folder: Path, model: Any, data: dict[str, Any]) -> tuple[Path, Path]:
    np.savez(folder / "d.npz", **data)
    return networks.save(model, folder / "net.onnx"), folder / "d.npz"


def truth(path: Path, **inputs: Any) -> list[Any]:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return list(session.run(None, inputs))


@pytest.mark.parametrize("size", [3, 8])
def test_maps_are_taken_and_given_in_the_sources_order(size: int, tmp_path: Path, any_frontend: str) -> None:
    """Also where all axes are of one size, so that nothing but the values tells."""
    network = networks.cube(size=size)
    path, data = saved(tmp_path, network, {"x": networks.normal(60, size, size, size)})
    bundle = convert(path, data, tmp_path / "m.bundle", keep_layout=True, frontend=any_frontend)
    for entry in bundle.manifest["inputs"] + bundle.manifest["outputs"]:
        assert entry["permutation"] is None and entry["shape"] == entry["source_shape"]
    x = networks.normal(1, size, size, size, seed=9)
    (expected,) = truth(path, x=x)
    floats = networks.Interpreter(bundle.path / "float.tflite")
    np.testing.assert_allclose(floats.run(x)[0], expected, rtol=1e-4, atol=1e-4)
    assert bundle.manifest["verification"]["audit"]["full_integer"]
    int8 = networks.Interpreter(bundle.delivered)
    real = networks.to_real(int8.run(networks.to_integers(x, int8.inputs[0]))[0], int8.outputs[0])
    noise = float(np.sum((real - expected) ** 2))
    assert 10 * np.log10(float(np.sum(expected**2)) / noise) > 20


def test_float_and_integer_bundles_say_what_was_turned(tmp_path: Path, any_frontend: str) -> None:
    path, data = saved(tmp_path, networks.cube(size=4), {"x": networks.normal(40, 4, 4, 4)})
    kept = convert(path, data, tmp_path / "k.bundle", keep_layout=True, recipe=recipe.load("float32"))
    plain = convert(path, data, tmp_path / "p.bundle", recipe=recipe.load("float32"))
    assert "transpose_ends" not in plain.manifest["rewrites"]
    turned = [entry for entry in plain.manifest["inputs"] + plain.manifest["outputs"] if entry["permutation"]]
    assert len(kept.manifest["rewrites"].get("transpose_ends", [])) == len(turned) > 0
    assert "source's order of axes" in (kept.path / "report.html").read_text().replace("&#39;", "'")
    assert "rewrite" in kept.stages


def test_a_wrong_rewrite_is_never_delivered(tmp_path: Path, any_frontend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path, data = saved(tmp_path, networks.cube(size=4), {"x": networks.normal(40, 4, 4, 4)})
    right = transpose_ends._transpose

    def wrong(model: Any, source: int, target: int, order: Any) -> Any:
        return right(model, source, target, (0, 1, 3, 2))

    monkeypatch.setattr(transpose_ends, "_transpose", wrong)
    with pytest.raises(ParityError, match="does not equal the source"):
        convert(path, data, tmp_path / "m.bundle", keep_layout=True)
    assert not (tmp_path / "m.bundle").exists()


def pooled(kind: str) -> Any:
    """A convolution, an activation, a max-pool padded by one all around, a convolution."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4),
        helper.make_node(kind, ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
        helper.make_node("Conv", ["p", "v"], ["y"], pads=[1] * 4),
    ]
    weights = {"w": networks.normal(4, 3, 3, 3, seed=1), "v": networks.normal(5, 4, 3, 3, seed=3)}
    return onnx_model(nodes, {"x": [1, 3, 8, 8]}, {"y": [1, 5, 4, 4]}, weights)


def test_a_padded_max_pool_behind_a_relu_is_integer(tmp_path: Path, any_frontend: str) -> None:
    if any_frontend != "onnx2tf":
        pytest.skip("only onnx2tf writes PADV2 with the lowest float")
    path, data = saved(tmp_path, pooled("Relu"), {"x": networks.normal(60, 3, 8, 8)})
    bundle = convert(path, data, tmp_path / "m.bundle", frontend="onnx2tf")
    assert bundle.manifest["verification"]["audit"]["full_integer"], bundle.manifest["verification"]["gates"]
    kinds = [operator.name for operator in tflite.graph(tflite.read(bundle.path / "float.tflite")).operators]
    assert "PADV2" not in kinds
    assert "pad_for_max_pool" in bundle.manifest["rewrites"]
    (output,) = bundle.manifest["verification"]["int8"]["outputs"]
    assert output["sqnr_db"] > 20
    assert json.loads((bundle.path / "manifest.json").read_text())["verification"]["parity"]["passed"] is True


def test_a_real_detector_is_full_integer_in_its_own_layout(tmp_path: Path, any_frontend: str) -> None:
    """FastestDet: PADV2 with the lowest float before a max-pool, PADV2 with 0 before an average pool, NCHW at both ends."""
    if any_frontend != "onnx2tf":
        pytest.skip("only onnx2tf writes PADV2")
    size = Preprocessing(resize=(352, 352), fit="stretch", color="bgr", mean=(0.0,), std=(255.0,))
    bundle = convert(
        shared("models/FastestDet.onnx"),
        shared("imagenet500"),
        tmp_path / "m.bundle",
        keep_layout=True,
        keep_outputs=True,
        options=DataOptions(preprocessing=size),
        calibration_limit=20,
        evaluation_limit=8,
    )
    verification = bundle.manifest["verification"]
    assert verification["audit"]["full_integer"], verification["gates"]
    assert set(bundle.manifest["rewrites"]) == {
        "fuse_activations",
        "pad_with_zero",
        "pad_for_max_pool",
        "transpose_ends",
    }
    (entry,) = bundle.manifest["outputs"]
    assert entry["shape"] == [1, 85, 22, 22] and entry["dtype"] == "int8" and entry["permutation"] is None
    (parity,) = verification["parity"]["outputs"]
    assert parity["worst_slice"]["sqnr_db"] > 90
