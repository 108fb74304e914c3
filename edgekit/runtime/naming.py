"""What a model's inputs and outputs are called, from the best source that there is.

A bundle's manifest knows the names of the source model; a bare ``.tflite`` may have a signature; tensor names are always there.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple

from edgekit.errors import ModelFileError
from edgekit.values import SCHEMA, IoSpec, Joined, Preprocessing, QuantParams

if TYPE_CHECKING:
    from edgekit.runtime.backend import Backend, ModelSource, TensorDetail

MODEL_FILE = "model.tflite"
REJECTED_FILE = "rejected.tflite"
MANIFEST_FILE = "manifest.json"


@dataclasses.dataclass(frozen=True)
class BundleFiles:
    """What a bundle folder says about its model. ``sha256`` is what the manifest claims; ``joins`` is empty where no output is in parts."""

    model: Path
    sha256: str
    inputs: Tuple[IoSpec, ...]
    outputs: Tuple[IoSpec, ...]
    preprocessing: Optional[Preprocessing]
    joins: Tuple[Joined, ...] = ()


def read_bundle(folder: Path) -> BundleFiles:
    """The model file and the names in a bundle folder.

    Raises :class:`ModelFileError` when the folder is no bundle, was made by a newer edgekit, or holds a model that a gate rejected.
    """
    manifest = _manifest(folder)
    model = folder / MODEL_FILE
    if not model.is_file():
        if (folder / REJECTED_FILE).is_file():
            raise ModelFileError(
                f"the model in {folder} failed a gate and is kept for study only",
                code="model_rejected",
                hint=f"see {folder / 'report.html'} for the gate; to run it all the same, open {folder / REJECTED_FILE}",
            )
        raise ModelFileError(f"{folder} holds no {MODEL_FILE}", code="bundle_damaged")
    try:
        preprocessing = manifest.get("preprocessing")
        return BundleFiles(
            model=model,
            sha256=str(manifest["files"][MODEL_FILE]["sha256"]),
            inputs=tuple(IoSpec.from_json(item) for item in manifest["inputs"]),
            outputs=tuple(IoSpec.from_json(item) for item in manifest["outputs"]),
            preprocessing=None if preprocessing is None else Preprocessing.from_json(preprocessing),
            joins=tuple(Joined.from_json(item) for item in manifest.get("joins") or ()),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFileError(
            f"{folder / MANIFEST_FILE} lacks a part or has a wrong one: {error}", code="bundle_damaged"
        ) from error


def fingerprint(model: ModelSource) -> Tuple[str, int]:
    """sha256 and size in bytes of a model file, or of its bytes."""
    if isinstance(model, bytes):
        return hashlib.sha256(model).hexdigest(), len(model)
    digest = hashlib.sha256()
    size_bytes = 0
    with open(model, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
            size_bytes += len(block)
    return digest.hexdigest(), size_bytes


def _manifest(folder: Path) -> Mapping[str, Any]:
    path = folder / MANIFEST_FILE
    if not path.is_file():
        raise ModelFileError(
            f"{folder} is no bundle: it has no {MANIFEST_FILE}",
            hint="a bundle is the folder that edgekit convert --out makes",
        )
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelFileError(f"{path} is not JSON: {error}", code="bundle_damaged") from error
    schema = manifest.get("schema") if isinstance(manifest, dict) else None
    if schema != SCHEMA:
        raise ModelFileError(
            f"{path} has schema {schema!r}; this edgekit reads schema {SCHEMA}",
            code="bundle_schema",
            hint="use the version of edgekit that made the bundle, or convert the model again",
        )
    return manifest  # type: ignore[no-any-return]


def describe(backend: Backend, bundle: Optional[BundleFiles] = None) -> Tuple[Tuple[IoSpec, ...], Tuple[IoSpec, ...]]:
    """Inputs and outputs in the interpreter's order, each with a name of its own.

    Raises :class:`ModelFileError` when the bundle's manifest describes other tensors than the model has.
    """
    if bundle is not None:
        return _matched(backend.inputs, bundle.inputs, "input"), _matched(backend.outputs, bundle.outputs, "output")
    input_names, output_names = _signature_names(backend)
    return (
        tuple(_plain(detail, name) for detail, name in zip(backend.inputs, _unique(input_names))),
        tuple(_plain(detail, name) for detail, name in zip(backend.outputs, _unique(output_names))),
    )


def _matched(tensors: Sequence[TensorDetail], specs: Sequence[IoSpec], what: str) -> Tuple[IoSpec, ...]:
    """``specs`` put into the order of ``tensors``, by tensor name; a name that stands twice is taken in order."""
    waiting = list(specs)
    ordered: List[IoSpec] = []
    for detail in tensors:
        spec = next((spec for spec in waiting if spec.tensor == detail.name), None)
        if spec is None:
            raise ModelFileError(
                f"the manifest does not describe {what} tensor {detail.name!r} of the model; "
                f"it describes {', '.join(repr(spec.tensor) for spec in specs)}",
                code="bundle_damaged",
            )
        if spec.shape != detail.shape or spec.dtype != detail.dtype:
            raise ModelFileError(
                f"the manifest says that {what} {spec.name!r} is {spec.dtype} {list(spec.shape)}, "
                f"the model has {detail.dtype} {list(detail.shape)}",
                code="bundle_damaged",
            )
        waiting.remove(spec)
        # The interpreter's own numbers are what the model computes with.
        ordered.append(dataclasses.replace(spec, quant=_quant(detail)))
    if waiting:
        raise ModelFileError(f"the model has no {what} {waiting[0].name!r} of its manifest", code="bundle_damaged")
    return tuple(ordered)


def _signature_names(backend: Backend) -> Tuple[List[str], List[str]]:
    """Names from the first signature that covers the whole model, else the tensors' own."""
    for input_map, output_map in backend.signatures.values():
        inputs, outputs = _by_position(input_map), _by_position(output_map)
        if len(inputs) == len(backend.inputs) and len(outputs) == len(backend.outputs):
            return [inputs[i] for i in range(len(inputs))], [outputs[i] for i in range(len(outputs))]
    return [detail.name for detail in backend.inputs], [detail.name for detail in backend.outputs]


def _by_position(names: Mapping[str, int]) -> Dict[int, str]:
    return {position: name for name, position in names.items()}


def _unique(names: Sequence[str]) -> List[str]:
    """``names`` with ``#2``, ``#3``, ... behind those that were there before: a tensor may be an output twice."""
    seen: Dict[str, int] = {}
    result = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        result.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return result


def _plain(detail: TensorDetail, name: str) -> IoSpec:
    """A spec for a tensor of which nothing but the model is known."""
    return IoSpec(
        name=name,
        source_shape=detail.shape,
        source_dtype="float32" if detail.is_quantized else detail.dtype,
        tensor=detail.name,
        shape=detail.shape,
        dtype=detail.dtype,
        quant=_quant(detail),
    )


def _quant(detail: TensorDetail) -> Optional[QuantParams]:
    return QuantParams(detail.scale, detail.zero_point) if detail.is_quantized else None
