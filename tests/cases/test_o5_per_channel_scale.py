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


def network(size: tuple[int, int, int], shape: tuple[int, ...], op: str, *, constant_first: bool) -> Any:
    channels = size[0]
    operands = ["g", "c"] if constant_first else ["c", "g"]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node(op, operands, ["m"]),
        helper.make_node("Add", ["m", "x"], ["y"]),
    ]
    g = np.arange(1, channels + 1, dtype=np.float32).reshape(shape)
    constants = {"w": normal(channels, channels, 1, 1, seed=1), "g": g}
    return onnx_model(nodes, {"x": [1, *size]}, {"y": [1, *size]}, constants)


@pytest.mark.parametrize("constant_first", [False, True], ids=["x*g", "g*x"])
@pytest.mark.parametrize("op", ["Mul", "Add", "Sub"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_scales_channels(route: Front, size: tuple[int, int, int], shape: Any, op: str, constant_first: bool) -> None:
    model = network(size, shape(size[0]), op, constant_first=constant_first)
    samples = [{"x": normal(1, *size, seed=seed)} for seed in range(3)]
    made = route.imported(model, samples[:2])
    expected = truth(model, samples[2])
    assert largest_error(expected, made.run(samples[2])) < 1e-4


@pytest.mark.parametrize("axis", [2, 3])
def test_scales_rows_or_columns_where_the_author_says_so(route: Front, axis: int) -> None:
    """The same sizes with the constant along height or width: numpy's rule on ONNX axes, not a guess by size."""
    shape = [1, 1, 1, 1]
    shape[axis] = 8
    model = network((8, 8, 8), tuple(shape), "Mul", constant_first=False)
    samples = [{"x": normal(1, 8, 8, 8, seed=seed)} for seed in range(3)]
    made = route.imported(model, samples[:2])
    assert largest_error(truth(model, samples[2]), made.run(samples[2])) < 1e-4


def test_int8(route: Front) -> None:
    model = network((8, 8, 8), (8, 1, 1), "Mul", constant_first=True)
    bundle = route.bundle(model, {"x": normal(64, 8, 8, 8, seed=7)})
    held_out = [{"x": normal(1, 8, 8, 8, seed=seed)} for seed in range(100, 108)]
    expected = np.stack([truth(model, sample)["y"] for sample in held_out])
    got = np.stack([run_bundle(bundle, sample)["y"] for sample in held_out])
    assert sqnr_db(expected, got) > 25
