"""The manifest: what a bundle says of itself. No clock time and no absolute path, so equal conversions give equal manifests."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import edgekit
from edgekit.calibrate.health import Health
from edgekit.calibrate.ranges import Ranges
from edgekit.intake.layers import still_there
from edgekit.quantize.audit import Audit
from edgekit.quantize.bias import Repair
from edgekit.quantize.correct import Corrections
from edgekit.quantize.engine import Closing
from edgekit.quantize.islands import Island
from edgekit.quantize.recipe import Recipe
from edgekit.runtime.backend import open_backend
from edgekit.values import SCHEMA, FloatModel, GateResult, IoSpec, Preprocessing, QuantParams, to_json
from edgekit.verify.accuracy import Evaluation
from edgekit.verify.parity import Parity

MODEL, REJECTED, FLOAT = "model.tflite", "rejected.tflite", "float.tflite"
PACKAGES = ("ai-edge-litert", "litert-quantizer", "numpy", "onnx", "onnxruntime", "pillow", "scipy", "threadpoolctl")


@dataclasses.dataclass(frozen=True)
class CalibrationRecord:
    """Where the ranges came from: ``digest`` is the sha256 over all calibration inputs in order."""

    source: str
    count: int
    digest: str
    split_seed: int | None
    indices: Sequence[int] | None
    """Which samples of the source, where it served evaluation too; None where all did."""


@dataclasses.dataclass(frozen=True)
class JudgedRecord:
    """On what the result was judged: ``digest`` as in :class:`CalibrationRecord`, over the inputs and not the labels."""

    source: str
    count: int
    digest: str


@dataclasses.dataclass(frozen=True)
class Findings:
    """Everything that the stages found out, for the manifest.

    ``calibration``, ``ranges`` and ``evaluation`` are None where nothing was quantised. ``parity_source`` says what the inputs of the
    parity stage were, ``synthetic`` whether they were made up. ``rewrites`` holds what each pass changed on the float model, ``request``
    the options that a repetition needs beside recipe and data.
    """

    model: FloatModel
    recipe: Recipe
    preprocessing: Preprocessing | None
    audit: Audit
    parity: Parity
    gates: tuple[GateResult, ...]
    passed: bool
    route_notes: tuple[str, ...]
    parity_source: str
    synthetic: bool
    rewrites: Mapping[str, tuple[str, ...]]
    calibration: CalibrationRecord | None = None
    ranges: Ranges | None = None
    evaluation: Evaluation | None = None
    repairs: tuple[Repair, ...] = ()
    closing: Closing = Closing()
    islands: tuple[Island, ...] = ()
    corrections: Corrections | None = None
    health: Health | None = None
    request: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    judged: JudgedRecord | None = None


def delivered_io(model: FloatModel, path: Path) -> tuple[tuple[IoSpec, ...], tuple[IoSpec, ...]]:
    """The model's inputs and outputs with the dtypes, scales and zero points that the file to deliver really has."""
    with open_backend(path) as backend:
        return (
            tuple(_delivered(spec, detail) for spec, detail in zip(model.inputs, backend.inputs, strict=True)),
            tuple(_delivered(spec, detail) for spec, detail in zip(model.outputs, backend.outputs, strict=True)),
        )


def _delivered(spec: IoSpec, detail: Any) -> IoSpec:
    quant = QuantParams(detail.scale, detail.zero_point) if detail.is_quantized else None
    return dataclasses.replace(spec, tensor=detail.name, shape=tuple(detail.shape), dtype=detail.dtype, quant=quant)


def undelivered(spec: IoSpec, detail: Any) -> IoSpec:
    """``spec`` of a delivered end as the float model has that end, whose tensor is ``detail``."""
    return dataclasses.replace(spec, tensor=detail.name, shape=tuple(detail.shape), dtype=detail.dtype, quant=None)


def build(findings: Findings, name: str, folder: Path, io: tuple[Sequence[IoSpec], Sequence[IoSpec]]) -> dict[str, Any]:
    """The manifest as JSON types; ``folder`` holds the files that it lists."""
    source = findings.model.source
    document = {
        "schema": SCHEMA,
        "edgekit": edgekit.__version__,
        "model": {"name": name, "format": source.format, "sha256": source.sha256, "size_bytes": source.size_bytes},
        "files": {path.name: file_entry(path) for path in sorted(folder.iterdir())},
        "inputs": to_json(io[0]),
        "outputs": to_json(io[1]),
        "joins": to_json(findings.model.joins),
        "preprocessing": to_json(findings.preprocessing),
        "recipe": to_json(findings.recipe),
        "calibration": _calibration(findings),
        "health": to_json(findings.health),
        "frontend": {
            "name": findings.model.frontend,
            "version": findings.model.versions.get("onnx2tf", ""),
            "route_notes": list(findings.route_notes),
        },
        "layers": still_there(findings.model.tensor_sources, findings.model.path),
        "rewrites": to_json(findings.rewrites),
        "repairs": {"bias_overflow": to_json(findings.repairs)},
        "closed_islands": to_json(findings.closing),
        "corrections": to_json(findings.corrections),
        "versions": _versions(findings.model),
        "request": dict(findings.request),
        "verification": _verification(findings),
    }
    return {**document, "seal": seal(document)}


def seal(document: Mapping[str, Any]) -> str:
    """sha256 over everything else that the manifest says: whatever is changed in it afterwards shows."""
    content = {key: value for key, value in document.items() if key != "seal"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _calibration(findings: Findings) -> dict[str, Any] | None:
    record = findings.calibration
    if record is None or findings.ranges is None:
        return None
    ranges = {name: {"min": low, "max": high} for name, (low, high) in sorted(findings.ranges.by_tensor.items())}
    return {**to_json(record), "ranges": ranges, "ignored_padding": dict(findings.ranges.ignored)}


def _verification(findings: Findings) -> dict[str, Any]:
    evaluation = findings.evaluation
    data = {"source": findings.parity_source, "synthetic": findings.synthetic}
    return {
        "parity": {**to_json(findings.parity), "data": data},
        "judged_on": to_json(findings.judged),
        "int8": None if evaluation is None else to_json(evaluation.int8),
        "accuracy": None if evaluation is None else to_json(evaluation.accuracy),
        "audit": to_json(findings.audit),
        "islands": to_json(findings.islands),
        "gates": to_json(findings.gates),
        "passed": findings.passed,
    }


def _versions(model: FloatModel) -> dict[str, str]:
    return {**versions_here(), **{f"frontend {name}": version for name, version in model.versions.items()}}


def versions_here() -> dict[str, str]:
    """Of Python and the packages that take part, as far as they are installed."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def file_entry(path: Path) -> dict[str, Any]:
    """sha256 and size of a file of the bundle."""
    return {"sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "size_bytes": path.stat().st_size}


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """``document`` as readable JSON with a final newline."""
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
