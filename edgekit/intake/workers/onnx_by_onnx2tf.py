"""Tasks of the worker: ONNX to float TFLite by onnx2tf, directly (2.x) or through TensorFlow (1.x).

Request: ``{"model": PATH, "out": FOLDER, "inputs": [names], "outputs": [names], "simplify": bool}``. Result: ``{"tflite": PATH, "names":
{"inputs": {...}, "outputs": {...}} or None, "simplified": bool}``; ``names`` maps signature keys to ONNX names, None where they are the same.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any, Dict, List


def answer_questions_offline(folder: Path) -> None:
    """Put the sample picture file that onnx2tf 1.x looks for before it asks the network into the working directory."""
    import numpy as np

    np.save(folder / "calibration_image_sample_data_20x128x128x3_float32.npy", np.zeros((20, 128, 128, 3), np.float32))


def get_ready(request: Dict[str, Any]) -> Dict[str, Any]:
    """Import what the next request needs, while the parent is busy with other things."""
    import onnx2tf  # noqa: F401
    import onnxsim  # noqa: F401

    return {}


def simplify(path: Path) -> bool:
    """Fold constants and static shapes with onnxsim, in place and once; False (file untouched) where onnxsim cannot.

    onnx2tf would call it three times, each in a process of its own, which takes longer than the conversion itself.
    """
    import onnx
    import onnxsim

    try:
        model, checked = onnxsim.simplify(onnx.load(str(path)), check_n=0)
    except Exception:
        traceback.print_exc()
        return False
    if checked:
        onnx.save(model, str(path))
    return bool(checked)


def convert_direct(request: Dict[str, Any]) -> Dict[str, Any]:
    """onnx2tf 2.x, direct flatbuffer backend: keeps ONNX names in the signature."""
    import onnx2tf

    simplified = request["simplify"] and simplify(Path(request["model"]))
    out = Path(request["out"])
    onnx2tf.convert(
        input_onnx_file_path=request["model"],
        output_folder_path=str(out),
        tflite_backend="flatbuffer_direct",
        not_use_onnxsim=True,
        non_verbose=True,
    )
    written = out / (Path(request["model"]).stem + "_float32.tflite")
    return {"tflite": str(written), "names": None, "simplified": simplified}


def convert_by_tensorflow(request: Dict[str, Any]) -> Dict[str, Any]:
    """onnx2tf 1.x builds the Keras model; the TFLite converter is called on it here.

    onnx2tf's own way saves a Keras SavedModel first, which takes most of its time and memory, and loses the names. A plain
    module with one frozen function is enough, and its signature keys carry the positions of inputs and outputs.
    """
    import gc

    import frozen

    simplified = request["simplify"] and simplify(Path(request["model"]))
    answer_questions_offline(Path.cwd())
    out = Path(request["out"])
    names = save_frozen(request, out / "saved")
    gc.collect()  # the Keras model and its graphs: not needed beside the converter's own copies

    written = out / "float32.tflite"
    frozen.to_tflite(out / "saved", written)
    return {"tflite": str(written), "names": names, "simplified": simplified}


def save_frozen(request: Dict[str, Any], folder: Path) -> Dict[str, Dict[str, str]]:
    """Build the network with onnx2tf and save it as one frozen function; which signature key is which ONNX name."""
    import frozen
    import onnx2tf
    import tensorflow as tf

    keras_model = onnx2tf.convert(
        input_onnx_file_path=request["model"],
        output_folder_path=request["out"],
        not_use_onnxsim=True,
        non_verbose=True,
        disable_model_save=True,
    )
    specs = frozen.specs([(tensor.shape, tensor.dtype) for tensor in keras_model.inputs])

    def call(*tensors: Any) -> List[Any]:
        results = keras_model(list(tensors) if len(tensors) > 1 else tensors[0])
        return [tf.identity(value) for value in (results if isinstance(results, (list, tuple)) else [results])]

    concrete = tf.function(call, input_signature=specs).get_concrete_function()
    frozen.save(concrete, specs, len(keras_model.outputs), folder)
    keras_inputs = [tensor.name.split(":")[0] for tensor in keras_model.inputs]
    return {
        "inputs": dict(
            zip(frozen.keys("input", len(specs)), match_inputs(keras_inputs, request["inputs"]), strict=True)
        ),
        "outputs": dict(zip(frozen.keys("output", len(keras_model.outputs)), request["outputs"], strict=True)),
    }


def match_inputs(keras_names: List[str], onnx_names: List[str]) -> List[str]:
    """ONNX names in the order of the Keras inputs: by name where the names survived, else by position.

    onnx2tf creates its Keras inputs in the order of the graph and cleans their names; a name that survived settles it.
    """
    cleaned = {"".join(c if c.isalnum() else "_" for c in name).strip("_"): name for name in onnx_names}
    matched = [cleaned.get("".join(c if c.isalnum() else "_" for c in name).strip("_")) for name in keras_names]
    if None in matched or len(set(matched)) != len(onnx_names):
        return list(onnx_names)
    return [name for name in matched if name is not None]
