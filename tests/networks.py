"""Networks of a few operators as ONNX files, each for a fault that it shows; random weights from fixed seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper
from tiny_models import onnx_model

Arrays = dict[str, NDArray[Any]]


def save(model: Any, path: Path) -> Path:
    """The model written to ``path``, which is returned."""
    onnx.save(model, str(path))
    return path


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> NDArray[np.float32]:
    """Normal random numbers, float32."""
    return np.random.default_rng(seed).normal(0, scale, shape).astype(np.float32)


def between_convolutions(node: Any, constants: Mapping[str, NDArray[Any]] | None = None) -> Any:
    """``x`` 1x3x8x8, a convolution to 4 channels, ``node`` from "c" to "r", a convolution to 5 channels ``y``."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1] * 4),
        node,
        helper.make_node("Conv", ["r", "v"], ["y"], pads=[1] * 4),
    ]
    weights = {"w": normal(4, 3, 3, 3, seed=1), "b": normal(4, seed=2), "v": normal(5, 4, 3, 3, seed=3)}
    return onnx_model(nodes, {"x": [1, 3, 8, 8]}, {"y": [1, 5, 8, 8]}, {**weights, **(constants or {})})


def small_classifier(*, shape: Sequence[int | str] = (1, 3, 8, 8), classes: int = 10) -> Any:
    """``x`` (NCHW), a convolution with ReLU, global average, a dense layer ``y``."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "d", "e"], ["y"], transB=1),
    ]
    channels = int(shape[1])
    weights = {
        "w": normal(6, channels, 3, 3, seed=1),
        "b": normal(6, seed=2),
        "d": normal(classes, 6, seed=3),
        "e": normal(classes, seed=4),
    }
    return onnx_model(nodes, {"x": list(shape)}, {"y": [shape[0], classes]}, weights)


def cube(*, size: int = 3) -> Any:
    """A convolution on ``x`` 1xNxNxN to ``y`` 1xNxNxN: every order of axes fits the shapes."""
    return onnx_model(
        [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4)],
        {"x": [1, size, size, size]},
        {"y": [1, size, size, size]},
        {"w": normal(size, size, 3, 3, seed=5)},
    )


def three_outputs() -> Any:
    """``x`` (1,4) and, declared in this order, ``zeta`` = x + 1, ``alpha`` = 2 x, ``mid`` = x - 3."""
    nodes = [
        helper.make_node("Add", ["x", "one"], ["zeta"]),
        helper.make_node("Mul", ["x", "two"], ["alpha"]),
        helper.make_node("Sub", ["x", "three"], ["mid"]),
    ]
    constants = {name: np.float32([value]) for name, value in (("one", 1), ("two", 2), ("three", 3))}
    return onnx_model(nodes, {"x": [1, 4]}, {name: [1, 4] for name in ("zeta", "alpha", "mid")}, constants)


def two_inputs() -> Any:
    """``right`` and ``left``, declared in this order and of equal shape; ``y`` = left - 3 right."""
    nodes = [helper.make_node("Mul", ["right", "k"], ["s"]), helper.make_node("Sub", ["left", "s"], ["y"])]
    return onnx_model(nodes, {"right": [1, 6], "left": [1, 6]}, {"y": [1, 6]}, {"k": np.float32([3])})


def indices_and_features() -> Any:
    """``ids:0`` int64 (1,6) into a table of 50 rows, their mean plus ``feat/x`` (1,8) as ``out/y:0``."""
    nodes = [
        helper.make_node("Gather", ["table", "ids:0"], ["g"], axis=0),
        helper.make_node("ReduceMean", ["g"], ["m"], axes=[1], keepdims=0),
        helper.make_node("Add", ["m", "feat/x"], ["out/y:0"]),
    ]
    shapes = {"ids:0": [1, 6], "feat/x": [1, 8]}
    return onnx_model(nodes, shapes, {"out/y:0": [1, 8]}, {"table": normal(50, 8, seed=6)}, dtypes={"ids:0": "int64"})


def padded_max_pool(*, shift: float = 0.0) -> Any:
    """A convolution without ReLU, ``shift`` added, and a padded max-pool: converters pad with the lowest float there is."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1] * 4),
        helper.make_node("MaxPool", ["c"], ["y"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
    ]
    constants = {"w": normal(8, 3, 3, 3, seed=7), "b": np.full(8, shift, np.float32)}
    return onnx_model(nodes, {"x": [1, 3, 16, 16]}, {"y": [1, 8, 8, 8]}, constants)


class EveryValue:
    """A model in ONNX Runtime with every intermediate value as an output, unoptimised so that none is fused away."""

    def __init__(self, path: Path) -> None:
        import onnxruntime

        model = onnx.shape_inference.infer_shapes(onnx.load(str(path)))
        known = {info.name for info in model.graph.output}
        model.graph.output.extend(info for info in model.graph.value_info if info.name not in known)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        content = model.SerializeToString()
        self._session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        self._names = [info.name for info in model.graph.output]
        inputs = {f"{node.name}_input_nhwc": node.input[0] for node in model.graph.node if node.input}
        outputs = {f"{node.name}_output_nhwc": node.output[0] for node in model.graph.node}
        self.channels_last_names = {**inputs, **outputs}
        """What the front end onnx2tf calls the transposed input or output of a node, to the ONNX value."""

    def run(self, sample: Mapping[str, NDArray[Any]]) -> Arrays:
        """Every computed value by name."""
        return dict(zip(self._names, self._session.run(self._names, dict(sample)), strict=True))


def run_onnx(path: Path, sample: Mapping[str, NDArray[Any]]) -> Arrays:
    """The model's outputs by name, as ONNX Runtime gives them."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(sample)), strict=True))


class Interpreter:
    """A .tflite file in the bare interpreter, nothing of edgekit in between."""

    def __init__(self, path: Path) -> None:
        from ai_edge_litert.interpreter import Interpreter as Bare

        self._bare = Bare(model_path=str(path), num_threads=1)
        self._bare.allocate_tensors()
        self.inputs = self._bare.get_input_details()
        self.outputs = self._bare.get_output_details()

    def run(self, *arrays: NDArray[Any]) -> list[NDArray[Any]]:
        """Outputs by position, in the file's own types."""
        for detail, array in zip(self.inputs, arrays, strict=True):
            self._bare.set_tensor(detail["index"], array)
        self._bare.invoke()
        return [self._bare.get_tensor(detail["index"]) for detail in self.outputs]

    def by_name(self, **arrays: NDArray[Any]) -> Arrays:
        """The same through the file's signature."""
        runner = self._bare.get_signature_runner()
        return dict(runner(**arrays))


def to_integers(real: NDArray[Any], detail: Mapping[str, Any]) -> NDArray[Any]:
    """By the formula: clip(round(real / scale) + zero point)."""
    scale, zero_point = detail["quantization"]
    limits = np.iinfo(detail["dtype"])
    return np.clip(np.rint(real / np.float32(scale)) + zero_point, limits.min, limits.max).astype(detail["dtype"])


def to_real(integers: NDArray[Any], detail: Mapping[str, Any]) -> NDArray[np.float32]:
    """By the formula: scale * (integer - zero point)."""
    scale, zero_point = detail["quantization"]
    return (np.float32(scale) * (integers.astype(np.float32) - zero_point)).astype(np.float32)
