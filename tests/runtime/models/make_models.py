"""Makes the small models of the runtime's tests, operator by operator, without a converter.

Run it where ``ai-edge-litert`` and ``flatbuffers`` are installed: ``python tests/runtime/models/make_models.py``. The same script gives
the same bytes. Operator versions are kept low, so that old interpreters run them too.

==================  ==========================================================================================================
``two_by_two``      float32: inputs ``left`` and ``right`` (1, 4); outputs ``sum`` and ``product``. Named by a signature; the graph
                    lists its outputs the other way round, and its tensors have other names.
``dense_int8``      int8 in (scale 0.5, zero point -1), int8 out (scale 1, zero point 3): y = W x + b with
                    W = [[1, 2, -1, 0], [0.5, 0, 0, 3], [-2, 0.25, 1, 1]] and b = [1, -2, 0.5]. No signature.
``lookup``          int32 indices (1, 3) into the table [[0, 10], [1, 11], [2, 12], [3, 13], [4, 14]]. An index beyond it fails.
``islands``         float32 (1, 4): add 1, reverse the order (GATHER), times 2. XNNPACK takes the first and the last.
``future``          ``islands`` with version 99 of its ADD: no interpreter has that.
``convs``           float32 (1, 32, 32, 8): four 3x3 convolutions with 8 channels: something that takes a measurable time.
==================  ==========================================================================================================
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

HERE = Path(__file__).parent
OPERATOR = schema.BuiltinOperator
OPTIONS = schema.BuiltinOptions
TYPES = {"float32": schema.TensorType.FLOAT32, "int32": schema.TensorType.INT32, "int8": schema.TensorType.INT8}


class Graph:
    """Collects tensors and operators of one model."""

    def __init__(self) -> None:
        self.model = schema.ModelT()
        self.model.version = 3
        self.model.description = "edgekit test model"
        self.model.operatorCodes = []
        self.model.buffers = [schema.BufferT()]
        self.graph = schema.SubGraphT()
        self.graph.name = "main"
        self.graph.tensors = []
        self.graph.operators = []

    def tensor(
        self,
        name: str,
        shape: list[int],
        dtype: str = "float32",
        *,
        data: Any = None,
        quant: tuple[float, int] | None = None,
    ) -> int:
        tensor = schema.TensorT()
        tensor.name, tensor.shape, tensor.type, tensor.buffer = name, shape, TYPES[dtype], 0
        tensor.quantization = schema.QuantizationParametersT()
        if quant is not None:
            tensor.quantization.scale, tensor.quantization.zeroPoint = [quant[0]], [quant[1]]
        if data is not None:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(np.asarray(data, dtype).tobytes(), np.uint8)
            self.model.buffers.append(buffer)
            tensor.buffer = len(self.model.buffers) - 1
        self.graph.tensors.append(tensor)
        return len(self.graph.tensors) - 1

    def operator(
        self, code: int, inputs: list[int], outputs: list[int], options: Any = None, kind: int = 0, version: int = 1
    ) -> None:
        entry = schema.OperatorCodeT()
        entry.builtinCode = entry.deprecatedBuiltinCode = code
        entry.version = version
        self.model.operatorCodes.append(entry)
        operator = schema.OperatorT()
        operator.opcodeIndex = len(self.model.operatorCodes) - 1
        operator.inputs, operator.outputs = inputs, outputs
        operator.builtinOptions, operator.builtinOptionsType = options, kind
        self.graph.operators.append(operator)

    def signature(self, inputs: dict[str, int], outputs: dict[str, int]) -> None:
        def maps(names: dict[str, int]) -> list[Any]:
            entries = []
            for name, index in names.items():
                entry = schema.TensorMapT()
                entry.name, entry.tensorIndex = name, index
                entries.append(entry)
            return entries

        signature = schema.SignatureDefT()
        signature.signatureKey = "serving_default"
        signature.inputs, signature.outputs = maps(inputs), maps(outputs)
        self.model.signatureDefs = [signature]

    def write(self, name: str, inputs: list[int], outputs: list[int]) -> None:
        self.graph.inputs, self.graph.outputs = inputs, outputs
        self.model.subgraphs = [self.graph]
        builder = flatbuffers.Builder(1024)
        builder.Finish(self.model.Pack(builder), b"TFL3")
        (HERE / f"{name}.tflite").write_bytes(bytes(builder.Output()))


def two_by_two() -> None:
    graph = Graph()
    a, b = graph.tensor("tensor_a", [1, 4]), graph.tensor("tensor_b", [1, 4])
    total, product = graph.tensor("tensor_c", [1, 4]), graph.tensor("tensor_d", [1, 4])
    graph.operator(OPERATOR.ADD, [a, b], [total], schema.AddOptionsT(), OPTIONS.AddOptions)
    graph.operator(OPERATOR.MUL, [a, b], [product], schema.MulOptionsT(), OPTIONS.MulOptions)
    graph.signature({"left": a, "right": b}, {"sum": total, "product": product})
    graph.write("two_by_two", [a, b], [product, total])


def dense_int8() -> None:
    graph = Graph()
    x = graph.tensor("x", [1, 4], "int8", quant=(0.5, -1))
    weights = np.array([[1, 2, -1, 0], [0.5, 0, 0, 3], [-2, 0.25, 1, 1]]) / 0.25
    w = graph.tensor("w", [3, 4], "int8", data=weights, quant=(0.25, 0))
    bias = np.array([1, -2, 0.5]) / (0.5 * 0.25)
    b = graph.tensor("b", [3], "int32", data=bias, quant=(0.5 * 0.25, 0))
    y = graph.tensor("y", [1, 3], "int8", quant=(1.0, 3))
    graph.operator(
        OPERATOR.FULLY_CONNECTED,
        [x, w, b],
        [y],
        schema.FullyConnectedOptionsT(),
        OPTIONS.FullyConnectedOptions,
        version=4,
    )
    graph.write("dense_int8", [x], [y])


def lookup() -> None:
    graph = Graph()
    ids = graph.tensor("ids", [1, 3], "int32")
    table = graph.tensor("table", [5, 2], data=[[row, row + 10] for row in range(5)])
    rows = graph.tensor("rows", [1, 3, 2])
    graph.operator(OPERATOR.GATHER, [table, ids], [rows], schema.GatherOptionsT(), OPTIONS.GatherOptions)
    graph.write("lookup", [ids], [rows])


def islands(name: str = "islands", add_version: int = 1) -> None:
    graph = Graph()
    x = graph.tensor("x", [1, 4])
    one, two = graph.tensor("one", [1, 4], data=np.ones((1, 4))), graph.tensor("two", [1, 4], data=np.full((1, 4), 2.0))
    order = graph.tensor("order", [4], "int32", data=[3, 2, 1, 0])
    added, turned, y = graph.tensor("added", [1, 4]), graph.tensor("turned", [1, 4]), graph.tensor("y", [1, 4])
    graph.operator(OPERATOR.ADD, [x, one], [added], schema.AddOptionsT(), OPTIONS.AddOptions, version=add_version)
    gather = schema.GatherOptionsT()
    gather.axis = 1
    graph.operator(OPERATOR.GATHER, [added, order], [turned], gather, OPTIONS.GatherOptions)
    graph.operator(OPERATOR.MUL, [turned, two], [y], schema.MulOptionsT(), OPTIONS.MulOptions)
    graph.write(name, [x], [y])


def convs() -> None:
    graph = Graph()
    generator = np.random.RandomState(0)
    x = before = graph.tensor("x", [1, 32, 32, 8])
    for layer in range(4):
        weights = graph.tensor(f"w{layer}", [8, 3, 3, 8], data=generator.normal(0, 0.2, (8, 3, 3, 8)))
        bias = graph.tensor(f"b{layer}", [8], data=np.zeros(8))
        after = graph.tensor(f"y{layer}", [1, 32, 32, 8])
        options = schema.Conv2DOptionsT()
        options.padding, options.strideH, options.strideW = schema.Padding.SAME, 1, 1
        options.fusedActivationFunction = schema.ActivationFunctionType.RELU
        graph.operator(OPERATOR.CONV_2D, [before, weights, bias], [after], options, OPTIONS.Conv2DOptions)
        before = after
    graph.write("convs", [x], [before])


if __name__ == "__main__":
    two_by_two()
    dense_int8()
    lookup()
    islands()
    islands("future", add_version=99)
    convs()
