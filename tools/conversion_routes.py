"""The steps of tools/measure_conversion.py that need numpy and an interpreter, each called as a process of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def pictures(folder: str) -> list[Path]:
    """All pictures in name order."""
    return sorted(Path(folder).glob("*.jpg"))


def loaded(path: Path) -> Array:
    """EfficientNet-Lite0's input, NHWC: the 224 pixels in the middle, (x - 127) / 128."""
    from PIL import Image

    image = Image.open(path).convert("RGB")
    left, top = (image.width - 224) // 2, (image.height - 224) // 2
    pixels = np.asarray(image.crop((left, top, left + 224, top + 224)), np.float32)
    return ((pixels - 127) / 128)[np.newaxis]


def array(folder: str, count: str, out: str) -> None:
    """Calibration pictures as one array."""
    np.save(out, np.concatenate([loaded(path) for path in pictures(folder)[: int(count)]]))


def sample_file(folder: str) -> None:
    """The file that onnx2tf 1.x would otherwise fetch from the network."""
    np.save(
        Path(folder) / "calibration_image_sample_data_20x128x128x3_float32.npy", np.zeros((20, 128, 128, 3), np.float32)
    )


def glue(float_path: str, folder: str, count: str, out: str) -> None:
    """What a careful user writes with the two public packages: true minimum and maximum, static int8."""
    from ai_edge_litert.interpreter import Interpreter
    from ai_edge_litert.tools import flatbuffer_utils
    from litert_quantizer import quantizer, recipe

    content = flatbuffer_utils.read_model(float_path)
    constant = {i for i, t in enumerate(content.subgraphs[0].tensors) if content.buffers[t.buffer].data is not None}
    interpreter = Interpreter(float_path, experimental_preserve_all_tensors=True)
    interpreter.allocate_tensors()
    details = [d for d in interpreter.get_tensor_details() if d["dtype"] == np.float32 and d["index"] not in constant]
    ranges: dict[str, tuple[float, float]] = {}
    for path in pictures(folder)[: int(count)]:
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], loaded(path))
        interpreter.invoke()
        for detail in details:
            try:
                value = interpreter.get_tensor(detail["index"])
            except ValueError:
                continue
            if value.size:
                low, high = ranges.get(detail["name"], (np.inf, -np.inf))
                ranges[detail["name"]] = (min(low, float(value.min())), max(high, float(value.max())))
    engine = quantizer.Quantizer(float_path, recipe.static_wi8_ai8())
    known = {
        n: {"min": np.array([[a]], np.float32), "max": np.array([[b]], np.float32)} for n, (a, b) in ranges.items()
    }
    Path(out).write_bytes(engine.quantize(known, enable_progress_report=False).quantized_model)


def judge(model: str, folder: str, count: str, *files: str) -> None:
    """Top-1 and agreement of each int8 file against ONNX Runtime on the pictures after the first ``count``."""
    import onnxruntime

    session = onnxruntime.InferenceSession(model)
    name = session.get_inputs()[0].name
    judged = pictures(folder)[int(count) :]
    labels = np.array([int(path.name[:4]) for path in judged])
    truth = np.array([session.run(None, {name: loaded(path).transpose(0, 3, 1, 2)})[0].argmax() for path in judged])
    results = {}
    for word in files:
        key, _, path = word.partition("=")
        answers = np.array(list(answered(path, judged)))
        results[key] = {
            "float": 100.0 * float((truth == labels).mean()),
            "int8": 100.0 * float((answers == labels).mean()),
            "same": int((answers == truth).sum()),
            "count": len(labels),
            "float_operators": float_operators(path),
        }
    print(json.dumps(results))


def answered(path: str, judged: list[Path]) -> Iterator[int]:
    """The class that an int8 file gives for each picture, quantised by its own scale and zero point."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(path, num_threads=2)
    interpreter.allocate_tensors()
    given, result = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
    scale, zero = given["quantization"]
    for picture in judged:
        value = np.clip(np.rint(loaded(picture) / np.float32(scale)) + zero, -128, 127).astype(np.int8)
        interpreter.set_tensor(given["index"], value)
        interpreter.invoke()
        yield int(interpreter.get_tensor(result["index"]).argmax())


def float_operators(path: str) -> int:
    """Operators that touch a float tensor, counted in the interpreter's own list without a delegate."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(path, experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
    interpreter.allocate_tensors()
    floats = {d["index"] for d in interpreter.get_tensor_details() if d["dtype"] in (np.float32, np.float16)}
    operators = interpreter._get_ops_details()
    return sum(bool(floats & {int(i) for i in (*op["inputs"], *op["outputs"])}) for op in operators)


STEPS: dict[str, Callable[..., None]] = {"array": array, "sample-file": sample_file, "glue": glue, "judge": judge}

if __name__ == "__main__":
    STEPS[sys.argv[1]](*sys.argv[2:])
