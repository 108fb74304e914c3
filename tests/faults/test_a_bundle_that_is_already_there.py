"""An output folder that exists: never overwritten by accident, never anything but a bundle, and only by a finished one."""

from __future__ import annotations

import json
from typing import Any

import networks

LINE = ("convert", "net.onnx", "--data", "d.npz", "--out", "photos")


def prepared(place: Any) -> None:
    networks.save(networks.small_classifier(), place.folder / "net.onnx")
    place.npz(x=networks.normal(60, 3, 8, 8))
    (place.folder / "photos").mkdir()


def test_a_bundle(place: Any, any_frontend: str) -> None:
    prepared(place)
    manifest = {"schema": 1, "edgekit": "0.1.0", "files": {}}
    (place.folder / "photos" / "manifest.json").write_text(json.dumps(manifest))
    (place.folder / "photos" / "model.tflite").write_text("the earlier one")
    said = place.refused(*LINE, exit_code=2, code="output_exists")
    assert "photos is already there -> choose another --out, or replace it as a whole with --force" in said
    # with --force and data that turn out wrong, the earlier one stays
    place.npz(x=networks.normal(60, 8, 8, 3))
    place.refused(*LINE, "--force", exit_code=2, code="data_invalid")
    assert (place.folder / "photos" / "model.tflite").read_text() == "the earlier one"


def test_somebodys_photos(place: Any, any_frontend: str) -> None:
    prepared(place)
    (place.folder / "photos" / "holiday.jpg").write_text("precious")
    (place.folder / "photos" / "manifest.json").write_text('{"name": "album"}')
    place.refused(*LINE, exit_code=2, code="output_exists")
    said = place.refused(*LINE, "--force", exit_code=2, code="output_exists")
    assert "photos is a folder but no bundle" in said and "it is not replaced" in said
