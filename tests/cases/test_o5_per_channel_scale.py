"""O5: a constant of shape (C,1,1) scales the channels, whatever other axes have C elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from open_cases import Front, largest_error, normal, run_bundle, sqnr_db, truth
from tiny_models import onnx_model

SIZES = {"16x8x8": (16, 8, 8), "8x8x8": (8, 8, 8), "8x8x4": (8, 8, 4), "8x4x8": (8, 4, 8), "1x8x8": (1, 8, 8)}
SHAPES = {"(C,1,1)": lambda c: (c, 1, 1), "(1,C,1,1)": lambda c: (1, c, 1, 1)}


VARIANTS = [(op, first) for op in ("Mul", "Add", "Sub") for first in (False, True)]


def network(size: tuple[int, int, int], shape: tuple[int, ...], variants: list[tuple[str, bool]]) -> Any:
    """A 1x1 convolution, and for each variant an operation with a constant 1..C, as first or second operand, plus the input."""
    channels = max(shape)
    nodes, outputs = [helper.make_node("Conv", ["x", "w"], ["c"])], {}
    for op, constant_first in variants:
        name = f"{op}_{'gc' if constant_first else 'cg'}"
        nodes.append(helper.make_node(op, ["g", "c"] if constant_first else ["c", "g"], [f"m_{name}"]))
        nodes.append(helper.make_node("Add", [f"m_{name}", "x"], [name]))
        outputs[name] = [1, *size]
    g = np.arange(1, channels + 1, dtype=np.float32).reshape(shape)
    constants = {"w": normal(size[0], size[0], 1, 1, seed=1), "g": g}
    return onnx_model(nodes, {"x": [1, *size]}, outputs, constants)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_scales_channels(route: Front, size: tuple[int, int, int], shape: Any) -> None:
    model = network(size, shape(size[0]), VARIANTS)
    samples = [{"x": normal(1, *size, seed=seed)} for seed in range(3)]
    made = route.settled(model, samples[:2])
    assert made is None or largest_error(truth(model, samples[2]), made.run(samples[2])) < 1e-4


@pytest.mark.parametrize("axis", [2, 3])
def test_scales_rows_or_columns_where_the_author_says_so(route: Front, axis: int) -> None:
    """The same sizes with the constant along height or width: numpy's rule on ONNX axes, not a guess by size."""
    shape = [1, 1, 1, 1]
    shape[axis] = 8
    model = network((8, 8, 8), tuple(shape), VARIANTS)
    samples = [{"x": normal(1, 8, 8, 8, seed=seed)} for seed in range(3)]
    made = route.settled(model, samples[:2])
    assert made is None or largest_error(truth(model, samples[2]), made.run(samples[2])) < 1e-4


def test_int8(route: Front) -> None:
    model = network((16, 8, 8), (16, 1, 1), [("Mul", True)])
    bundle = route.bundle(model, {"x": normal(64, 16, 8, 8, seed=7)})
    held_out = [{"x": normal(1, 16, 8, 8, seed=seed)} for seed in range(100, 108)]
    expected = np.stack([truth(model, sample)["Mul_gc"] for sample in held_out])
    got = np.stack([run_bundle(bundle, sample)["Mul_gc"] for sample in held_out])
    assert sqnr_db(expected, got) > 25
