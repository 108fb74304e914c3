"""Scales that no kernel can work with and operators that no board has, each by name."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tiny_models import TinyTflite

from edgekit.intake import tflite
from edgekit.quantize.soundness import unsound
from edgekit.quantize.uint8_ends import to_uint8
from edgekit.runtime.backend import open_backend


def doubled(path: Path, scale: float, op: str = "ADD") -> None:
    tiny = TinyTflite()
    x, y = tiny.tensor("x", [1, 4], "int8", scale=0.1), tiny.tensor("y", [1, 4], "int8", scale=scale)
    tiny.operator(op, [x, x] if op == "ADD" else [x], [y])
    tflite.write(tiny.model(tiny.graph([x], [y])), path)


@pytest.mark.parametrize(
    ("scale", "sound"),
    [
        (0.2, True),
        (1e-12, True),
        (1.2e-38, True),
        (1e-39, False),
        (0.0, False),
        (1.3e36, False),
        (np.inf, False),
        (np.nan, False),
    ],
)
def test_scales(tmp_path: Path, scale: float, sound: bool) -> None:
    """1.3e36 is what a calibrator makes of padding with the lowest float."""
    doubled(tmp_path / "m.tflite", scale)
    found = unsound(tmp_path / "m.tflite")
    assert [(item.kind, item.name) for item in found] == ([] if sound else [("scale", "y")])
    assert sound or "y has the scale" in found[0].message


@pytest.mark.parametrize(
    ("op", "said"),
    [
        ("CUSTOM:FlexErf", "Flex delegate"),
        ("CUSTOM:Mine", "a custom operator"),
        ("CUSTOM:TFLite_Detection_PostProcess", ""),
    ],
)
def test_operators_beyond_the_interpreter(tmp_path: Path, op: str, said: str) -> None:
    doubled(tmp_path / "m.tflite", 0.2, op)
    found = unsound(tmp_path / "m.tflite")
    assert [item.kind for item in found] == (["operator"] if said else [])
    assert not said or (said in found[0].message and "which writes y" in found[0].message)


def test_uint8_ends_are_the_int8_values_128_higher(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    doubled(path, 0.2)
    every = np.arange(-128, 128).reshape(-1, 4)
    before, after = [], []
    with open_backend(path, threads=1) as backend:
        for row in every:
            backend.set_input(0, row[np.newaxis].astype(np.int8))
            backend.invoke()
            before.append(np.array(backend.get_output(0)))
    to_uint8(path)
    with open_backend(path, threads=1) as backend:
        ends = [(d.name, d.dtype, d.scale, d.zero_point) for d in (*backend.inputs, *backend.outputs)]
        assert ends == [("x", "uint8", pytest.approx(0.1), 128), ("y", "uint8", pytest.approx(0.2), 128)]
        for row in every:
            backend.set_input(0, (row[np.newaxis] + 128).astype(np.uint8))
            backend.invoke()
            after.append(np.array(backend.get_output(0)))
    assert np.array_equal(np.array(after).astype(int) - 128, np.array(before).astype(int))
    assert Counter(o.name for o in tflite.graph_of(path).operators) == {"QUANTIZE": 2, "ADD": 1}
