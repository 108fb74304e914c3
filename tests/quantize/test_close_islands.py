"""Islands closed: each operator computes in integers afterwards, and what it computes is what float computes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import TinyTflite

from edgekit.intake import tflite
from edgekit.quantize.audit import audit
from edgekit.quantize.close_islands import close_islands
from edgekit.runtime.backend import open_backend
from edgekit.verify.accuracy import run

X = np.random.default_rng(3).uniform(-4, 4, (1, 4, 4, 4)).astype(np.float32)
PADS = np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32)


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
