"""Islands closed: each operator computes in integers afterwards, and what it computes is what float computes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import TinyTflite

from edgekit.calibrate.ranges import Ranges
from edgekit.intake import tflite
from edgekit.quantize import close_islands as close_module
from edgekit.quantize.audit import audit
from edgekit.quantize.close_islands import close_islands
from edgekit.quantize.engine import closed_where_it_runs
from edgekit.quantize.groups import groups
from edgekit.runtime.backend import open_backend
from edgekit.verify.accuracy import run

X = np.random.default_rng(3).uniform(-4, 4, (1, 4, 4, 4)).astype(np.float32)
PADS = np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32)


def blocks(x: Any) -> Any:
    """Space to batch with blocks of two by two, worked out by slices."""
    return np.concatenate([x[:, i::2, j::2] for i in (0, 1) for j in (0, 1)])


def island(op: str, result: Any, more: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    """As the engine leaves it: x int8, DEQUANTIZE, the operator in float, QUANTIZE, y int8."""
    tiny = TinyTflite()
    low, high = min(float(result.min()), 0.0), max(float(result.max()), 0.0)
    scale = (high - low) / 255
    x = tiny.tensor("x", X.shape, "int8", scale=8 / 255, zero_point=0)
    before, after = tiny.tensor("x_dequant", X.shape), tiny.tensor("after", result.shape)
    words = {"f": "float32", "i": "int32"}
    constants = [
        tiny.tensor(f"more{i}", np.shape(v), words[np.asarray(v).dtype.kind], data=np.asarray(v))
        for i, v in enumerate(more)
    ]
    y = tiny.tensor("y", result.shape, "int8", scale=scale, zero_point=round(-128 - low / scale))
    tiny.operator("DEQUANTIZE", [x], [before])
    tiny.operator(op, [before, *constants], [after], **options)
    tiny.operator("QUANTIZE", [after], [y])
    return tiny.model(tiny.graph([x], [y]))


@pytest.mark.parametrize(
    ("op", "result", "more", "options"),
    [
        ("LEAKY_RELU", np.where(X > 0, X, 0.125 * X), (), {"alpha": 0.125}),
        ("PRELU", np.where(X > 0, X, 0.2 * X), (np.full((1, 1, 4), 0.2, np.float32),), {}),
        ("RELU6", np.clip(X * 1.0, 0, 6), (), {}),
        ("ABS", np.abs(X), (), {}),
        ("ELU", np.where(X > 0, X, np.expm1(X)), (), {}),
        ("PADV2", np.pad(X, PADS, constant_values=1.5), (PADS, np.float32([1.5])), {}),
        ("MINIMUM", np.minimum(X, 1.0), (np.float32(1.0),), {}),
        ("REDUCE_MAX", X.max(axis=(1, 2)), (np.int32([1, 2]),), {}),
        ("L2_NORMALIZATION", X / np.sqrt((X**2).sum(-1, keepdims=True)), (), {}),
        ("LOG_SOFTMAX", X - np.log(np.exp(X).sum(-1, keepdims=True)), (), {}),
        ("SPACE_TO_BATCH_ND", blocks(X), (np.int32([2, 2]), np.zeros((2, 2), np.int32)), {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_island_is_closed(tmp_path: Path, op: str, result: Any, more: Any, options: Any) -> None:
    path = tmp_path / "m.tflite"
    tflite.write(island(op, result, more, options), path)
    assert not audit(path).full_integer
    ranges = {"after": (min(float(result.min()), 0.0), max(float(result.max()), 0.0))}
    assert [closed.op for closed in close_islands(path, ranges)] == [op]
    assert audit(path).full_integer
    with open_backend(path, threads=1) as backend:
        got = run(backend, [X])[0]
        step = backend.outputs[0].scale
    assert np.abs(got - result).max() <= 2 * max(step, 8 / 255)


def test_what_has_no_integer_kernel_stays_float(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    tflite.write(island("SIN", np.sin(X), (), {}), path)
    assert close_islands(path, {"after": (-1.0, 1.0)}) == ()
    assert [item.op for item in audit(path).float_operators] == ["DEQUANTIZE", "SIN", "QUANTIZE"]


def test_a_fixed_scale_is_not_forced_on_values_beyond_it(tmp_path: Path) -> None:
    """The int8 kernel of LOG_SOFTMAX ends at -15.9: what goes lower stays in float and right."""
    path = tmp_path / "m.tflite"
    result = X - np.log(np.exp(X).sum(-1, keepdims=True))
    tflite.write(island("LOG_SOFTMAX", result, (), {}), path)
    assert close_islands(path, {"after": (-40.0, 0.0)}) == ()


def test_batch_to_space_gives_back_what_space_to_batch_took_apart(tmp_path: Path) -> None:
    """A chain of two closed islands moves integers only: bit for bit the input."""
    tiny = TinyTflite()
    x = tiny.tensor("x", X.shape, "int8", scale=8 / 255, zero_point=0)
    y = tiny.tensor("y", X.shape, "int8", scale=8 / 255, zero_point=0)
    before, middle, after = (
        tiny.tensor(name, shape)
        for name, shape in (("before", X.shape), ("middle", blocks(X).shape), ("after", X.shape))
    )
    two = tiny.tensor("two", [2], "int32", data=np.int32([2, 2]))
    none = tiny.tensor("none", [2, 2], "int32", data=np.zeros((2, 2), np.int32))
    tiny.operator("DEQUANTIZE", [x], [before])
    tiny.operator("SPACE_TO_BATCH_ND", [before, two, none], [middle])
    tiny.operator("BATCH_TO_SPACE_ND", [middle, two, none], [after])
    tiny.operator("QUANTIZE", [after], [y])
    path = tmp_path / "m.tflite"
    tflite.write(tiny.model(tiny.graph([x], [y])), path)
    ranges = {"middle": (-4.0, 4.0), "after": (-4.0, 4.0)}
    assert [closed.op for closed in close_islands(path, ranges)] == ["SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND"]
    assert audit(path).full_integer
    with open_backend(path, threads=1) as backend:
        given = np.arange(-32, 32, dtype=np.int8).reshape(X.shape)
        backend.set_input(0, given)
        backend.invoke()
        assert np.array_equal(backend.get_output(0), given)


def test_a_file_that_the_interpreter_refuses_keeps_its_islands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's file is the one that is delivered then, byte for byte, and what was said is kept."""
    monkeypatch.setitem(close_module.FIXED_SCALE, "L2_NORMALIZATION", (2, 1 / 64, 3))  # a scale that the kernel refuses
    path = tmp_path / "m.tflite"
    result = X / np.sqrt((X**2).sum(-1, keepdims=True))
    tflite.write(island("L2_NORMALIZATION", result, (), {}), path)
    before = path.read_bytes()
    closing = closed_where_it_runs(path, Ranges({"after": (-1.0, 1.0)}, 1, {}), timeout_s=60.0)
    assert closing.operators == () and closing.refused is not None
    assert path.read_bytes() == before


def test_the_scale_around_a_padding_with_the_lowest_integer_may_be_chosen(tmp_path: Path) -> None:
    """A constant in the middle of the range would stand for another value at another scale; the lowest is lowest at any."""
    for fill, chosen in ((float(np.finfo(np.float32).min), True), (1.5, False)):
        path = tmp_path / "m.tflite"
        result = np.pad(X, PADS, constant_values=-4.0)
        tflite.write(island("PADV2", result, (PADS, np.float32([fill])), {}), path)
        limits = 8 / 255 * -128, 8 / 255 * 127
        close_islands(path, {"after": limits})
        found = groups(tflite.read(path), {"x": limits, "after": limits})
        assert any("x" in group.names for group in found) is chosen


@pytest.mark.parametrize("integer_ends", [True, False])
@pytest.mark.parametrize("op", ["ELU", "SIN"])
def test_an_output_that_an_island_reads_too(tmp_path: Path, op: str, integer_ends: bool) -> None:
    """As the engine leaves it: the float value before the island is delivered, whatever ends were asked for."""
    tiny = TinyTflite()
    x, y = tiny.tensor("x", [1, 4], "int8", scale=0.1), tiny.tensor("y", [1, 4], "int8", scale=0.1)
    middle, after = tiny.tensor("middle", [1, 4]), tiny.tensor("after", [1, 4])
    tiny.operator("DEQUANTIZE", [x], [middle])
    tiny.operator(op, [middle], [after])
    tiny.operator("QUANTIZE", [after], [y])
    path = tmp_path / "m.tflite"
    tflite.write(tiny.model(tiny.graph([x], [middle, y])), path)
    close_islands(path, {"after": (-12.8, 12.7)}, integer_ends=integer_ends)
    ends = [item.dtype for item in audit(path).io]
    assert ends == ["int8", "int8" if integer_ends else "float32", "int8"]
    with open_backend(path, threads=1) as backend:
        backend.set_input(0, np.array([[-128, 0, 3, 127]], np.int8))
        backend.invoke()
        first = np.array(backend.get_output(0), np.float64) * (0.1 if integer_ends else 1.0)
    assert np.allclose(first, [[-12.8, 0, 0.3, 12.7]], atol=1e-5)
