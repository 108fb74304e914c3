"""Operators that ONNX itself defines by simpler ones (Attention, RMSNormalization, ...) are replaced by their definition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgekit.intake.digest.graph import attributes, opset
from edgekit.intake.onnx_reader import infer_shapes

if TYPE_CHECKING:
    import onnx

_KEPT = (
    "Celu", "Clip", "Elu", "Gelu", "HardSigmoid", "HardSwish", "LayerNormalization", "LeakyRelu", "LogSoftmax", "Mish",
    "PRelu", "Range", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare", "Relu", "Selu", "Shrink",
    "Sign", "Softmax", "Softplus", "Softsign", "ThresholdedRelu",
)  # fmt: skip
"""Operators with a definition that converters know as they are; spelled out they would be slower."""


_DOMAIN = "edgekit.spelled_out"


def _name_functions_with_gaps(model: onnx.ModelProto, kept: set[str]) -> None:
    """Calls that leave out an input in the middle become calls of functions of the model: onnx's inliner stops at the gap otherwise."""
    import onnx
    from onnx import defs, helper

    calls = [node for node in model.graph.node if "" in node.input and node.domain in ("", "ai.onnx")]
    calls = [node for node in calls if node.op_type not in kept]
    if not calls:
        return
    version = opset(model)
    types = _types(model)
    for number, node in enumerate(calls):
        schema: Any = defs.get_schema(node.op_type, version, "")  # its stubs lack the functions
        if not schema.has_context_dependent_function:
            continue
        given = [types.get(name, onnx.TypeProto()).SerializeToString() for name in node.input]
        function = onnx.FunctionProto()
        function.ParseFromString(schema.get_context_dependent_function(node.SerializeToString(), given))
        function.name, function.domain = f"{node.op_type}_{number}", _DOMAIN
        model.functions.append(function)
        node.op_type, node.domain = function.name, _DOMAIN
        del node.attribute[:]  # the body holds them already
    if any(node.domain == _DOMAIN for node in calls):
        model.opset_import.append(helper.make_opsetid(_DOMAIN, 1))


def _types(model: onnx.ModelProto) -> dict[str, onnx.TypeProto]:
    from onnx import helper

    graph = infer_shapes(model).graph
    found = {info.name: info.type for info in (*graph.input, *graph.value_info, *graph.output)}
    for tensor in graph.initializer:
        found[tensor.name] = helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
    return found


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
    _name_functions_with_gaps(model, {name for _, name in kept})
    inlined = inliner.inline_selected_functions(model, kept, exclude=True, inline_schema_functions=True)
    model.CopyFrom(inlined)
    return sorted(node.op_type for node in model.graph.node) != before
