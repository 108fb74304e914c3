"""An opset or file format that is newer than what is installed: both numbers are named."""

from __future__ import annotations

from typing import Any

import networks
import onnx

LINE = ("convert", "net.onnx", "--data", "d.npz", "--out", "b")


def test_opset(place: Any) -> None:
    model = networks.small_classifier()
    model.opset_import[0].version = 99
    networks.save(model, place.folder / "net.onnx")
    place.npz(x=networks.normal(4, 3, 8, 8))
    said = place.refused(*LINE, exit_code=3, code="onnx_too_new")
    assert (
        f"opset 99, but the installed onnx {onnx.__version__} knows opsets up to {onnx.defs.onnx_opset_version()}"
        in said
    )
    assert "lower opset_version" in said


def test_ir_version(place: Any) -> None:
    model = networks.small_classifier()
    model.ir_version = 99
    networks.save(model, place.folder / "net.onnx")
    place.npz(x=networks.normal(4, 3, 8, 8))
    said = place.refused(*LINE, exit_code=3, code="onnx_too_new")
    assert f"IR version 99, but the installed onnx {onnx.__version__} knows IR versions up to {onnx.IR_VERSION}" in said
