"""An old opset is raised: converters follow the newer definitions, with axes and sizes as inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.intake.digest.graph import opset

if TYPE_CHECKING:
    import onnx

TARGET = 17
"""Old enough for every operator that converters know, and the first with LayerNormalization."""


def apply(model: onnx.ModelProto) -> bool:
    """Changes ``model``; whether it was older. Raises what onnx raises where it cannot."""
    from onnx import version_converter

    if opset(model) >= TARGET:
        return False
    model.CopyFrom(version_converter.convert_version(model, TARGET))
    return True
