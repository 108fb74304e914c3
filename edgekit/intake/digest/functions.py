"""Operators that ONNX itself defines by simpler ones (Attention, RMSNormalization, ...) are replaced by their definition."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

_KEPT = (
    "Celu", "Clip", "Elu", "Gelu", "HardSigmoid", "HardSwish", "LayerNormalization", "LeakyRelu", "LogSoftmax", "Mish",
    "PRelu", "Range", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare", "Relu", "Selu", "Shrink",
    "Sign", "Softmax", "Softplus", "Softsign", "ThresholdedRelu",
)  # fmt: skip
"""Operators with a definition that converters know as they are; spelled out they would be slower."""


def apply(model: onnx.ModelProto) -> bool:
    """Changes ``model``; whether it held such an operator, or a function of its own."""
    from onnx import inliner

    before = sorted(node.op_type for node in model.graph.node)
    kept = [("", name) for name in _KEPT]
    inlined = inliner.inline_selected_functions(model, kept, exclude=True, inline_schema_functions=True)
    model.CopyFrom(inlined)
    return sorted(node.op_type for node in model.graph.node) != before
