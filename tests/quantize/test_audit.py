"""The audit reads the file again: every operator, every subgraph, both ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny_models import TinyTflite, float_conv_tflite, partly_quantized_tflite

from edgekit.intake import tflite
from edgekit.quantize.audit import Audit, audit


def audited(model: Any, folder: Path) -> Audit:
    tflite.write(model, folder / "m.tflite")
    return audit(folder / "m.tflite")


def test_float_islands_are_listed_operator_by_operator(tmp_path: Path) -> None:
    found = audited(partly_quantized_tflite(), tmp_path)
    assert (found.operators_total, found.full_integer) == (9, False)
    counts = {item.op: (item.count, item.float_count) for item in found.operators}
    assert counts["ABS"] == (1, 0) and counts["DEQUANTIZE"] == (2, 2) and counts["EXP"] == (1, 1)
    by_index = {item.index: item for item in found.float_operators}
    assert sorted(by_index) == [0, 1, 2, 3, 4, 6, 7, 8]
    assert by_index[1].op == "EXP" and by_index[1].outputs == ("exp",) and "no int8 form of EXP" in by_index[1].reason
    assert "leads out of the integers" in by_index[0].reason and "leads back into" in by_index[4].reason
    assert [(end.name, end.dtype) for end in found.io] == [("x", "int8"), ("q/sqrt", "int8")]


def test_a_float_model_is_all_float(tmp_path: Path) -> None:
    found = audited(float_conv_tflite(), tmp_path)
    assert not found.full_integer and sum(item.float_count for item in found.operators) == found.operators_total == 3


def integer_model(activation: str = "int8", *, ends: str | None = None) -> Any:
    tiny = TinyTflite()
    scale = 0.1 if activation in ("int8", "uint8", "int16") else None
    x = tiny.tensor("x", (1, 4), ends or activation, scale=None if ends == "float32" else scale)
    y = tiny.tensor("y", (1, 4), ends or activation, scale=None if ends == "float32" else scale)
    if ends is None:
        tiny.operator("ABS", [x], [y])
    else:
        a, b = tiny.tensor("a", (1, 4), activation, scale=scale), tiny.tensor("b", (1, 4), activation, scale=scale)
        tiny.operator("QUANTIZE", [x], [a])
        tiny.operator("ABS", [a], [b])
        tiny.operator("DEQUANTIZE", [b], [y])
    return tiny.model(tiny.graph([x], [y]))


@pytest.mark.parametrize("activation", ["int8", "uint8", "int16", "int32", "int64"])
def test_integers_are_integers(tmp_path: Path, activation: str) -> None:
    assert audited(integer_model(activation), tmp_path).full_integer


def test_an_integer_core_between_float_ends_is_not_full_integer(tmp_path: Path) -> None:
    """o13: what "full int8" sometimes turns out to be."""
    found = audited(integer_model(ends="float32"), tmp_path)
    assert not found.full_integer and [end.dtype for end in found.io] == ["float32", "float32"]
    assert {item.op for item in found.float_operators} == {"QUANTIZE", "DEQUANTIZE"}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_every_width_of_float_is_float(tmp_path: Path, dtype: str) -> None:
    tiny = TinyTflite()
    x, y = tiny.tensor("x", (1, 4), "int8", scale=0.1), tiny.tensor("y", (1, 4), dtype)
    tiny.operator("CAST", [x], [y])
    assert not audited(tiny.model(tiny.graph([x], [y])), tmp_path).full_integer


def test_float_hides_in_a_subgraph(tmp_path: Path) -> None:
    """The main graph is integer; the body of a WHILE is not."""
    tiny = TinyTflite()
    x, y = tiny.tensor("x", (1,), "int32"), tiny.tensor("y", (1,), "int32")
    tiny.operator("WHILE", [x], [y], condSubgraphIndex=1, bodySubgraphIndex=2)
    main = tiny.graph([x], [y])
    value, truth = tiny.tensor("c", (1,), "int32"), tiny.tensor("t", (1,), "bool")
    tiny.operator("EQUAL", [value, value], [truth])
    condition = tiny.graph([value], [truth], "condition")
    before, middle, after = tiny.tensor("b", (1,), "int32"), tiny.tensor("m", (1,)), tiny.tensor("a", (1,), "int32")
    tiny.operator("CAST", [before], [middle])
    tiny.operator("CAST", [middle], [after])
    found = audited(tiny.model(main, condition, tiny.graph([before], [after], "body")), tmp_path)
    assert not found.full_integer and {item.op: item.float_count for item in found.operators} == {
        "WHILE": 0,
        "EQUAL": 0,
        "CAST": 2,
    }


def test_custom_operators_say_so(tmp_path: Path) -> None:
    tiny = TinyTflite()
    x, y = tiny.tensor("x", (1,)), tiny.tensor("y", (1,))
    tiny.operator("CUSTOM:FlexErf", [x], [y])
    [item] = audited(tiny.model(tiny.graph([x], [y])), tmp_path).float_operators
    assert "FlexErf" in item.op and "custom operator" in item.reason
