"""What a Keras file would make Keras do, read before Keras sees it: code, foreign classes, links to other files.

Keras has a safe mode, but it came late to some formats and was got around in others; here nothing is deserialised at all. Standard
library, and h5py where a file has to be looked into.
"""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any, Dict, Iterator, List, Tuple

from refusal import Refused, first_line

CODE = {
    "Lambda": "Python code in the file",
    "__lambda__": "Python code in the file",
    "TorchModuleWrapper": "a pickled PyTorch module",
    "JaxLayer": "a JAX function",
    "FlaxLayer": "a Flax module",
    "TFSMLayer": "a SavedModel elsewhere on the disk",
}
"""Classes that stand for code, and what they hold."""
STRINGS = ("StringLookup", "TextVectorization")
FOREIGN_PARTS = ("utils", "config", "saving", "datasets", "callbacks", "export", "trainers", "testing")
"""Parts of Keras that no network is made of: a file that names them wants something else."""
EXPORT = "where its code is at hand, load it and type model.export('FOLDER'), then convert that folder: it holds the operators, not the code"
_AGAIN = "copy or download the file again and compare its size with the original"
_OUTSIDE = ("io.", "raw_ops.", "data.", "py_function", "numpy_function", "load_op_library", "saved_model.")


def of_archive(path: str) -> Dict[str, Any]:
    """The configuration in a ``.keras`` archive. Raises Refused for damage and for weights that lie in other files."""
    try:
        with zipfile.ZipFile(path) as archive:
            config = json.loads(archive.read("config.json"))
            for name in archive.namelist():
                if name.endswith(".h5"):
                    _refuse_links(io.BytesIO(archive.read(name)), name)
    except Refused:
        raise
    except Exception as error:  # zipfile, json and h5py raise anything on damaged files
        raise _damaged(error) from error
    if not isinstance(config, dict):
        raise Refused("file", "its config.json describes no model", _AGAIN, "model_corrupt")
    return config


def of_hdf5(path: str) -> Dict[str, Any]:
    """The configuration in an HDF5 file. Raises Refused for damage, for weights without a model, and for links to other files."""
    import h5py

    try:
        _refuse_links(path, "the file")
        with h5py.File(path, "r") as file:
            raw = file.attrs.get("model_config")
            weights_only = "layer_names" in file.attrs or "layers" in file or "_layer_checkpoint_dependencies" in file
            found = sorted(file)[:5]
    except Refused:
        raise
    except Exception as error:
        raise _damaged(error) from error
    if raw is None:
        what = (
            "holds weights without the model that they belong to" if weights_only else "is an HDF5 file of another kind"
        )
        raise Refused(
            "file",
            f"{what} (no model_config; it has {', '.join(found) or 'nothing'})",
            "save the whole model: model.save('model.keras')",
            "not_a_model",
        )
    try:
        config = json.loads(raw.decode() if isinstance(raw, bytes) else raw)
    except ValueError as error:
        raise _damaged(error) from error
    if not isinstance(config, dict):
        raise Refused("file", "its model_config describes no model", _AGAIN, "model_corrupt")
    return config


def _damaged(error: BaseException) -> Refused:
    return Refused("file", f"it is damaged: {first_line(error)}", _AGAIN, "model_corrupt")


def _refuse_links(file: Any, name: str) -> None:
    """HDF5 can take its data from any other file of this machine; a model has no business there."""
    import h5py

    outside: List[str] = []

    def look_at_link(place: str, link: Any) -> None:
        if isinstance(link, h5py.ExternalLink):
            outside.append(f"{place} in {link.filename}")

    def look_at_item(place: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and (item.external or item.is_virtual):
            outside.append(place)

    with h5py.File(file, "r") as opened:
        opened.visititems_links(look_at_link)
        opened.visititems(look_at_item)
    if outside:
        raise Refused(
            "unsupported",
            f"{name} takes weights from other files: {', '.join(outside[:3])}",
            "save the model again, so that it is complete in itself",
            "model_unsafe",
        )


def objects(config: Any, layer: str = "") -> Iterator[Tuple[Dict[str, Any], str]]:
    """Every serialised object in ``config``, with the name of the innermost named layer around it (its own, if it has one)."""
    if isinstance(config, dict):
        inner = config.get("config")
        if "class_name" in config:
            name = inner.get("name") if isinstance(inner, dict) else None
            layer = name if isinstance(name, str) and name else layer
            yield config, layer
        for value in config.values():
            yield from objects(value, layer)
    elif isinstance(config, list):
        for item in config:
            yield from objects(item, layer)


def plain(config: Any) -> Any:
    """``config`` for inference: nothing about training, and in float32 where it says mixed precision (the weights are float32)."""
    if isinstance(config, list):
        return [plain(item) for item in config]
    if not isinstance(config, dict):
        return "float32" if config in ("mixed_float16", "mixed_bfloat16") else config
    return {key: None if key == "compile_config" else plain(value) for key, value in config.items()}


def require_safe(config: Dict[str, Any]) -> None:
    """Raises Refused, with the layers' names, when the configuration holds code or names classes that are not Keras' own."""
    coded, foreign = [], []
    for item, layer in objects(config):
        kind, module = str(item["class_name"]), item.get("module")
        if kind in CODE:
            coded.append(f"{layer or kind!r} ({CODE[kind]})")
        elif kind in STRINGS:
            raise Refused(
                "unsupported",
                f"layer {layer!r} is a {kind}, and TFLite has tensors of numbers only",
                "take it out of the model, and do its work in the app",
            )
        elif kind == "TFOpLambda" and _reaches_out(item):
            coded.append(f"{layer!r} (calls tf.{item['config'].get('function')})")
        elif _is_foreign(kind, module):
            what = item.get("config") if kind == "function" else kind
            foreign.append(
                f"{what} of {module} in layer {layer!r}" if module not in (None, "builtins") else f"{what} in {layer!r}"
            )
    if coded:
        raise Refused(
            "unsupported",
            f"it holds code that would run when it is opened, and edgekit does not run it: {_some(coded)}",
            f"replace the layer by Keras layers or operations (keras.ops); or, {EXPORT}",
            "model_unsafe",
            layers=coded,
        )
    if foreign:
        raise missing_classes(foreign)


def missing_classes(names: List[str]) -> Refused:
    """The refusal of a model that is made of classes or functions that Keras does not have."""
    return Refused(
        "unsupported",
        f"it is made of classes or functions that are not Keras' own, and their code is not in the file: {_some(names)}",
        EXPORT,
        "custom_objects",
        custom=names,
    )


def _some(words: List[str]) -> str:
    distinct = list(dict.fromkeys(words))
    return ", ".join(distinct[:5]) + (f" and {len(distinct) - 5} more" if len(distinct) > 5 else "")


def _reaches_out(item: Dict[str, Any]) -> bool:
    function = str((item.get("config") or {}).get("function", ""))
    return function.startswith(_OUTSIDE) or "__" in function.replace("__operators__", "")


def _is_foreign(kind: str, module: Any) -> bool:
    if kind == "function":
        return True  # Keras writes its own functions as plain names
    if module in (None, "", "builtins"):
        return False
    parts = str(module).split(".")
    return parts[0] not in ("keras", "tf_keras") or any(part in FOREIGN_PARTS for part in parts[1:])
