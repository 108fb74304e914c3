"""What is in a model file: io, operators, parameters, weights, multiply-accumulates, precision, and how an interpreter takes it."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from edgekit.errors import UnsupportedModelError, UsageError
from edgekit.intake.arena import ArenaPeak
from edgekit.intake.formats import FORMATS, detect_format
from edgekit.intake.inspect_costs import KindCost, OperatorCost
from edgekit.intake.macs import MacCount
from edgekit.intake.precision import FloatIsland
from edgekit.intake.preflight import Finding
from edgekit.intake.probe import ProbeResult
from edgekit.intake.runtimes import Requirements

READABLE = ("onnx", "tflite")
"""The formats that this version can look into."""


@dataclasses.dataclass(frozen=True)
class QuantInfo:
    """Quantisation of an input or output; ``scale`` and ``zero_point`` are None with one pair for each index of ``axis``."""

    scale: float | None
    zero_point: int | None
    axis: int | None = None


@dataclasses.dataclass(frozen=True)
class TensorInfo:
    """An input or output. ``shape`` has numbers, symbols or "?" for open sizes; None when not even the axes are known."""

    name: str
    shape: tuple[int | str, ...] | None
    dtype: str
    quant: QuantInfo | None = None


@dataclasses.dataclass(frozen=True)
class OperatorCount:
    """How many operators of one kind compute in one type. ``custom``: not among the format's own operators."""

    operator: str
    dtype: str
    count: int
    custom: bool = False


@dataclasses.dataclass(frozen=True)
class SignatureInfo:
    """A named entry of a TFLite file: argument and result names, each with the tensor it stands for."""

    key: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class WeightInfo:
    """Stored values. ``parameters`` counts float and quantised ones (index and shape constants are none of the network's numbers);
    ``bytes_by_dtype`` has all of them, shared data once."""

    parameters: int
    bytes_by_dtype: Mapping[str, int]


@dataclasses.dataclass(frozen=True)
class Inspection:
    """Everything that the file says, and what the interpreter said of it.

    ``facts`` are the format's own: opset, IR version and producer of an ONNX file, schema version and description of a TFLite file.
    ``custom_operators`` names operators that the plain runtime lacks, Flex ones included. ``full_integer`` and
    ``activation_peak_bytes`` are None for ONNX; the latter is the most that is alive at once when operators run in file order, with
    inputs and outputs kept: the least that an arena can be. ``interpreter`` is None for ONNX and when it was not asked for.
    ``findings`` are those of the pre-flight, ``costs`` the operators of the main graph in file order; ``arena`` and ``runtimes`` are None
    for ONNX.
    """

    path: str
    format: str
    size_bytes: int
    sha256: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    operators: tuple[OperatorCount, ...]
    weights: WeightInfo
    macs: MacCount
    facts: Mapping[str, int | str]
    custom_operators: tuple[str, ...] = ()
    signatures: tuple[SignatureInfo, ...] = ()
    full_integer: bool | None = None
    float_islands: tuple[FloatIsland, ...] = ()
    activation_peak_bytes: int | None = None
    external_files: Mapping[str, int] = dataclasses.field(default_factory=dict)
    interpreter: ProbeResult | None = None
    notes: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    costs: tuple[OperatorCost, ...] = ()
    costs_by_kind: tuple[KindCost, ...] = ()
    arena: ArenaPeak | None = None
    runtimes: Requirements | None = None

    @property
    def operators_total(self) -> int:
        """The number of operators in all graphs."""
        return sum(item.count for item in self.operators)


def inspect_model(
    path: str | Path,
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    run_interpreter: bool = True,
    timeout_s: float = 60.0,
) -> Inspection:
    """Looks into the model at ``path``.

    ``input_shapes`` fixes open input sizes of an ONNX model (for the multiply-accumulates). ``run_interpreter`` also loads a TFLite
    model in a child process, for at most ``timeout_s``: a crash there is a fact in the result, not an error.

    Raises :class:`ModelFileError` for what is no complete model, :class:`UnsupportedModelError` for formats that this version does not
    read, :class:`UsageError` for an ``input_shapes`` that does not fit.
    """
    kind = detect_format(path)
    path = Path(path)
    if kind == "onnx":
        from edgekit.intake.inspect_onnx import inspect_onnx

        return inspect_onnx(path, input_shapes=input_shapes or {})
    if kind == "tflite":
        from edgekit.intake.inspect_tflite import inspect_tflite

        if input_shapes:
            raise UsageError(f"{path}: input shapes can be given for ONNX models only", hint="leave --input-shape away")
        return inspect_tflite(path, run_interpreter=run_interpreter, timeout_s=timeout_s)
    raise UnsupportedModelError(
        f"{path}: a {FORMATS[kind]}; this version reads .onnx and .tflite only",
        hint="export the network to ONNX, or give a float .tflite",
        code="format_unsupported",
        details={"format": kind, "readable": list(READABLE)},
    )


def file_sha256(path: Path) -> str:
    """The hexadecimal SHA-256 of a file, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def tally(operators: Sequence[tuple[str, str, bool]]) -> tuple[OperatorCount, ...]:
    """Counts of (operator, dtype, custom), the most frequent first."""
    counts: dict[tuple[str, str, bool], int] = {}
    for item in operators:
        counts[item] = counts.get(item, 0) + 1
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(OperatorCount(name, dtype, count, custom) for (name, dtype, custom), count in ordered)
