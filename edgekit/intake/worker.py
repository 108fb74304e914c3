"""What runs inside a front end's own interpreter: ``python -I worker.py REQUEST.json``, and further requests on standard input.

A script on its own: it must not import edgekit, which is not installed there. It reads a request, converts the private copy of the
model that the request names, and writes ``result.json`` beside the request. Everything that a converter prints goes to the log
file that the parent made its standard output.

Request: ``{"task": "onnx by onnx2tf"|..., "folder": FOLDER, "model": PATH, "out": FOLDER, "inputs": [names], "outputs": [names],
"simplify": bool}``. Result: ``{"ok": bool, "tflite": PATH, "names": {"inputs": {...}, "outputs": {...}}, "simplified": bool,
"versions": {...}, "error": {"type", "message", "trace"}}``.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any, Dict, List

VERSIONED = ("onnx2tf", "onnx", "onnxsim", "tensorflow", "tf_keras", "numpy", "ai_edge_litert")


def refuse_network() -> None:
    """Make every attempt to leave the machine fail at once: converters fetch sample images and schemas when they can."""
    import socket

    def refused(*_: Any, **__: Any) -> Any:
        raise OSError("the conversion runs offline")

    socket.getaddrinfo = refused
    socket.create_connection = refused


def answer_questions_offline(folder: Path) -> None:
    """Put the sample picture file that onnx2tf 1.x looks for before it asks the network into the working directory."""
    import numpy as np

    np.save(folder / "calibration_image_sample_data_20x128x128x3_float32.npy", np.zeros((20, 128, 128, 3), np.float32))


def versions() -> Dict[str, str]:
    """Versions of the converter's packages, as far as they are installed here."""
    from importlib import metadata

    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in VERSIONED:
        try:
            found[name] = metadata.version(name.replace("_", "-"))
        except metadata.PackageNotFoundError:
            continue
    return found


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

    out = Path(request["out"])
    onnx2tf.convert(
        input_onnx_file_path=request["model"],
        output_folder_path=str(out),
        tflite_backend="flatbuffer_direct",
        not_use_onnxsim=True,
        non_verbose=True,
    )
    written = out / (Path(request["model"]).stem + "_float32.tflite")
    return {"tflite": str(written), "names": None}


def convert_by_tensorflow(request: Dict[str, Any]) -> Dict[str, Any]:
    """onnx2tf 1.x builds the Keras model; the TFLite converter is called on it here.

    onnx2tf's own way saves a Keras SavedModel first, which takes most of its time and memory, and loses the names. A plain
    module with one frozen function is enough, and its signature keys carry the positions of inputs and outputs.
    """
    import gc

    answer_questions_offline(Path.cwd())
    out = Path(request["out"])
    names = save_frozen(request, out / "saved")
    gc.collect()  # the Keras model and its graphs: not needed beside the converter's own copies

    import tensorflow as tf

    converter = tf.lite.TFLiteConverter.from_saved_model(str(out / "saved"), signature_keys=["serving_default"])
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS, tf.lite.OpsSet.SELECT_TF_OPS]
    written = out / "float32.tflite"
    written.write_bytes(converter.convert())
    return {"tflite": str(written), "names": names}


def save_frozen(request: Dict[str, Any], folder: Path) -> Dict[str, Dict[str, str]]:
    """Build the network with onnx2tf and save it as one frozen function; which signature key is which ONNX name."""
    import onnx2tf
    import tensorflow as tf
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    keras_model = onnx2tf.convert(
        input_onnx_file_path=request["model"],
        output_folder_path=request["out"],
        not_use_onnxsim=True,
        non_verbose=True,
        disable_model_save=True,
    )
    # Zero-padded, because TensorFlow flattens dictionaries in the order of their keys.
    input_keys = [f"input_{i:04d}" for i in range(len(keras_model.inputs))]
    output_keys = [f"output_{i:04d}" for i in range(len(keras_model.outputs))]
    specs = [tf.TensorSpec(t.shape, t.dtype, name=k) for t, k in zip(keras_model.inputs, input_keys, strict=True)]

    def call(*tensors: Any) -> List[Any]:
        results = keras_model(list(tensors) if len(tensors) > 1 else tensors[0])
        return [tf.identity(value) for value in (results if isinstance(results, (list, tuple)) else [results])]

    # Frozen, so that nothing of Keras is saved: its own metadata is what takes a minute and a gigabyte.
    frozen = convert_variables_to_constants_v2(tf.function(call, input_signature=specs).get_concrete_function())
    keras_inputs = [t.name.split(":")[0] for t in keras_model.inputs]
    module = tf.Module()
    module.serve = tf.function(
        lambda *tensors: dict(zip(output_keys, frozen(*tensors), strict=True)), input_signature=specs
    )
    tf.saved_model.save(module, str(folder), signatures={"serving_default": module.serve.get_concrete_function()})
    return {
        "inputs": dict(zip(input_keys, match_inputs(keras_inputs, request["inputs"]), strict=True)),
        "outputs": dict(zip(output_keys, request["outputs"], strict=True)),
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


TASKS = {"onnx by onnx2tf": convert_direct, "onnx by tensorflow": convert_by_tensorflow}


def carry_out(request_path: str) -> None:
    """One request, in its own folder; ``result.json`` appears there in one step, whatever happens to the converter."""
    request = json.loads(Path(request_path).read_text())
    os.chdir(request["folder"])
    result: Dict[str, Any] = {"ok": False, "versions": {}, "simplified": False}
    try:
        result["versions"] = versions()
        if request.get("simplify"):
            result["simplified"] = simplify(Path(request["model"]))
        result.update(TASKS[request["task"]](request))
        result["ok"] = True
    except BaseException as error:
        result["error"] = {
            "type": type(error).__name__,
            "message": str(error)[:4000],
            "trace": traceback.format_exc()[-8000:],
        }
    target = Path(request_path).with_name("result.json")
    target.with_suffix(".tmp").write_text(json.dumps(result))
    os.replace(target.with_suffix(".tmp"), target)


def main(request_path: str) -> None:
    """The request on the command line, then one for each line of standard input, until it ends."""
    refuse_network()
    # Requests are read from a private copy of the descriptor: a converter that asks its user something finds an empty input.
    requests = os.fdopen(os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    carry_out(request_path)
    for line in requests:
        carry_out(line.rstrip("\n"))


if __name__ == "__main__":
    main(sys.argv[1])
