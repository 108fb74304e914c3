"""The island report: each float operator by name, with its layer of the source, a reason and a fix; borders are none."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_models import TinyTflite

from edgekit.intake import tflite
from edgekit.quantize.islands import islands


def network(path: Path, op: str, *, more: bool) -> None:
    """x int8, DEQUANTIZE, ``op``, QUANTIZE and, with ``more``, an integer operator before the output."""
    tiny = TinyTflite()
    x = tiny.tensor("x", [1, 4], "int8", scale=0.1)
    before, after = tiny.tensor("before", [1, 4]), tiny.tensor("s_dequant", [1, 4])
    y, z = tiny.tensor("y", [1, 4], "int8", scale=0.1), tiny.tensor("z", [1, 4], "int8", scale=0.1)
    tiny.operator("DEQUANTIZE", [x], [before])
    tiny.operator(op, [before], [after])
    tiny.operator("QUANTIZE", [after], [y])
    if more:
        tiny.operator("ADD", [y, y], [z])
    tflite.write(tiny.model(tiny.graph([x], [z if more else y])), path)


@pytest.mark.parametrize(
    ("op", "reason", "fix"),
    [
        ("SIN", "have an int8 form of SIN", "polynomial"),
        ("CUSTOM:Mine", "a custom operator", "standard ones"),
        ("CUSTOM:FlexErf", "needs the Flex delegate", "standard ones"),
        ("ELU", "there is an int8 kernel for ELU, but", "docs/int8_gaps.md"),
    ],
)
def test_reason_and_fix_are_those_of_the_operator(tmp_path: Path, op: str, reason: str, fix: str) -> None:
    network(tmp_path / "m.tflite", op, more=True)
    (found,) = islands(tmp_path / "m.tflite", {"s": "/net/layer"})
    assert (found.index, found.op, found.tensor, found.layer) == (
        1,
        op,
        "s_dequant",
        "/net/layer",
    )
    assert reason in found.reason and fix in found.fix and "end the export" not in found.fix


def test_at_the_end_the_export_may_end_earlier(tmp_path: Path) -> None:
    network(tmp_path / "m.tflite", "SIN", more=False)
    (found,) = islands(tmp_path / "m.tflite", {})
    assert found.layer is None and "end the export before the tensor 's_dequant'" in found.fix


def test_an_integer_file_has_none(tmp_path: Path) -> None:
    tiny = TinyTflite()
    x, y = tiny.tensor("x", [1, 4], "int8", scale=0.1), tiny.tensor("y", [1, 4], "int8", scale=0.1)
    tiny.operator("ADD", [x, x], [y])
    tflite.write(tiny.model(tiny.graph([x], [y])), tmp_path / "m.tflite")
    assert islands(tmp_path / "m.tflite", {}) == ()
