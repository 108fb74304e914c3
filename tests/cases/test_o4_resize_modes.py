"""O4: every mode, coordinate mode and rounding mode of Resize equals ONNX; what cannot be known beforehand is refused by name."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from onnx import helper
from open_cases import Front, largest_error, normal, truth
from tiny_models import onnx_model

from edgekit.errors import ConversionError

COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric")
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
MODES = [("linear", place, "") for place in COORDINATES]
MODES += [("cubic", place, "") for place in COORDINATES]
MODES += [("nearest", place, rounding) for place, rounding in itertools.product(COORDINATES, ROUNDINGS)]

SCALES = {"grow": [1, 1, 2.5, 2.5], "double": [1, 1, 2, 2], "shrink": [1, 1, 0.6, 0.5], "mixed": [1, 1, 3, 0.75]}

KNOWN_ROWS = {  # the second row of the 5x5 picture of [[1, 5], [9, 13]], by hand
    ("linear", "half_pixel", ""): [1.8, 2.2, 3.8, 5.4, 5.8],
    ("linear", "align_corners", ""): [3, 4, 5, 6, 7],
    ("linear", "asymmetric", ""): [4.2, 5.8, 7.4, 8.2, 8.2],
    ("nearest", "asymmetric", "floor"): [1, 1, 1, 5, 5],
    ("nearest", "half_pixel", "round_prefer_floor"): [1, 1, 1, 5, 5],
    ("nearest", "half_pixel", "round_prefer_ceil"): [1, 1, 5, 5, 5],
}


def resize(mode: tuple[str, str, str], scales: list[float]) -> tuple[Any, dict[str, Any]]:
    options = {"mode": mode[0], "coordinate_transformation_mode": mode[1]}
    if mode[2]:
        options["nearest_mode"] = mode[2]
    return helper.make_node("Resize", ["c", "", "scales"], ["y"], name="bigger", **options), {
        "scales": np.float32(scales)
    }


def network(mode: tuple[str, str, str]) -> Any:
    """A 1x1 convolution to four channels, so that the layout really changes, and a resize by each of the scales."""
    nodes, constants = [helper.make_node("Conv", ["x", "w"], ["c"])], {"w": normal(4, 1, 1, 1, seed=1)}
    for name, scales in SCALES.items():
        node, made = resize(mode, scales)
        node.input[2], node.output[0], node.name = f"scales_{name}", name, name
        nodes.append(node)
        constants[f"scales_{name}"] = made["scales"]
    return onnx_model(nodes, {"x": [1, 1, 5, 8]}, dict.fromkeys(SCALES), constants)


@pytest.mark.parametrize("mode", KNOWN_ROWS, ids="-".join)
def test_known_rows(mode: tuple[str, str, str]) -> None:
    """The truth that the others are compared with is the one worked out by hand."""
    node, constants = resize(mode, [1, 1, 2.5, 2.5])
    model = onnx_model([node], {"c": [1, 1, 2, 2]}, {"y": None}, constants)
    got = truth(model, {"c": np.float32([[[[1, 5], [9, 13]]]])})["y"]
    np.testing.assert_allclose(got[0, 0, 1], KNOWN_ROWS[mode], rtol=1e-5)


@pytest.mark.parametrize("mode", MODES, ids="-".join)
def test_equal_at_every_scale(route: Front, mode: tuple[str, str, str]) -> None:
    model = network(mode)
    samples = [{"x": normal(1, 1, 5, 8, seed=seed)} for seed in range(3)]
    made = route.imported(model, samples[:2])
    assert largest_error(truth(model, samples[2]), made.run(samples[2])) < 1e-4


def test_sizes_that_are_computed_are_refused_by_name(route: Front) -> None:
    """Scales that come as an input: the message names the node and its modes."""
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], name="bigger", mode="linear")
    model = onnx_model([node], {"x": [1, 1, 4, 4], "s": [4]}, {"y": [1, 1, 8, 8]})
    sample = {"x": normal(1, 1, 4, 4), "s": np.float32([1, 1, 2, 2])}
    if route.only is None:
        pytest.skip("the front end tensorflow takes the sizes from the declared output")
    with pytest.raises(ConversionError) as caught:
        route.imported(model, [sample])
    assert caught.value.exit_code == 3 and caught.value.hint
    assert "Resize bigger" in caught.value.message and "mode" in caught.value.message
    assert "inputs s are not constant" in caught.value.message
