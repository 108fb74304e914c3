"""Float layers of every kind that carries weights, as models of one operator with random weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from tiny_models import TinyTflite

SAME, VALID = 0, 1
CASES: dict[str, dict[str, Any]] = {
    "conv 3x3 same": {"kind": "CONV_2D", "x": (1, 7, 6, 3), "w": (5, 3, 3, 3), "padding": SAME},
    "conv 3x2 valid, stride 2": {"kind": "CONV_2D", "x": (1, 9, 8, 3), "w": (4, 3, 2, 3), "padding": VALID, "stride": 2},
    "conv same, stride 2, even": {"kind": "CONV_2D", "x": (1, 8, 8, 2), "w": (4, 3, 3, 2), "padding": SAME, "stride": 2},
    "conv 5x5 same, stride 3": {"kind": "CONV_2D", "x": (1, 11, 7, 2), "w": (3, 5, 5, 2), "padding": SAME, "stride": 3},
    "conv dilated": {"kind": "CONV_2D", "x": (1, 9, 9, 2), "w": (3, 3, 3, 2), "padding": SAME, "dilation": 2},
    "conv 1x1": {"kind": "CONV_2D", "x": (1, 5, 4, 6), "w": (7, 1, 1, 6), "padding": VALID},
    "conv two samples": {"kind": "CONV_2D", "x": (2, 5, 5, 3), "w": (4, 3, 3, 3), "padding": SAME},
    "grouped": {"kind": "CONV_2D", "x": (1, 6, 6, 6), "w": (4, 3, 3, 3), "padding": SAME},
    "depthwise": {"kind": "DEPTHWISE_CONV_2D", "x": (1, 7, 7, 4), "w": (1, 3, 3, 4), "padding": SAME, "stride": 2},
    "depthwise, two for one": {"kind": "DEPTHWISE_CONV_2D", "x": (1, 6, 6, 3), "w": (1, 3, 3, 6), "padding": VALID},
    "dense": {"kind": "FULLY_CONNECTED", "x": (3, 8), "w": (5, 8)},
}  # fmt: skip


def model(case: dict[str, Any], *, seed: int = 0) -> Any:
    """``x`` through one layer to ``y``."""
    random = np.random.default_rng(seed)
    tiny, x_shape, w_shape = TinyTflite(), case["x"], case["w"]
    channels = w_shape[-1] if case["kind"] == "DEPTHWISE_CONV_2D" else w_shape[0]
    x = tiny.tensor("x", x_shape)
    w = tiny.tensor("w", w_shape, data=random.normal(0, 1, w_shape).astype(np.float32))
    b = tiny.tensor("b", (channels,), data=random.normal(0, 1, channels).astype(np.float32))
    if case["kind"] == "FULLY_CONNECTED":
        y = tiny.tensor("y", (x_shape[0], channels))
        tiny.operator("FULLY_CONNECTED", [x, w, b], [y])
        return tiny.model(tiny.graph([x], [y]))
    stride, dilation, same = case.get("stride", 1), case.get("dilation", 1), case["padding"] == SAME
    reach = [(w_shape[1 + axis] - 1) * dilation + 1 for axis in range(2)]
    size = [-(-x_shape[1 + a] // stride) if same else (x_shape[1 + a] - reach[a]) // stride + 1 for a in range(2)]
    y = tiny.tensor("y", (x_shape[0], *size, channels))
    options = {"strideH": stride, "strideW": stride, "dilationHFactor": dilation, "dilationWFactor": dilation}
    if case["kind"] == "DEPTHWISE_CONV_2D":
        options["depthMultiplier"] = channels // x_shape[3]
    tiny.operator(case["kind"], [x, w, b], [y], padding=case["padding"], **options)
    return tiny.model(tiny.graph([x], [y]))
