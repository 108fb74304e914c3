"""Dynamic-range files: integer weights that a float operator reads directly become float32 weights.

The runtime quantises the *activations* of such an operator anew for every input, so the file itself computes something slightly
different from the network of its weights, and something else on each set of kernels. The network of its weights is what is
calibrated and delivered; :func:`spell_out` gives the file that computes it with the interpreter's own DEQUANTIZE, to check against.
"""

from __future__ import annotations

from edgekit.intake import tflite
from edgekit.rewrite.edit import add_buffer, add_tensor, new_operator, text, unused_name
from edgekit.rewrite.fold_dequantize import float_values

_PER_CHANNEL = 5
"""The version of DEQUANTIZE that knows one scale for each channel."""
_STORED = frozenset(("int8", "uint8", "int16", "int4", "uint4", "int2"))


def weights(graph: tflite.Graph) -> tuple[tflite.Tensor, ...]:
    """The quantised constants that operators of a float graph read as weights, in order, each once."""
    readers = [operator for operator in graph.operators if operator.name != "DEQUANTIZE"]
    found = dict.fromkeys(index for operator in readers for index in operator.inputs if index >= 0)
    return tuple(
        graph.tensors[index]
        for index in found
        if graph.tensors[index].is_constant
        and graph.tensors[index].quant is not None
        and graph.tensors[index].dtype in _STORED
    )


def apply(model: tflite.ModelT) -> tuple[str, ...]:
    """The weights keep their names. Raises UnsupportedModelError for weights that cannot be read."""
    found = weights(tflite.graph(model))
    for tensor in found:
        values = float_values(model, tensor)
        item = model.subgraphs[0].tensors[tensor.index]
        item.buffer, item.type, item.quantization = add_buffer(model, values), 0, None
    kinds = sorted({tensor.dtype for tensor in found})
    return (f"{len(found)} {' and '.join(kinds)} weights are float32 weights now",) if found else ()


def spell_out(model: tflite.ModelT) -> None:
    """Puts a DEQUANTIZE operator behind each of those weights: the interpreter then computes in float what the weights say."""
    snapshot = tflite.graph(model)
    graph = model.subgraphs[0]
    taken = {text(tensor.name) for tensor in graph.tensors}
    float_operators = [graph.operators[op.index] for op in snapshot.operators if op.name != "DEQUANTIZE"]
    inserted = []
    for tensor in weights(snapshot):
        name = unused_name(f"{tensor.name}/dequantized", taken)
        taken.add(name)
        target = add_tensor(model, name, tensor.shape, "float32")
        for operator in float_operators:
            operator.inputs = [target if index == tensor.index else index for index in operator.inputs]
        inserted.append(new_operator(model, "DEQUANTIZE", [tensor.index], [target], version=_PER_CHANNEL))
    graph.operators = inserted + graph.operators
