"""A stand-alone RELU, RELU6 or RELU_N1_TO_1 becomes part of the operator that computes its input.

The int8 engine has no stand-alone RELU6, and XNNPACK takes none of the three on integers: each cuts the delegated graph in two. Fused
into the operator before, also across views (which only move values), the activation costs nothing. Where that operator has other
readers or an activation already, the form is a product with 1 that has the activation: x * 1 is x in every format.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from edgekit.intake import tflite
from edgekit.rewrite.edit import add_tensor, new_operator, text, unused_name

FUSING = frozenset(("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "ADD", "SUB", "MUL"))
"""Operators whose float and int8 kernels clamp their result in every runtime."""
VIEWS = frozenset(("RESHAPE", "TRANSPOSE", "SQUEEZE", "EXPAND_DIMS"))
"""Operators that an activation may be moved across: one value in, the same value out elsewhere."""
_ACTIVATIONS = ("RELU", "RELU6", "RELU_N1_TO_1")


def apply(model: tflite.ModelT) -> tuple[str, ...]:
    """Every stand-alone activation of those kinds on float tensors. Values stay the same, bit for bit."""
    graph = tflite.graph(model)
    operators = list(model.subgraphs[0].operators)
    changed, gone = [], set()
    for operator in graph.operators:
        if operator.name not in _ACTIVATIONS or graph.tensors[operator.inputs[0]].dtype != "float32":
            continue
        said = graph.tensors[operator.outputs[0]].name
        if _fused(model, graph, operators, operator):
            gone.add(operator.index)
            changed.append(f"{said!r}: {operator.name} is part of the operator before it")
        else:
            operators[operator.index] = _product_with_one(model, operator)
            changed.append(f"{said!r}: {operator.name} is the activation of a product with 1")
    model.subgraphs[0].operators = [item for index, item in enumerate(operators) if index not in gone]
    return tuple(changed)


def activation_number(kind: str) -> int:
    """The schema's number of a fused activation."""
    from ai_edge_litert import schema_py_generated as schema

    number: int = getattr(schema.ActivationFunctionType, kind)
    return number


def new_product(model: tflite.ModelT, inputs: list[int], output: int, activation: str) -> Any:
    """A MUL with a fused activation, for the caller to put where it belongs."""
    from ai_edge_litert import schema_py_generated as schema

    item = new_operator(model, "MUL", inputs, [output])
    item.builtinOptionsType, item.builtinOptions = schema.BuiltinOptions.MulOptions, schema.MulOptionsT()
    item.builtinOptions.fusedActivationFunction = activation_number(activation)
    return item


def constant(model: tflite.ModelT, name: str, value: float) -> int:
    """The index of a new constant scalar, under a name that nobody has yet."""
    taken = {text(tensor.name) for tensor in model.subgraphs[0].tensors}
    return add_tensor(model, unused_name(name, taken), (1,), "float32", data=np.array([value], np.float32))


def _fused(model: tflite.ModelT, graph: tflite.Graph, operators: list[Any], activation: tflite.Operator) -> bool:
    """Whether the activation went into the operator that computes its input; its own output is then written without it."""
    producers, consumers = graph.producers(), graph.consumers()
    outputs = set(graph.outputs)
    tensor, last = activation.inputs[0], None
    while True:
        if tensor in outputs or len(consumers.get(tensor, ())) != 1 or tensor not in producers:
            return False
        producer = graph.operators[producers[tensor]]
        last = producer if last is None else last
        if producer.name not in VIEWS:
            break
        tensor = producer.inputs[0]
    options = operators[producer.index].builtinOptions
    if producer.name not in FUSING or getattr(options, "fusedActivationFunction", None) != activation_number("NONE"):
        return False
    options.fusedActivationFunction = activation_number(activation.name)
    operators[last.index].outputs = list(activation.outputs)
    return True


def _product_with_one(model: tflite.ModelT, operator: tflite.Operator) -> Any:
    one = constant(model, "one", 1.0)
    return new_product(model, [operator.inputs[0], one], operator.outputs[0], operator.name)
