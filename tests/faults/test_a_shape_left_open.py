"""An input whose sizes the export left open: the answer can be pasted behind the call, and then it works."""

from __future__ import annotations

import shlex
from typing import Any

import networks
import numpy as np
import pytest
from PIL import Image

LINE = ("convert", "net.onnx", "--data", "d.npz", "--out", "b")


def pasted(said: str) -> list[str]:
    """What a user copies from the hint."""
    options = said[said.index("--input-shape") :]
    return shlex.split(options)


@pytest.mark.parametrize(
    ("shape", "typed"),
    [
        (("N", 3, 224, 224), "x=1x3x224x224"),
        (("batch", 3, "height", "width"), "x=1x3x32x48"),
        ((None, 3, None, None), "x=1x3x32x48"),
    ],
    ids=["batch", "named sizes", "sizes without a name"],
)
def test_it_says_what_to_type(place: Any, any_frontend: str, shape: Any, typed: str) -> None:
    networks.save(networks.small_classifier(shape=shape), place.folder / "net.onnx")
    size = (224, 224) if 224 in shape else (32, 48)
    place.npz(x=networks.normal(4, 3, *size))
    said = place.refused(*LINE, exit_code=2, code="input_shape_open")
    assert "leaves the shape of its input open: x is" in said and pasted(said) == ["--input-shape", typed]
    again = place.run(*LINE, *pasted(said), "--dry-run", "--json")
    assert again.exit_code == 0, again
    fixed = again.document["plan"]["inputs"][0]["source_shape"]
    assert fixed == [int(part) for part in typed.partition("=")[2].split("x")]


def test_the_size_of_pictures_comes_from_the_preprocessing(place: Any, any_frontend: str) -> None:
    networks.save(networks.small_classifier(shape=("N", 3, "H", "W")), place.folder / "net.onnx")
    (place.folder / "photos").mkdir()
    for value in range(4):
        Image.new("RGB", (50, 40), (value, 0, 0)).save(place.folder / "photos" / f"{value}.png")
    line = ("convert", "net.onnx", "--data", "photos", "--mean", "0", "--std", "1", "--out", "b")
    said = place.refused(*line, "--crop", "32x24", exit_code=2, code="input_shape_open")
    assert pasted(said) == ["--input-shape", "x=1x3x32x24"]
    assert place.run(*line, "--crop", "32x24", *pasted(said), "--dry-run").exit_code == 0
    unknown = place.refused(*line, exit_code=2, code="input_shape_open")
    assert "--input-shape" in unknown and "1x3x" in unknown  # the rest is the user's to say


@pytest.mark.parametrize(
    ("option", "said", "code"),
    [
        ("x=1x4x32x48", "axis 1 is 3, not 4", "input_shape_invalid"),
        ("x=1x3x32", "it has 4 axes, not 3", "input_shape_invalid"),
        ("X=1x3x32x48", "the model has no input 'X' -> did you mean", "input_unknown"),
        ("x=1,3,32,48", "is not name=SHAPE", "usage"),
    ],
)
def test_shapes_that_do_not_fit(place: Any, option: str, said: str, code: str) -> None:
    networks.save(networks.small_classifier(shape=("N", 3, "H", "W")), place.folder / "net.onnx")
    place.npz(x=networks.normal(4, 3, 32, 48))
    assert said in place.refused(*LINE, "--input-shape", option, exit_code=2, code=code)


def test_a_whole_conversion_with_the_shape_given(place: Any, any_frontend: str) -> None:
    networks.save(networks.small_classifier(shape=("N", 3, "H", "W")), place.folder / "net.onnx")
    data = networks.normal(60, 3, 32, 48)
    place.npz(x=data)
    said = place.run(*LINE, "--input-shape", "x=1x3x32x48", "--frontend", any_frontend, "--allow-undecided", "--json")
    assert said.exit_code == 0, said
    interpreter = networks.Interpreter(place.folder / "b" / "float.tflite")
    assert interpreter.inputs[0]["shape"].tolist() == [1, 32, 48, 3]
    got = interpreter.run(data[:1].transpose(0, 2, 3, 1).copy())[0]
    expected = networks.run_onnx(place.folder / "net.onnx", {"x": data[:1]})["y"]
    np.testing.assert_allclose(got, expected, atol=1e-4)
