"""A model that is cut short, at many places: said as such, never a crash of the converter or of the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import networks
import pytest
from bundles import SAMPLES, Bundle

TRUNCATED = ("model_truncated", "model_corrupt", "not_a_model")


@pytest.mark.parametrize("share", [0.02, 0.5, 0.999])
def test_onnx(place: Any, share: float) -> None:
    content = (SAMPLES / "fashion_relu6.onnx").read_bytes()
    (place.folder / "net.onnx").write_bytes(content[: int(share * len(content))])
    place.npz(image=networks.normal(4, 1, 28, 28))
    said = place.refused("convert", "net.onnx", "--data", "d.npz", "--out", "b", exit_code=2, code="model_truncated")
    assert "cut short" in said and "more" in said and "copy or download the file again" in said


def test_what_was_missing_behind_the_graph(place: Any) -> None:
    """The last bytes are the opset: a file without them still parses."""
    content = (SAMPLES / "fashion_relu6.onnx").read_bytes()
    assert content.endswith(b"B\x02\x10\x11")  # opset_import, 2 bytes: version 17
    (place.folder / "net.onnx").write_bytes(content[:-4])
    place.npz(image=networks.normal(4, 1, 28, 28))
    said = place.refused("convert", "net.onnx", "--data", "d.npz", "--out", "b", exit_code=2, code="model_truncated")
    assert "names no opset, so the part behind its graph is missing" in said


@pytest.mark.parametrize("share", [0.001, 0.3, 0.9, 0.999])
def test_tflite(place: Any, fashion: Callable[[str], Bundle], any_frontend: str, share: float) -> None:
    content = fashion(any_frontend).delivered.read_bytes()
    (place.folder / "model.tflite").write_bytes(content[: int(share * len(content))])
    said = place.run("inspect", "model.tflite", "--json")
    assert said.exit_code == 2 and said.error["code"] in TRUNCATED, said
    assert "model.tflite" in said.error["message"] and said.error["hint"]
