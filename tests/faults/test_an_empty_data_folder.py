"""A folder without pictures, with other files only, or with one picture that is none."""

from __future__ import annotations

from typing import Any

import networks
import pytest
from PIL import Image

LINE = ("convert", "net.onnx", "--data", "photos", "--mean", "0", "--std", "1", "--out", "b")


@pytest.fixture(autouse=True)
def model(place: Any, any_frontend: str) -> None:
    networks.save(networks.small_classifier(), place.folder / "net.onnx")
    (place.folder / "photos").mkdir()


def test_empty(place: Any) -> None:
    said = place.refused(*LINE, exit_code=2, code="data_invalid")
    assert "the folder photos holds no images: nothing at all -> edgekit reads .bmp, .jpeg" in said


def test_other_files_only(place: Any) -> None:
    (place.folder / "photos" / "video.mp4").write_text("")
    assert "holds no images: only files ending in .mp4" in place.refused(*LINE, exit_code=2, code="data_invalid")


def test_a_picture_that_is_none(place: Any) -> None:
    for name in ("a.png", "c.png"):
        Image.new("RGB", (8, 8), (10, 20, 30)).save(place.folder / "photos" / name)
    (place.folder / "photos" / "b.png").write_text("<html>not found</html>")
    assert "b.png is no image that can be read" in place.refused(*LINE, exit_code=2, code="data_invalid")


def test_a_folder_that_does_not_exist(place: Any) -> None:
    said = place.refused("convert", "net.onnx", "--data", "fotos", "--out", "b", exit_code=2, code="data_invalid")
    assert "there is no file or folder fotos" in said
