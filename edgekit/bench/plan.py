"""What is to be measured, decided before anything is sent to a board."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from edgekit.bench.protocol import Protocol
from edgekit.errors import EdgekitError, ModelFileError, UsageError
from edgekit.push.store import blob_name
from edgekit.runtime.flatbuffer import check_model_file
from edgekit.runtime.naming import MANIFEST_FILE, read_bundle
from edgekit.values import SCHEMA

FLOAT_FILE = "float.tflite"
GOLDEN_FILE = "golden.npz"

DEFAULT_DURATION_S = 30.0
BYTE_BUDGET = 64 << 20
"""Bytes of latencies that one run may have, all variants together: 8 million inferences."""

WARMUP_MIN_RUNS = 5
WARMUP_MIN_S = 1.0

OTHER = "other"
"""The variant that is the second model of a comparison."""

KERNELS = ("default", "builtin", "reference")

BLOCK_S = 1.0
"""Between blocks the agent looks after everything else, and changes over to the other variant."""

SAMPLE_HZ = 2.0
STALL_S = 300.0
"""How long one inference (or the loading of a model) may take before the run counts as stuck."""

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


@dataclasses.dataclass(frozen=True)
class PlannedFile:
    """A file that the board needs, by its content."""

    path: Path
    sha256: str
    size_bytes: int


@dataclasses.dataclass(frozen=True)
class OtherModel:
    """A second model in the same run, with the inputs that it is fed with."""

    name: str
    kind: str
    model: PlannedFile
    golden: PlannedFile | None
    golden_names: dict[str, str]


@dataclasses.dataclass(frozen=True)
class BenchPlan:
    """One benchmark: the files to send and the request that the agent carries out.

    ``duration_s`` is the sustained time of each variant: with a float model beside, the run takes twice as long. ``other`` is a second
    model to be compared with, in turns; ``more_threads`` are settings beside ``threads`` that the model runs with, in turns too.
    """

    id: str
    created_utc: str
    name: str
    kind: str
    device: str
    model: PlannedFile
    float_model: PlannedFile | None
    golden: PlannedFile | None
    golden_names: dict[str, str]
    manifest: Path | None
    duration_s: float
    threads: int
    seed: int
    backend: str | None
    zone_types: tuple[str, ...] = ()
    throttle_c: float | None = None
    board_note: str = ""
    kernels: str = "default"
    protocol: Protocol = dataclasses.field(default_factory=Protocol)
    more_threads: tuple[int, ...] = ()
    other: OtherModel | None = None

    @property
    def files(self) -> list[PlannedFile]:
        """What the board needs."""
        other = () if self.other is None else (self.other.model, self.other.golden)
        return [file for file in (self.model, self.float_model, self.golden, *other) if file is not None]

    def request(self) -> dict[str, Any]:
        """``request.json``: paths in it are relative to the job's folder on the board."""
        return {
            "schema": SCHEMA,
            "id": self.id,
            "created_utc": self.created_utc,
            "model": self._model(self.model),
            "float_model": None if self.float_model is None else self._model(self.float_model),
            "golden": _golden(self.golden, self.golden_names),
            "more_variants": self._more_variants(),
            "device": self.device,
            "duration_s": self.duration_s,
            "threads": self.threads,
            "warmup_min_runs": WARMUP_MIN_RUNS,
            "warmup_min_s": WARMUP_MIN_S,
            "block_s": BLOCK_S,
            "settle_runs": 1,
            "stall_s": STALL_S,
            "seed": self.seed,
            "backend": self.backend,
            "sample_hz": SAMPLE_HZ,
            "byte_budget": BYTE_BUDGET,
            "zone_types": list(self.zone_types),
            "throttle_c": self.throttle_c,
            "board_note": self.board_note,
            "kernels": self.kernels,
            **self.protocol.request(),
        }

    def _more_variants(self) -> list[dict[str, Any]]:
        found = [
            {"name": f"threads-{threads}", "model": self._model(self.model), "threads": threads}
            for threads in self.more_threads
        ]
        if self.other is not None:
            model = self._model(self.other.model, name=self.other.name, kind=self.other.kind)
            golden = _golden(self.other.golden, self.other.golden_names)
            found.append({"name": OTHER, "model": model, "golden": golden})
        return found

    def _model(self, file: PlannedFile, *, name: str = "", kind: str = "") -> dict[str, Any]:
        return {
            "name": name or self.name,
            "kind": kind or self.kind,
            "sha256": file.sha256,
            "size_bytes": file.size_bytes,
            "macs": macs_of(file.path),
            "path": f"../../{store_name(file)}",
        }


def make_plan(
    source: Path,
    *,
    device: str = "local",
    duration_s: float = DEFAULT_DURATION_S,
    threads: int = 0,
    with_float: bool = False,
    seed: int = 0,
    backend: str | None = None,
    zone_types: tuple[str, ...] = (),
    throttle_c: float | None = None,
    board_note: str = "",
    kernels: str = "default",
    protocol: Protocol | None = None,
    more_threads: tuple[int, ...] = (),
    other: Path | None = None,
) -> BenchPlan:
    """A plan for a bundle folder or a ``.tflite`` file.

    ``throttle_c`` is where the board begins to slow down for heat, where its profile knows it; ``board_note`` is what its profile says that
    every report should. ``kernels`` are the interpreter's own
    choice (``default``), those without delegates (``builtin``) or the plain ones without SIMD (``reference``), to tell builds apart.
    ``protocol`` says how the run begins, is paced and ends; ``other`` is a second bundle or file that is measured in turns with the first.

    Raises :class:`ModelFileError` when there is no whole model there, or one that a gate rejected; :class:`UsageError` for a duration
    or thread count that makes no sense, and for ``with_float`` where there is no float model.
    """
    if not duration_s > 0:
        raise UsageError(f"a duration of {duration_s:g} s measures nothing", hint="for example --duration 30s")
    if kernels not in KERNELS:
        raise UsageError(f"kernels must be one of {', '.join(KERNELS)}, not {kernels!r}")
    if threads < 0 or any(more < 1 for more in more_threads):
        raise UsageError(f"threads must be 0 (all cores) or more, not {min((threads, *more_threads))}")
    if len({threads, *more_threads}) <= len(more_threads):
        raise UsageError("each number of threads is to be given once")
    protocol = protocol or Protocol()
    protocol.check(duration_s)
    files = _from_bundle(source, with_float) if source.is_dir() else _from_file(source, with_float)
    now = datetime.now(UTC)
    return BenchPlan(
        id=f"{now:%Y%m%dT%H%M%SZ}-{_word(files.name)}-{_word(device)}",
        created_utc=f"{now:%Y-%m-%dT%H:%M:%SZ}",
        device=device,
        duration_s=duration_s,
        threads=threads,
        seed=seed,
        backend=backend,
        zone_types=zone_types,
        throttle_c=throttle_c,
        board_note=board_note,
        kernels=kernels,
        protocol=protocol,
        more_threads=more_threads,
        other=None if other is None else _other(other),
        **vars(files),
    )


def parse_duration(text: str) -> float:
    """Seconds from ``30s``, ``5m``, ``1h30m``, ``500ms`` or a bare number of seconds. Raises :class:`UsageError`."""
    compact = text.strip().lower().replace(" ", "")
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|min|s|m|h)", compact)
    if re.fullmatch(r"\d+(\.\d+)?", compact):
        seconds = float(compact)
    elif parts and "".join(number + unit for number, unit in parts) == compact:
        seconds = sum(float(number) * _UNITS_S[unit] for number, unit in parts)
    else:
        raise UsageError(f"{text!r} is no duration", hint="for example 30s, 5m or 1h30m")
    if seconds <= 0:
        raise UsageError(f"a duration of {text!r} measures nothing", hint="for example 30s")
    return seconds


def _other(source: Path) -> OtherModel:
    """A second model; it is refused as the first one would be."""
    files = _from_bundle(source, False) if source.is_dir() else _from_file(source, False)
    return OtherModel(files.name, files.kind, files.model, files.golden, files.golden_names)


def _golden(file: PlannedFile | None, names: dict[str, str]) -> dict[str, Any] | None:
    return None if file is None else {"path": f"../../{store_name(file)}", "names": names}


def store_name(file: PlannedFile) -> str:
    """Where a file lies in the board's store, by its content: the same bytes are sent once, by a benchmark or a push."""
    return blob_name(file.sha256)


def macs_of(path: Path) -> int | None:
    """Multiply-accumulates of one inference; None where an operator's cannot be counted, or nothing here can read the file."""
    from edgekit.intake import tflite
    from edgekit.intake.macs_tflite import count_macs

    try:
        model = tflite.read(path)
        return count_macs([tflite.graph(model, subgraph=number) for number in range(len(model.subgraphs))]).total
    except (EdgekitError, ImportError):
        return None


def planned(path: Path) -> PlannedFile:
    """``path`` with its size and sha256."""
    digest = hashlib.sha256()
    size_bytes = 0
    with open(path, "rb") as reader:
        while block := reader.read(1 << 20):
            digest.update(block)
            size_bytes += len(block)
    return PlannedFile(path, digest.hexdigest(), size_bytes)


@dataclasses.dataclass(frozen=True)
class _Files:
    """What the source holds; fields as in :class:`BenchPlan`."""

    name: str
    kind: str
    model: PlannedFile
    float_model: PlannedFile | None
    golden: PlannedFile | None
    golden_names: dict[str, str]
    manifest: Path | None


def _from_bundle(folder: Path, with_float: bool) -> _Files:
    bundle = read_bundle(folder)
    model = _model_file(bundle.model)
    if model.sha256 != bundle.sha256:
        raise ModelFileError(
            f"{bundle.model} has sha256 {model.sha256[:12]}..., its manifest says {bundle.sha256[:12]}...",
            code="bundle_damaged",
            hint="convert the model again",
        )
    float_path, golden_path = folder / FLOAT_FILE, folder / GOLDEN_FILE
    if with_float and not float_path.is_file():
        raise UsageError(f"{folder} holds no {FLOAT_FILE} to compare with", hint="run it without --with-float")
    return _Files(
        name=folder.resolve().name.removesuffix(".bundle"),
        kind="bundle",
        model=model,
        float_model=_model_file(float_path) if with_float else None,
        golden=planned(golden_path) if golden_path.is_file() else None,
        golden_names={spec.tensor: spec.name for spec in bundle.inputs},
        manifest=folder / MANIFEST_FILE,
    )


def _from_file(path: Path, with_float: bool) -> _Files:
    if with_float:
        raise UsageError(
            f"--with-float needs a bundle; {path} is a single file",
            hint="measure each file on its own, then edgekit compare",
        )
    return _Files(
        name=path.stem,
        kind="tflite",
        model=_model_file(path),
        float_model=None,
        golden=None,
        golden_names={},
        manifest=None,
    )


def _model_file(path: Path) -> PlannedFile:
    if not path.is_file():
        raise ModelFileError(f"{path} does not exist", code="model_file_missing")
    try:
        check_model_file(path)
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error.message}", hint=error.hint, code=error.code) from error
    except ValueError as error:  # an empty file cannot be mapped
        raise ModelFileError(f"{path} is empty") from error
    return planned(path)


def _word(name: str) -> str:
    """``name`` as part of a folder's name."""
    return re.sub(r"[^A-Za-z0-9._]+", "_", name).strip("._") or "model"
