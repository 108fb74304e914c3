"""``auto_pad`` of convolutions and pools becomes the pads that it stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgekit.intake.digest.graph import Graph, attributes, set_attributes

if TYPE_CHECKING:
    import onnx


def apply(model: onnx.ModelProto) -> bool:
    """Changes ``model``; whether there was such a node."""
    graph = Graph(model)
    changed = False
    for node in graph.nodes("Conv", "MaxPool", "AveragePool", "LpPool"):
        given = attributes(node)
        how = given.get("auto_pad", "NOTSET")
        pads = [0, 0] if how == "VALID" else _same(node, graph, given) if how.startswith("SAME") else None
        if pads is None:
            continue
        set_attributes(node, auto_pad=None, pads=pads if how != "VALID" else None)
        changed = True
    return changed


def _same(node: onnx.NodeProto, graph: Graph, given: dict[str, Any]) -> list[int] | None:
    """Pads that make the output ceil(input / stride) long; the odd one lies at the end for SAME_UPPER, else at the start."""
    shape = graph.shape(node.input[0])
    kernel = given.get("kernel_shape") or (graph.shape(node.input[1]) or ())[2:]
    if shape is None or not kernel:
        return None
    sizes, rank = shape[2:], len(shape) - 2
    strides, dilations = given.get("strides") or [1] * rank, given.get("dilations") or [1] * rank
    starts, ends = [], []
    for size, k, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        total = max((-(-size // stride) - 1) * stride + (k - 1) * dilation + 1 - size, 0)
        small, large = total // 2, total - total // 2
        starts.append(small if given["auto_pad"] == "SAME_UPPER" else large)
        ends.append(large if given["auto_pad"] == "SAME_UPPER" else small)
    return [*starts, *ends]
