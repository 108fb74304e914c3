"""Operators that a front end could not convert and wrote as placeholders: refused by node, operator and attributes of the source.

onnx2tf writes a custom operator such as ``ONNX_ATTENTION``, or lets TensorFlow write ``FlexErf``, and reports success; no interpreter on a board
has those.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edgekit.errors import UnsupportedModelError
from edgekit.intake import tflite

_PARAMETERS = {
    **dict.fromkeys(
        ("Conv", "ConvTranspose", "InstanceNormalization", "GroupNormalization", "LayerNormalization"), (1, 2)
    ),
    **dict.fromkeys(("LSTM", "GRU", "RNN", "Resize", "Upsample"), (1, 2, 3)),
    **dict.fromkeys(("BatchNormalization", "Slice"), (1, 2, 3, 4)),
    **dict.fromkeys(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2"), (1,)),
    **dict.fromkeys(("ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare", "Squeeze", "Unsqueeze"), (1,)),
    **dict.fromkeys(("Pad", "Split", "Expand", "Reshape", "Tile", "TopK", "AffineGrid", "CenterCropPad"), (1,)),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear", "PRelu", "RMSNormalization", "Col2Im"), (1, 2)),
    "DFT": (1, 2),
    "Dropout": (1, 2),
    "OneHot": (1, 2),
}
"""Inputs of an operator that are weights, axes or sizes: converters want them constant."""
SHOWN = 3
"""Nodes that a message names; the rest is counted."""


def refuse_placeholders(float_path: Path, source_path: Path, *, frontend: str) -> None:
    """Raises UnsupportedModelError when the float model at ``float_path``, made of the ONNX file ``source_path``, holds custom operators."""
    operators = tflite.graph_of(float_path).operators
    kinds = {operator.name.partition(":")[2] for operator in operators if operator.name.startswith("CUSTOM:")}
    custom = sorted(kind for kind in kinds if kind.startswith(("ONNX_", "Flex")))
    if not custom:
        return
    nodes = _nodes(source_path, custom)
    shown = "; ".join(node["words"] for node in nodes[:SHOWN])
    more = f" and {len(nodes) - SHOWN} more" if len(nodes) > SHOWN else ""
    what = f"{shown}{more}" if nodes else f"what became {', '.join(custom)}"
    raise UnsupportedModelError(
        f"the front end {frontend} has no TFLite operators for {what}",
        hint=_hint(nodes),
        code="operator_unsupported",
        details={"frontend": frontend, "placeholders": custom, "nodes": nodes},
    )


def _nodes(path: Path, custom: list[str]) -> list[dict[str, Any]]:
    """The source's nodes of the kinds that became placeholders: name, operator, attributes, and inputs that are no constants."""
    import onnx
    from onnx import helper

    model = onnx.load(str(path))
    wanted = {name.removeprefix("ONNX_").removeprefix("Flex").lower() for name in custom}
    stored = {tensor.name for tensor in model.graph.initializer}
    stored |= {node.output[0] for node in model.graph.node if node.op_type == "Constant"}
    found = []
    for index, node in enumerate(model.graph.node):
        if node.op_type.lower() not in wanted:
            continue
        options = [str(helper.printable_attribute(item))[:80] for item in node.attribute if not item.HasField("g")]
        parameters = [
            name for place, name in enumerate(node.input) if name and place in _PARAMETERS.get(node.op_type, ())
        ]
        computed = [name for name in parameters if name not in stored]
        words = f"{node.op_type} {node.name or f'(node {index})'}" + (f" with {', '.join(options)}" if options else "")
        words += f", whose inputs {', '.join(computed)} are not constant" if computed else ""
        found.append(
            {"name": node.name, "index": index, "operator": node.op_type, "attributes": options, "words": words}
        )
    return found


def _hint(nodes: list[dict[str, Any]]) -> str:
    computed = any("not constant" in node["words"] for node in nodes)
    kinds = ", ".join(dict.fromkeys(node["operator"] for node in nodes)) or "them"
    if computed:
        return (
            f"export weights, axes and sizes as constants (initializers) rather than inputs, or write {kinds} in simpler operators, "
            "or end the model before and do that part in the app"
        )
    return f"write {kinds} in simpler operators in the export, or end the model before and do that part in the app"
