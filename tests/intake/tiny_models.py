"""Models of a few hundred bytes, built in the test that needs them, with every number known beforehand."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.intake.tflite_types import type_number

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


def shared(relative: str) -> Path:
    """A file of the shared data, or a skip that names it."""
    path = DATA / relative
    if not path.exists():
        pytest.skip(f"shared/data/{relative} not available")
    return path


@dataclasses.dataclass
class TinyTflite:
    """Builds a ``ModelT`` tensor by tensor, operator by operator."""

    tensors: list[Any] = dataclasses.field(default_factory=list)
    operators: list[Any] = dataclasses.field(default_factory=list)
    codes: list[Any] = dataclasses.field(default_factory=list)
    buffers: list[Any] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        from ai_edge_litert import schema_py_generated as schema

        self.schema = schema
        if not self.buffers:
            self.buffers.append(schema.BufferT())

    def tensor(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str = "float32",
        *,
        data: Any = None,
        scale: Any = None,
        zero_point: Any = 0,
        axis: int = 0,
        signature: Sequence[int] | None = None,
    ) -> int:
        """The index of a new tensor; ``data`` (array or bytes) makes it a constant, ``scale`` a quantised one."""
        item = self.schema.TensorT()
        item.name, item.shape, item.type = name, list(shape), type_number(dtype)
        item.shapeSignature = None if signature is None else list(signature)
        if data is not None:
            item.buffer = len(self.buffers)
            raw = data if isinstance(data, bytes) else np.ascontiguousarray(data).tobytes()
            buffer = self.schema.BufferT()
            buffer.data = np.frombuffer(raw, np.uint8)
            self.buffers.append(buffer)
        if scale is not None:
            item.quantization = self.schema.QuantizationParametersT()
            item.quantization.scale = np.atleast_1d(np.asarray(scale, np.float32))
            item.quantization.zeroPoint = np.resize(np.asarray(zero_point, np.int64), item.quantization.scale.size)
            item.quantization.quantizedDimension = axis
        self.tensors.append(item)
        return len(self.tensors) - 1

    def operator(self, kind: str, inputs: Sequence[int], outputs: Sequence[int], **options: Any) -> int:
        """The index of a new operator; ``options`` are fields of its options object. ``kind`` may be "CUSTOM:name"."""
        item = self.schema.OperatorT()
        item.inputs, item.outputs = list(inputs), list(outputs)
        item.opcodeIndex = self._code(kind)
        self._set_options(item, kind, options)
        self.operators.append(item)
        return len(self.operators) - 1

    def graph(self, inputs: Sequence[int], outputs: Sequence[int], name: str = "main") -> Any:
        """Takes what was added so far as one subgraph and starts an empty one."""
        part = self.schema.SubGraphT()
        part.name, part.tensors, part.operators = name, self.tensors, self.operators
        part.inputs, part.outputs = list(inputs), list(outputs)
        self.tensors, self.operators = [], []
        return part

    def model(self, *graphs: Any) -> Any:
        """The whole file as a ``ModelT``."""
        model = self.schema.ModelT()
        model.version, model.description = 3, "tiny"
        model.subgraphs, model.operatorCodes, model.buffers = list(graphs), self.codes, self.buffers
        return model

    def _code(self, kind: str) -> int:
        custom = kind.partition(":")[2]
        number = self.schema.BuiltinOperator.CUSTOM if custom else getattr(self.schema.BuiltinOperator, kind)
        for index, code in enumerate(self.codes):
            if code.builtinCode == number and (code.customCode or "") == custom:
                return index
        code = self.schema.OperatorCodeT()
        code.builtinCode, code.customCode, code.version = number, custom or None, 1
        self.codes.append(code)
        return len(self.codes) - 1

    def _set_options(self, item: Any, kind: str, options: dict[str, Any]) -> None:
        names = {name.upper(): name for name in vars(self.schema.BuiltinOptions) if not name.startswith("_")}
        wanted = {
            "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions",
            "CONV_2D": "Conv2DOptions",
            "MAX_POOL_2D": "Pool2DOptions",
            "AVERAGE_POOL_2D": "Pool2DOptions",
        }.get(kind) or names.get(kind.replace("_", "") + "OPTIONS")
        if wanted is None:
            return
        item.builtinOptionsType = getattr(self.schema.BuiltinOptions, wanted)
        item.builtinOptions = getattr(self.schema, wanted + "T")()
        for key, value in options.items():
            assert hasattr(item.builtinOptions, key), f"{wanted} has no {key}"
            setattr(item.builtinOptions, key, value)


def float_conv_tflite() -> Any:
    """Input 1x8x8x3, Conv 3x3 stride 2 SAME to 4 channels (1x4x4x4), Reshape to 1x64, FullyConnected to 1x10; a signature-free file.

    By hand: convolution 4*4*4 outputs * 3*3*3 = 1,728 MACs, fully connected 10 * 64 = 640; parameters 4*27+4 + 640+10 = 762.
    """
    tiny = TinyTflite()
    rng = np.random.default_rng(1)
    x = tiny.tensor("x", (1, 8, 8, 3))
    weights = tiny.tensor("conv/w", (4, 3, 3, 3), data=rng.normal(size=(4, 3, 3, 3)).astype(np.float32))
    bias = tiny.tensor("conv/b", (4,), data=np.zeros(4, np.float32))
    conv = tiny.tensor("conv", (1, 4, 4, 4))
    shape = tiny.tensor("flat/shape", (2,), "int32", data=np.array([1, 64], np.int32))
    flat = tiny.tensor("flat", (1, 64))
    dense_weights = tiny.tensor("dense/w", (10, 64), data=rng.normal(size=(10, 64)).astype(np.float32))
    dense_bias = tiny.tensor("dense/b", (10,), data=np.zeros(10, np.float32))
    y = tiny.tensor("y", (1, 10))
    tiny.operator(
        "CONV_2D",
        [x, weights, bias],
        [conv],
        strideH=2,
        strideW=2,
        fusedActivationFunction=1,
        dilationHFactor=1,
        dilationWFactor=1,
    )
    tiny.operator("RESHAPE", [conv, shape], [flat], newShape=[1, 64])
    tiny.operator("FULLY_CONNECTED", [flat, dense_weights, dense_bias], [y])
    return tiny.model(tiny.graph([x], [y]))


def endless_tflite() -> Any:
    """A WHILE whose condition is always true: the interpreter never comes back."""
    tiny = TinyTflite()
    x, y = tiny.tensor("x", (1,)), tiny.tensor("y", (1,))
    tiny.operator("WHILE", [x], [y], condSubgraphIndex=1, bodySubgraphIndex=2)
    main = tiny.graph([x], [y])
    value = tiny.tensor("c/x", (1,))
    truth = tiny.tensor("c/true", (1,), "bool")
    tiny.operator("EQUAL", [value, value], [truth])
    condition = tiny.graph([value], [truth], "condition")
    before, one, after = (
        tiny.tensor("b/x", (1,)),
        tiny.tensor("b/zero", (1,), data=np.zeros(1, np.float32)),
        tiny.tensor("b/y", (1,)),
    )
    tiny.operator("ADD", [before, one], [after])
    return tiny.model(main, condition, tiny.graph([before], [after], "body"))


def onnx_model(
    nodes: Sequence[Any],
    inputs: dict[str, Sequence[Any]],
    outputs: dict[str, Sequence[Any] | None],
    constants: dict[str, np.ndarray] | None = None,
    *,
    opset: int = 17,
    ir: int = 9,
    dtypes: dict[str, str] | None = None,
) -> Any:
    """A ``ModelProto`` of ``nodes``; inputs and outputs are float32 unless ``dtypes`` says otherwise."""
    import onnx
    from onnx import helper, numpy_helper

    def info(name: str, shape: Sequence[Any] | None) -> Any:
        word = (dtypes or {}).get(name, "float32")
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(word)), shape)

    graph = helper.make_graph(
        list(nodes),
        "tiny",
        [info(name, shape) for name, shape in inputs.items()],
        [info(name, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], producer_name="tiny", ir_version=ir
    )
    assert isinstance(model, onnx.ModelProto)
    return model


def conv_onnx(batch: Any = 1) -> Any:
    """Input Nx3x8x8, Conv 3x3 pad 1 to 4 channels, Relu, GlobalAveragePool, Flatten, Gemm to 10.

    By hand for N = 1: convolution 4*8*8 * 27 = 6,912 MACs, Gemm 10 * 4 = 40; parameters 4*27+4 + 40+10 = 162.
    """
    from onnx import helper

    rng = np.random.default_rng(2)
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "dw", "db"], ["y"], transB=1),
    ]
    constants = {
        "w": rng.normal(size=(4, 3, 3, 3)).astype(np.float32),
        "b": np.zeros(4, np.float32),
        "dw": rng.normal(size=(10, 4)).astype(np.float32),
        "db": np.zeros(10, np.float32),
    }
    return onnx_model(nodes, {"x": [batch, 3, 8, 8]}, {"y": [batch, 10]}, constants)


def partly_quantized_tflite() -> Any:
    """An int8 graph with two float islands: DEQUANTIZE, EXP, NEG, QUANTIZE, and after an int8 ABS a lone DEQUANTIZE, SQRT, QUANTIZE.

    The first island has a float constant side input (an ADD).
    """
    tiny = TinyTflite()

    def quantized(name: str) -> int:
        return tiny.tensor(name, (1, 4), "int8", scale=0.1)

    x, y1, y2, y3 = (quantized(name) for name in ("x", "q/neg", "q/abs", "q/sqrt"))
    floats = {name: tiny.tensor(name, (1, 4)) for name in ("d", "exp", "added", "neg", "d2", "sqrt")}
    constant = tiny.tensor("one", (1,), data=np.ones(1, np.float32))
    tiny.operator("DEQUANTIZE", [x], [floats["d"]])
    tiny.operator("EXP", [floats["d"]], [floats["exp"]])
    tiny.operator("ADD", [floats["exp"], constant], [floats["added"]])
    tiny.operator("NEG", [floats["added"]], [floats["neg"]])
    tiny.operator("QUANTIZE", [floats["neg"]], [y1])
    tiny.operator("ABS", [y1], [y2])
    tiny.operator("DEQUANTIZE", [y2], [floats["d2"]])
    tiny.operator("SQRT", [floats["d2"]], [floats["sqrt"]])
    tiny.operator("QUANTIZE", [floats["sqrt"]], [y3])
    return tiny.model(tiny.graph([x], [y3]))


def recursive_tflite() -> Any:
    """A WHILE whose body is the graph that it stands in: the interpreter overflows its stack while it prepares it."""
    tiny = TinyTflite()
    x, y = tiny.tensor("x", (1,)), tiny.tensor("y", (1,))
    tiny.operator("WHILE", [x], [y], condSubgraphIndex=1, bodySubgraphIndex=0)
    main = tiny.graph([x], [y])
    value, truth = tiny.tensor("c/x", (1,)), tiny.tensor("c/true", (1,), "bool")
    tiny.operator("EQUAL", [value, value], [truth])
    return tiny.model(main, tiny.graph([value], [truth], "condition"))
