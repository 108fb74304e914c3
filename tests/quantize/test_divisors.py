"""Constants beside activations, and divisions: what the int8 engine stumbles over, and what an interpreter does not survive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networks
import numpy as np
import pytest
from tiny_models import TinyTflite

from edgekit.calibrate.ranges import Ranges
from edgekit.intake import tflite
from edgekit.quantize import divisors, litert
from edgekit.quantize.audit import audit

SHAPE = (1, 4, 6)


def two_operands(kind: str, second: Any, folder: Path) -> Path:
    """``y = x KIND second``, an array or, if None, a second input ``d``."""
    tiny = TinyTflite()
    x = tiny.tensor("x", SHAPE)
    if second is None:
        d = tiny.tensor("d", SHAPE)
    else:
        d = tiny.tensor("d", second.shape, data=second)
    y = tiny.tensor("y", SHAPE)
    tiny.operator(kind, [x, d], [y])
    model = tiny.model(tiny.graph([x] if second is not None else [x, d], [y]))
    model.signatureDefs = []
    path = folder / "float.tflite"
    tflite.write(model, path)
    return path


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_a_bound_of_any_rank(tmp_path: Path, rank: int) -> None:
    path = two_operands("MAXIMUM", np.full((1,) * rank, 0.5, np.float32), tmp_path)
    ranges = Ranges({"x": (-2.0, 2.0), "y": (-2.0, 2.0)}, 1, {})
    made = litert.quantize(path, ranges, work=tmp_path)
    given = np.linspace(-2, 2, 24, dtype=np.float32).reshape(SHAPE)
    step = 4 / 255
    interpreter = networks.Interpreter(made)
    (got,) = interpreter.run(networks.to_integers(given, interpreter.inputs[0]))
    assert got.dtype == np.int8
    assert np.abs(networks.to_real(got, interpreter.outputs[0]) - np.maximum(given, 0.5)).max() <= 1.5 * step


@pytest.mark.parametrize(
    ("low", "high", "unsafe"),
    [
        (-1.0, 1.0, True),
        (0.0, 3.0, True),
        (0.001, 10.0, True),
        (-10.0, -0.001, True),
        (1.0, 10.0, False),
        (-10.0, -1.0, False),
        (0.17, 10.0, False),
        (0.15, 10.0, True),
    ],
)
def test_divisors_that_reach_zero(tmp_path: Path, low: float, high: float, unsafe: bool) -> None:
    path = two_operands("DIV", None, tmp_path)
    found = divisors.reaching_zero(path, {"x": (-1.0, 1.0), "d": (low, high)}, levels=255)
    assert found == (("y",) if unsafe else ())


def test_a_constant_divisor_is_known(tmp_path: Path) -> None:
    path = two_operands("DIV", np.full((1,), 0.001, np.float32), tmp_path)
    assert divisors.reaching_zero(path, {"d": (0.0, 1.0)}, levels=255) == ()


def test_a_division_that_would_be_by_zero_stays_float_and_is_named(tmp_path: Path) -> None:
    path = two_operands("DIV", None, tmp_path)
    ranges = Ranges({"x": (-1.0, 1.0), "d": (0.001, 10.0), "y": (-1000.0, 1000.0)}, 1, {})
    made = litert.quantize(path, ranges, work=tmp_path)
    assert "DIV" in {operator.op for operator in audit(made).float_operators}
    interpreter = networks.Interpreter(made)
    lowest = [np.full(SHAPE, -128, np.int8)] * 2  # the second is zero
    interpreter.run(*lowest)
    safe = Ranges({"x": (-1.0, 1.0), "d": (1.0, 10.0), "y": (-1.0, 1.0)}, 1, {})
    assert audit(litert.quantize(path, safe, work=tmp_path)).full_integer
