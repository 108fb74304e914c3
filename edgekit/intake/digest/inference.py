"""Dropout outside of training passes its input on; its mask is all true."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.intake.digest.graph import Graph

if TYPE_CHECKING:
    import onnx


def apply(model: onnx.ModelProto) -> bool:
    """Changes ``model``; whether there was one that is known not to train and whose mask nobody reads."""
    from onnx import helper

    graph = Graph(model)
    read = {name for node in model.graph.node for name in node.input} | {info.name for info in model.graph.output}
    changed = False
    for node in graph.nodes("Dropout"):
        training = graph.constant(node.input[2]) if len(node.input) > 2 and node.input[2] else None
        trains = len(node.input) > 2 and node.input[2] != "" and (training is None or bool(training.any()))
        if trains or (len(node.output) > 1 and node.output[1] in read):
            continue
        graph.replace(node, [helper.make_node("Identity", [node.input[0]], [node.output[0]])])
        changed = True
    return changed
