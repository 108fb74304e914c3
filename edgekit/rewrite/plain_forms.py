"""Operators that the int8 engine lacks, said by ones that it has: SQUARE, NEG and POW by 2 as MUL, SQUEEZE and EXPAND_DIMS as RESHAPE.

Value for value the same in float.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edgekit.intake import tflite
from edgekit.rewrite.edit import add_tensor, operator_code, text, unused_name


def apply(model: tflite.ModelT) -> tuple[str, ...]:
    """Every such operator on float32 of known shape. Names stay as they are."""
    graph = tflite.graph(model)
    changed = []
    for operator in graph.operators:
        if operator.name not in _FORMS or not _is_plain(model, graph, operator):
            continue
        _FORMS[operator.name](model, graph, operator)
        code = model.operatorCodes[model.subgraphs[0].operators[operator.index].opcodeIndex]
        changed.append(f"{graph.tensors[operator.outputs[0]].name!r}: {operator.name} is {_word(code)}")
    return tuple(changed)


def _is_plain(model: tflite.ModelT, graph: tflite.Graph, operator: tflite.Operator) -> bool:
    tensors = [graph.tensors[index] for index in (operator.inputs[0], operator.outputs[0])]
    if operator.name == "POW":
        exponent = tflite.constant_value(model, graph.tensors[operator.inputs[1]])
        if exponent is None or exponent.size != 1 or float(exponent.reshape(-1)[0]) != 2.0:
            return False
    return all(tensor.dtype == "float32" and not tensor.has_open_size for tensor in tensors)


def _square(model: tflite.ModelT, graph: tflite.Graph, operator: tflite.Operator) -> None:
    _become_mul(model, operator, [operator.inputs[0], operator.inputs[0]])


def _negative(model: tflite.ModelT, graph: tflite.Graph, operator: tflite.Operator) -> None:
    minus_one = _constant(model, graph, operator, "minus_one", np.array(-1.0, np.float32), "float32")
    _become_mul(model, operator, [operator.inputs[0], minus_one])


def _become_mul(model: tflite.ModelT, operator: tflite.Operator, inputs: list[int]) -> None:
    from ai_edge_litert import schema_py_generated as schema

    item = model.subgraphs[0].operators[operator.index]
    item.opcodeIndex, item.inputs = operator_code(model, "MUL"), inputs
    item.builtinOptionsType, item.builtinOptions = schema.BuiltinOptions.MulOptions, schema.MulOptionsT()


def _reshape(model: tflite.ModelT, graph: tflite.Graph, operator: tflite.Operator) -> None:
    from ai_edge_litert import schema_py_generated as schema

    shape = np.array(graph.tensors[operator.outputs[0]].shape, np.int32)
    target = _constant(model, graph, operator, "shape", shape, "int32")
    item = model.subgraphs[0].operators[operator.index]
    item.opcodeIndex, item.inputs = operator_code(model, "RESHAPE"), [operator.inputs[0], target]
    item.builtinOptionsType, item.builtinOptions = schema.BuiltinOptions.ReshapeOptions, schema.ReshapeOptionsT()
    item.builtinOptions.newShape = shape.tolist()


def _constant(
    model: tflite.ModelT, graph: tflite.Graph, operator: tflite.Operator, what: str, value: Any, dtype: str
) -> int:
    taken = {text(tensor.name) for tensor in model.subgraphs[0].tensors}
    name = unused_name(f"{graph.tensors[operator.outputs[0]].name}/{what}", taken)
    return add_tensor(model, name, value.shape, dtype, data=value)


def _word(code: Any) -> str:
    return tflite.operator_name(code)


_FORMS = {"SQUARE": _square, "POW": _square, "NEG": _negative, "SQUEEZE": _reshape, "EXPAND_DIMS": _reshape}
