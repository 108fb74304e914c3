"""PADV2 with the constant 0 becomes PAD, which is the same: the int8 engine and XNNPACK take PAD and leave PADV2 alone."""

from __future__ import annotations

from edgekit.intake import tflite
from edgekit.rewrite.edit import operator_code


def apply(model: tflite.ModelT) -> tuple[str, ...]:
    """Every PADV2 of floats whose padding value is a constant zero."""
    graph = tflite.graph(model)
    changed = []
    for operator in graph.operators:
        if operator.name != "PADV2" or not graph.tensors[operator.inputs[0]].is_float:
            continue
        value = tflite.constant_value(model, graph.tensors[operator.inputs[2]])
        if value is not None and value.size == 1 and float(value.reshape(-1)[0]) == 0.0:
            make_pad(model, operator)
            changed.append(f"{graph.tensors[operator.outputs[0]].name!r}: PADV2 with 0 is PAD")
    return tuple(changed)


def make_pad(model: tflite.ModelT, operator: tflite.Operator) -> None:
    """Turns a PADV2 into a PAD, which pads with zero."""
    from ai_edge_litert import schema_py_generated as schema

    item = model.subgraphs[0].operators[operator.index]
    item.inputs = list(operator.inputs[:2])
    item.opcodeIndex = operator_code(model, "PAD", operator.version)
    item.builtinOptionsType, item.builtinOptions = schema.BuiltinOptions.PadOptions, schema.PadOptionsT()
