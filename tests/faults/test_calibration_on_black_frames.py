"""A calibration set that never varies, from a lens cap or a placeholder: nothing can be learned from it, and that is said."""

from __future__ import annotations

from typing import Any

import networks
import numpy as np
from PIL import Image


def test_arrays(place: Any, any_frontend: str) -> None:
    networks.save(networks.small_classifier(), place.folder / "net.onnx")
    place.npz(x=np.zeros((20, 3, 8, 8), np.float32))
    line = ("convert", "net.onnx", "--data", "d.npz", "--out", "b", "--frontend", any_frontend)
    said = place.refused(*line, exit_code=2, code="data_constant")
    assert "all 10 calibration samples hold the same single value, 0, for input 'x'" in said
    assert "calibrate with real inputs" in said


def test_pictures(place: Any, any_frontend: str) -> None:
    networks.save(networks.small_classifier(), place.folder / "net.onnx")
    (place.folder / "photos").mkdir()
    for number in range(6):
        Image.new("RGB", (8, 8)).save(place.folder / "photos" / f"{number}.png")
    line = ("convert", "net.onnx", "--data", "photos", "--mean", "127", "--std", "127", "--out", "b")
    said = place.refused(*line, "--frontend", any_frontend, exit_code=2, code="data_constant")
    assert "all 3 calibration samples hold the same single value, -1, for input 'x'" in said


def test_the_same_picture_again_and_again(place: Any, any_frontend: str) -> None:
    """A camera that hangs: the picture is a real one, and all of them are."""
    networks.save(networks.small_classifier(), place.folder / "net.onnx")
    place.npz(x=np.repeat(networks.normal(1, 3, 8, 8), 20, axis=0))
    line = ("convert", "net.onnx", "--data", "d.npz", "--out", "b", "--frontend", any_frontend)
    said = place.refused(*line, exit_code=2, code="data_constant")
    assert "all 10 calibration samples are the same one" in said
