"""Operators that ONNX itself defines by simpler ones (Attention, RMSNormalization, ...) are replaced by their definition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.intake.digest.graph import attributes

if TYPE_CHECKING:
    import onnx

_KEPT = (
    "Celu", "Clip", "Elu", "Gelu", "HardSigmoid", "HardSwish", "LayerNormalization", "LeakyRelu", "LogSoftmax", "Mish",
    "PRelu", "Range", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare", "Relu", "Selu", "Shrink",
    "Sign", "Softmax", "Softplus", "Softsign", "ThresholdedRelu",
)  # fmt: skip
"""Operators with a definition that converters know as they are; spelled out they would be slower."""


def _often_wrong(node: onnx.NodeProto) -> bool:
    """Whether converters take the node for its common form: an Elu of another alpha, a Gelu by tanh."""
    given = attributes(node)
    kind = node.op_type
    return (kind == "Elu" and given.get("alpha", 1.0) != 1.0) or (kind == "Gelu" and given.get("approximate") == "tanh")


def apply(model: onnx.ModelProto) -> bool:
    """Changes ``model``; whether it held such an operator, or a function of its own."""
    from onnx import inliner

    before = sorted(node.op_type for node in model.graph.node)
    spelled = {node.op_type for node in model.graph.node if _often_wrong(node)}
    kept = [("", name) for name in _KEPT if name not in spelled]
    inlined = inliner.inline_selected_functions(model, kept, exclude=True, inline_schema_functions=True)
    model.CopyFrom(inlined)
    return sorted(node.op_type for node in model.graph.node) != before
