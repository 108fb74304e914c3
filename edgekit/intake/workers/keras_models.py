"""Keras files opened without running anything of theirs: Keras 3 first, for older files then Keras 2 (tf-keras)."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any, Dict, List, Tuple

import keras_config
from program import Program, TensorSpec, distinct
from refusal import Refused, first_line

UNROLLED_STEPS = 128
"""Recurrent layers of up to so many steps become plain operators; longer ones stay loops, which no integer kernel takes."""


def open_keras(path: str) -> Program:
    """The network in the private copy at ``path`` (named ``.keras`` or ``.h5``; it is made plain in place)."""
    archive = path.endswith(".keras")
    config = keras_config.of_archive(path) if archive else keras_config.of_hdf5(path)
    config_plain = keras_config.plain(config)
    keras_config.require_safe(config_plain)
    remarks = []
    if _policies(config) != _policies(config_plain):
        remarks.append("computed in float32 where the file says mixed precision")
    if config_plain != config:
        (_rewrite_archive if archive else _rewrite_hdf5)(Path(path), config_plain)
    model, runtime = _load(path, config_plain)
    inputs, outputs = _ends(model)
    remarks += _unroll(model)
    return Program(inputs, outputs, lambda tensors: _call(model, tensors), runtime, tuple(remarks))


def _policies(config: Any) -> str:
    text = json.dumps(config)
    return "mixed" if "mixed_float16" in text or "mixed_bfloat16" in text else ""


def _rewrite_archive(path: Path, config: Dict[str, Any]) -> None:
    target = path.with_suffix(".rewritten")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            new.writestr(name, json.dumps(config).encode() if name == "config.json" else old.read(name))
    os.replace(target, path)


def _rewrite_hdf5(path: Path, config: Dict[str, Any]) -> None:
    import h5py

    with h5py.File(path, "r+", libver="latest") as file:
        file.attrs["model_config"] = json.dumps(config).encode()


def _load(path: str, config: Dict[str, Any]) -> Tuple[Any, str]:
    """The model and the runtime it is in. Keras 2 is asked where Keras 3 no longer takes what Keras 2 wrote."""
    import keras
    import tensorflow as tf

    try:
        model = keras.models.load_model(path, compile=False, safe_mode=True)
        return model, f"Keras {keras.__version__} on TensorFlow {tf.__version__}"
    except Exception as error:
        first = error
    try:
        import tf_keras

        model = tf_keras.models.load_model(path, compile=False, safe_mode=True)
        return model, f"Keras {tf_keras.__version__} on TensorFlow {tf.__version__}"
    except Exception:
        pass
    unknown = _unknown_layers(config)
    if unknown:
        raise keras_config.missing_classes(unknown)
    raise Refused(
        "file",
        f"Keras {keras.__version__} cannot load it: {first_line(first)}",
        "load it with the version of Keras that wrote it, and type model.export('FOLDER'); then convert that folder",
        "model_corrupt",
    )


def _unknown_layers(config: Any) -> List[str]:
    """Layers of classes that neither Keras has, in a file that names no modules."""
    import keras
    import tf_keras

    known = {*dir(keras.layers), *dir(tf_keras.layers), "Functional", "Model", "Sequential"}
    found: List[str] = []

    def look(value: Any) -> None:
        if isinstance(value, dict):
            for layer in value.get("layers") or [] if isinstance(value.get("layers"), list) else []:
                if isinstance(layer, dict) and layer.get("class_name") not in known:
                    name = (layer.get("config") or {}).get("name", layer.get("name"))
                    found.append(f"{layer.get('class_name')} in layer {name!r}")
            for item in value.values():
                look(item)
        elif isinstance(value, list):
            for item in value:
                look(item)

    look(config)
    return found


def _ends(model: Any) -> Tuple[List[TensorSpec], List[TensorSpec]]:
    if not getattr(model, "inputs", None):
        raise Refused(
            "unsupported",
            "the model was never built: it does not say what its input looks like",
            "begin it with keras.Input(shape=...), or call it once on data, and save it again",
        )
    inputs = [_spec(tensor, tensor.name.split(":")[0]) for tensor in model.inputs]
    outputs = [_spec(tensor, name) for tensor, name in zip(model.outputs, _output_names(model), strict=True)]
    return distinct(inputs), distinct(outputs)


def _output_names(model: Any) -> List[str]:
    """Keys where the model gives a dictionary (flattened in the order of its keys), else the names of the layers that end it."""
    structure = _structure(model, "_outputs_struct", "_nested_outputs")
    if isinstance(structure, dict) and len(structure) == len(model.outputs):
        return sorted(map(str, structure))
    names = getattr(model, "output_names", None) or getattr(getattr(model, "_functional", None), "output_names", None)
    return [str(name) for name in names] if names else [model.layers[-1].name] * len(model.outputs)


def _spec(tensor: Any, name: str) -> TensorSpec:
    import tensorflow as tf

    shape = None if tensor.shape is None else [None if size is None else int(size) for size in tensor.shape]
    return TensorSpec(name, shape, tf.as_dtype(tensor.dtype).name)


def _unroll(model: Any) -> List[str]:
    """Recurrent layers of few, known steps made to unroll; a remark where there are any."""
    layers, names = [model], []
    while layers:
        layer = layers.pop()
        layers += list(getattr(layer, "layers", []))
        layers += [
            getattr(layer, part) for part in ("forward_layer", "backward_layer", "layer") if hasattr(layer, part)
        ]
        if hasattr(layer, "unroll") and hasattr(layer, "return_sequences") and not layer.unroll:
            shape = _input_shape(layer)
            if shape is None or shape[1] is None or shape[1] <= UNROLLED_STEPS:
                layer.unroll = True
                names.append(layer.name)
    return [f"unrolled {', '.join(sorted(names))}"] if names else []


def _input_shape(layer: Any) -> Any:
    try:
        return layer.input.shape
    except (AttributeError, ValueError):
        return None


def _structure(model: Any, *names: str) -> Any:
    """How the tensors at one end are put together, as Keras 3 or Keras 2 keeps it; a Sequential keeps it one level below."""
    for holder in (model, getattr(model, "_functional", None)):
        for name in names:
            found = getattr(holder, name, None)
            if found is not None:
                return found
    return None


def _call(model: Any, tensors: List[Any]) -> List[Any]:
    import tensorflow as tf

    structure = _structure(model, "_inputs_struct", "_nested_inputs")
    packed = tensors[0] if len(tensors) == 1 else tensors
    if structure is not None:
        packed = tf.nest.pack_sequence_as(structure, tensors)
    return list(tf.nest.flatten(model(packed, training=False)))
