"""An ONNX model without the file that holds its weights, with a part of it, or with one outside of its folder."""

from __future__ import annotations

from typing import Any

import networks
import onnx

LINE = ("convert", "net.onnx", "--data", "d.npz", "--out", "b")


def with_external_weights(place: Any, location: str = "net.weights") -> None:
    model = networks.small_classifier(classes=100)
    onnx.save(
        model,
        str(place.folder / "net.onnx"),
        save_as_external_data=True,
        location=location,
        size_threshold=0,
    )
    place.npz(x=networks.normal(20, 3, 8, 8))


def test_missing(place: Any) -> None:
    with_external_weights(place)
    (place.folder / "net.weights").unlink()
    said = place.refused(*LINE, exit_code=2, code="external_data_missing")
    assert "the values of 4 tensors lie in the file 'net.weights', which is not in" in said
    assert "copy net.weights into" in said


def test_cut_short(place: Any) -> None:
    with_external_weights(place)
    weights = place.folder / "net.weights"
    weights.write_bytes(weights.read_bytes()[:-100])
    said = place.refused(*LINE, exit_code=2, code="model_truncated")
    assert "net.weights" in said and "cut short" in said


def test_outside_of_the_models_folder(place: Any) -> None:
    with_external_weights(place)
    model = onnx.load(str(place.folder / "net.onnx"), load_external_data=False)
    for tensor in model.graph.initializer:
        tensor.external_data[0].value = "../../etc/passwd"
    onnx.save(model, str(place.folder / "net.onnx"))
    said = place.refused(*LINE, exit_code=2, code="external_data_outside")
    assert "outside of the model's folder" in said


def test_there(place: Any, any_frontend: str) -> None:
    """With its file beside it the same model is read; both stay as they are."""
    with_external_weights(place)
    before = place.state()
    assert place.run(*LINE, "--dry-run").exit_code == 0
    assert place.state() == before
