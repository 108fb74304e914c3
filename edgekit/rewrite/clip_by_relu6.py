"""RELU_0_TO_1, the gate of a hard sigmoid, in operators that int8 kernels are quick at: clip(x, 0, 1) = relu6(6 x) / 6.

The int8 engine has no RELU_0_TO_1, and XNNPACK no integer form of it. In int8 both products cost next to nothing in accuracy: the scales
on their two sides stand in the ratio of the constant, so that integers pass through nearly unchanged.
"""

from __future__ import annotations

from edgekit.intake import tflite
from edgekit.rewrite.edit import add_tensor, text, unused_name
from edgekit.rewrite.fuse_activations import constant, new_product

ULP = 2.0**-23
"""Relative bound of the difference in float: two roundings of half a unit in the last place each."""


def apply(model: tflite.ModelT) -> tuple[str, ...]:
    """Every RELU_0_TO_1 on float tensors; values differ by at most :data:`ULP`, relatively."""
    graph = tflite.graph(model)
    operators, changed = [], []
    for operator, item in zip(graph.operators, list(model.subgraphs[0].operators), strict=True):
        source = graph.tensors[operator.inputs[0]] if operator.inputs else None
        if operator.name != "RELU_0_TO_1" or source is None or source.dtype != "float32":
            operators.append(item)
            continue
        result = graph.tensors[operator.outputs[0]]
        taken = {text(tensor.name) for tensor in model.subgraphs[0].tensors}
        between = add_tensor(model, unused_name(f"{result.name}/relu6", taken), result.shape, "float32")
        model.subgraphs[0].tensors[between].shapeSignature = model.subgraphs[0].tensors[result.index].shapeSignature
        six, sixth = constant(model, "six", 6.0), constant(model, "sixth", 1.0 / 6.0)
        operators.append(new_product(model, [source.index, six], between, "RELU6"))
        operators.append(new_product(model, [between, sixth], result.index, "NONE"))
        changed.append(f"{result.name!r}: RELU_0_TO_1 is RELU6 of six times the value, divided by six")
    model.subgraphs[0].operators = operators
    return tuple(changed)
