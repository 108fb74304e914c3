"""Constants given as plain numbers (``value_float``, ``value_ints``, ...) are written as tensors: converters read only those."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.intake.digest.graph import attributes, set_attributes

if TYPE_CHECKING:
    import onnx

_TYPES = {"value_float": "float32", "value_floats": "float32", "value_int": "int64", "value_ints": "int64"}


def apply(model: onnx.ModelProto) -> bool:
    """Changes ``model``; whether there was such a constant."""
    import numpy as np
    from onnx import numpy_helper

    changed = False
    for node in model.graph.node:
        if node.op_type != "Constant":
            continue
        for name, value in attributes(node).items():
            if name in _TYPES:
                tensor = numpy_helper.from_array(np.array(value, _TYPES[name]), node.output[0])
                set_attributes(node, **{name: None, "value": tensor})
                changed = True
    return changed
