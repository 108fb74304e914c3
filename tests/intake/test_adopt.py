"""A converter's file with inputs and outputs in any order under any key becomes the source's, by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fake_frontends
import networks
import numpy as np
import pytest

from edgekit.errors import ConversionError
from edgekit.intake import tflite
from edgekit.intake.adopt import adopt
from edgekit.intake.convert import Converted

NAMES = ("zeta", "alpha", "mid")


def delivered(path: Path, names: Any = None) -> Converted:
    return Converted(path, names, {}, False, 0.0, None)


def adopted(tmp_path: Path, converted: Converted, outputs: dict[str, str]) -> networks.Interpreter:
    adopt(converted, inputs={"x": "x"}, outputs=outputs, to=tmp_path / "adopted.tflite")
    return networks.Interpreter(tmp_path / "adopted.tflite")


@pytest.mark.parametrize("reverse", [False, True])
def test_order_and_names_are_the_sources(tmp_path: Path, reverse: bool) -> None:
    path = fake_frontends.three_outputs(tmp_path / "m.tflite", reverse=reverse)
    found = adopted(tmp_path, delivered(path), {name: name for name in NAMES})
    x = np.full((1, 4), 2, np.float32)
    assert [float(value[0, 0]) for value in found.run(x)] == [3.0, 4.0, -1.0]
    assert {name: float(value[0, 0]) for name, value in found.by_name(x=x).items()} == dict(
        zip(NAMES, (3.0, 4.0, -1.0), strict=True)
    )


def test_keys_that_stand_for_names(tmp_path: Path) -> None:
    """Positions as keys, and names that were made plain before the front end saw them."""
    path = fake_frontends.three_outputs(tmp_path / "m.tflite")
    model = tflite.read(path)
    for position, entry in enumerate(model.signatureDefs[0].outputs):
        entry.name = f"output_{position:04d}"
    tflite.write(model, path)
    names = {"inputs": {}, "outputs": {"output_0000": "z_0", "output_0001": "a_0", "output_0002": "m_0"}}
    found = adopted(tmp_path, delivered(path, names), {"m:0": "m_0", "z:0": "z_0", "a:0": "a_0"})
    x = np.full((1, 4), 2, np.float32)
    assert [float(value[0, 0]) for value in found.run(x)] == [-1.0, 3.0, 4.0]
    signatures = tflite.graph(tflite.read(tmp_path / "adopted.tflite")).signatures
    assert [(signature.key, set(signature.outputs)) for signature in signatures] == [
        ("serving_default", {"m:0", "z:0", "a:0"})
    ]


def test_cleaned_names_are_found_when_they_are_unique(tmp_path: Path) -> None:
    path = fake_frontends.three_outputs(tmp_path / "m.tflite")
    model = tflite.read(path)
    for entry, name in zip(model.signatureDefs[0].outputs, ("net_zeta", "net_alpha", "net_mid"), strict=True):
        entry.name = name
    tflite.write(model, path)
    wanted = {name: f"net/{name}" for name in NAMES}
    found = adopted(tmp_path, delivered(path), wanted)
    assert [float(value[0, 0]) for value in found.run(np.full((1, 4), 2, np.float32))] == [3.0, 4.0, -1.0]


@pytest.mark.parametrize("outputs", [("zeta", "alpha"), ("zeta", "alpha", "mid", "more"), ("zeta", "alpha", "other")])
def test_other_outputs_than_the_sources(tmp_path: Path, outputs: tuple[str, ...]) -> None:
    path = fake_frontends.three_outputs(tmp_path / "m.tflite")
    with pytest.raises(ConversionError, match="does not have the source's outputs") as caught:
        adopted(tmp_path, delivered(path), {name: name for name in outputs})
    assert caught.value.code == "names_lost" and caught.value.details["converted"] == ["alpha", "mid", "zeta"]


def test_a_file_without_signature(tmp_path: Path) -> None:
    model = tflite.read(fake_frontends.three_outputs(tmp_path / "m.tflite"))
    model.signatureDefs = []
    tflite.write(model, tmp_path / "m.tflite")
    with pytest.raises(ConversionError, match="has 0 signatures where one was expected"):
        adopted(tmp_path, delivered(tmp_path / "m.tflite"), {"zeta": "zeta"})
