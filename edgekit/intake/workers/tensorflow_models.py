"""Tasks of the worker: Keras files and SavedModels described, run and converted; the model stays open between the requests.

Every request: ``{"kind": "keras" or "savedmodel", "model": PATH of a private copy, "signature": NAME or None}``. look
reads a Keras file without TensorFlow. describe gives the ends (see
:meth:`program.Program.describe`). run takes ``{"shapes": [[sizes]], "samples": NPZ, "results": NPZ, "way": WAY}``, arrays ``a0``, ``a1``, ...
in the order of inputs and outputs; WAY is "" for TensorFlow's own kernels, "float64" or "compiled" (by XLA). inside takes
the same but WAY and gives the nodes of the graph. convert takes ``{"shapes": ..., "out": FOLDER}`` and gives ``{"tflite": PATH, "names": {"inputs": {key: name},
"outputs": {key: name}}}``. Any of them may answer with a refusal instead (see ``refusal``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Tuple

from program import Program
from refusal import Refused, answers, first_line

_OPENED: Dict[Tuple[str, Any], Program] = {}
INSTEAD = {
    "Erf": "the tanh form of GELU: activation=keras.activations.gelu with approximate=True",
    "Erfc": "the tanh form of GELU: activation=keras.activations.gelu with approximate=True",
    "Conv2D": "channels-last convolutions (data_format='channels_last')",
    "MaxPool": "channels-last pooling (data_format='channels_last')",
    "TensorListReserve": "recurrent layers with a fixed number of steps and unroll=True",
    "TensorListSetItem": "recurrent layers with a fixed number of steps and unroll=True",
    "TensorListStack": "recurrent layers with a fixed number of steps and unroll=True",
    "CropAndResize": "a fixed crop and keras.layers.Resizing",
    "FFT": "the transform done in the app, before the model",
    "RFFT": "the transform done in the app, before the model",
    "STFT": "the transform done in the app, before the model",
}
"""What to use where TFLite has no kernel."""


def opened(request: Dict[str, Any]) -> Program:
    """The model of the request, loaded at its first request."""
    key = (request["model"], request.get("signature"))
    if key not in _OPENED:
        if request["kind"] == "keras":
            from keras_models import open_keras

            _OPENED[key] = open_keras(request["model"])
        else:
            from saved_models import open_saved

            _OPENED[key] = open_saved(request["model"], request.get("signature"))
    return _OPENED[key]


@answers
def look(request: Dict[str, Any]) -> Dict[str, Any]:
    """Nothing, or the refusal of what is wrong with a Keras file already before TensorFlow starts."""
    import keras_config

    path = request["model"]
    config = keras_config.of_archive(path) if path.endswith(".keras") else keras_config.of_hdf5(path)
    keras_config.require_safe(keras_config.plain(config))
    return {}


@answers
def describe(request: Dict[str, Any]) -> Dict[str, Any]:
    """Inputs and outputs in the model's own order."""
    return opened(request).describe()


@answers
def run(request: Dict[str, Any]) -> Dict[str, Any]:
    """The model on one sample, in TensorFlow's own kernels or in another way."""
    import numpy as np
    import other_ways
    import tensorflow as tf

    program = opened(request)
    function, specs = _traced(program, request)
    with np.load(request["samples"], allow_pickle=False) as arrays:
        tensors = [tf.constant(arrays[f"a{i}"], spec.dtype) for i, spec in enumerate(specs)]
    results = other_ways.run(function, tensors, request["way"]) if request.get("way") else function(*tensors)
    np.savez(request["results"], **{f"a{i}": value.numpy() for i, value in enumerate(results)})
    return {}


@answers
def inside(request: Dict[str, Any]) -> Dict[str, Any]:
    """Every value inside of the model on one sample, see ``inner_values``."""
    import inner_values
    import numpy as np
    import tensorflow as tf

    program = opened(request)
    function, specs = _traced(program, request)
    with np.load(request["samples"], allow_pickle=False) as arrays:
        tensors = [tf.constant(arrays[f"a{i}"], spec.dtype) for i, spec in enumerate(specs)]
    return {"nodes": inner_values.describe(function, tensors, request["results"])}


@answers
def convert(request: Dict[str, Any]) -> Dict[str, Any]:
    """The model as float TFLite of built-in operators."""
    import frozen

    program = opened(request)
    function, specs = _traced(program, request)
    out = Path(request["out"])
    written = out / "float32.tflite"
    frozen.save(function, specs, len(program.outputs), out / "saved")
    try:
        frozen.to_tflite(out / "saved", written)
    except frozen.NotBuiltin as error:
        raise _no_kernel(error) from error
    names = {
        "inputs": dict(zip(frozen.keys("input", len(specs)), (end.name for end in program.inputs), strict=True)),
        "outputs": dict(
            zip(frozen.keys("output", len(program.outputs)), (end.name for end in program.outputs), strict=True)
        ),
    }
    return {"tflite": str(written), "names": names}


def _traced(program: Program, request: Dict[str, Any]) -> Tuple[Any, Any]:
    try:
        return program.traced(request["shapes"])
    except Refused:
        raise
    except Exception as error:
        words = " and ".join("x".join(map(str, shape)) for shape in request["shapes"])
        raise Refused(
            "unsupported",
            f"it cannot be computed on inputs of {words}: {first_line(error)}",
            "give other sizes with --input-shape",
            "trace_failed",
        ) from error


def _no_kernel(error: Any) -> Refused:
    named = [
        *(f"{name} (TensorFlow's own, Flex)" for name in error.select),
        *(f"{name} (custom)" for name in error.custom),
    ]
    instead = list(dict.fromkeys(INSTEAD[name] for name in error.select if name in INSTEAD))
    return Refused(
        "unsupported",
        f"TFLite has no kernel for {', '.join(named)}, and the boards' interpreters bring none",
        f"use {'; '.join(instead)}"
        if instead
        else "replace them in the model, or end it before them and do that part in the app",
        "operators_unsupported",
        select=error.select,
        custom=error.custom,
    )
