"""O1: a feature map that is flattened for a dense layer keeps the element order of its channels-first source."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from open_cases import Front, largest_error, normal, run_bundle, sqnr_db, truth
from tiny_models import onnx_model

KERNELS = {"tall": (4, 6), "square": (3, 5), "one": (3, 8), "equal": (2, 1)}
"""Kernels on a map of 4 x 8, and with them the map that is flattened: 1x3, 2x4, 2x1, 3x8."""


def network(kernel: tuple[int, int], how: str) -> Any:
    channels = 3 if kernel == (2, 1) else 32
    height, width = 5 - kernel[0], 9 - kernel[1]
    size = channels * height * width
    flatten = {
        "flatten": helper.make_node("Flatten", ["c"], ["f"], axis=1),
        "reshape": helper.make_node("Reshape", ["c", "shape"], ["f"]),
        "reshape all": helper.make_node("Reshape", ["c", "sizes"], ["f"]),
    }[how]
    return onnx_model(
        [helper.make_node("Conv", ["x", "w"], ["c"]), flatten, helper.make_node("Gemm", ["f", "b"], ["y"])],
        {"x": [1, 3, 4, 8]},
        {"y": [1, 10]},
        {
            "w": normal(channels, 3, *kernel, seed=1),
            "b": normal(size, 10, seed=2),
            "shape": np.array([0, -1]),
            "sizes": np.array([1, size]),
        },
    )


@pytest.mark.parametrize("how", ["flatten", "reshape", "reshape all"])
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_order_of_elements(route: Front, kernel: tuple[int, int], how: str) -> None:
    model = network(kernel, how)
    samples = [{"x": normal(1, 3, 4, 8, seed=seed)} for seed in range(4)]
    made = route.imported(model, samples[:3])
    expected = truth(model, samples[3])
    assert largest_error(expected, made.run(samples[3])) < 1e-4 * float(np.abs(expected["y"]).max())


def test_open_batch_is_pinned_and_stays_the_first_axis(route: Front) -> None:
    model = network((4, 6), "flatten")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "N"
    from edgekit.errors import UsageError

    with pytest.raises(UsageError, match=r"open: x is Nx3x4x8") as caught:
        route.imported(model, [{"x": normal(1, 3, 4, 8)}])
    assert "--input-shape x=1x3x4x8" in caught.value.hint


def test_int8(route: Front) -> None:
    model = network((3, 5), "flatten")
    bundle = route.bundle(model, {"x": normal(512, 3, 4, 8, seed=7)})
    held_out = [{"x": normal(1, 3, 4, 8, seed=seed)} for seed in range(100, 116)]
    expected = np.stack([truth(model, sample)["y"] for sample in held_out])
    got = np.stack([run_bundle(bundle, sample)["y"] for sample in held_out])
    assert sqnr_db(expected, got) > 30
