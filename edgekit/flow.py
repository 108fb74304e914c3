"""The way through the house: :func:`convert` is its table of contents, each stage a function of what came before."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from edgekit.bundle import folder, manifest
from edgekit.bundle.golden import PAIRS, golden_pairs, write_npz
from edgekit.calibrate.ranges import Ranges, observe, refuse_constant_input
from edgekit.calibrate.sources import DataOptions, Dataset, Sample, open_dataset, subset_labels
from edgekit.calibrate.split import Split, split
from edgekit.errors import ConversionError, EdgekitError, ParityError, UnsupportedModelError
from edgekit.intake import frontends, onnx
from edgekit.intake.formats import FORMATS, detect_format
from edgekit.intake.probe import require_runs
from edgekit.quantize import bias, litert
from edgekit.quantize.audit import audit
from edgekit.quantize.recipe import Recipe
from edgekit.values import SCHEMA, FloatModel, IoSpec, Preprocessing
from edgekit.verify import gates
from edgekit.verify.accuracy import evaluate
from edgekit.verify.parity import SAMPLES, Parity, parity
from edgekit.verify.parity import require as require_parity
from edgekit.verify.reference import OnnxReference


class Progress(Protocol):
    """Who wants to know how far a long run is. The library itself never prints."""

    def stage(self, name: str, total: int | None) -> None:
        """A stage begins; ``total`` is its number of steps where that is known."""

    def step(self, done: int) -> None:
        """So many steps of the stage are done; also called without an advance, as a sign of life."""


class Silent:
    """Nobody wants to know."""

    def stage(self, name: str, total: int | None) -> None:
        """Nothing."""

    def step(self, done: int) -> None:
        """Nothing."""


@dataclass(frozen=True)
class ConvertRequest:
    """What to convert, with what data, to where. Fields are the options of ``edgekit convert``."""

    model: Path
    data: str
    out: Path
    recipe: Recipe
    eval_data: str | None = None
    options: DataOptions = field(default_factory=DataOptions)
    eval_labels: str | None = None
    input_shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    calibration_limit: int | None = None
    evaluation_limit: int | None = None
    frontend: str | None = None
    seed: int = 0
    threads: int = 0
    timeout_s: float = 1800.0
    force: bool = False
    allow_undecided: bool = False


@dataclass(frozen=True)
class StageRecord:
    """How long a stage took, and the peak memory of the child process that did its work, where there was one."""

    name: str
    seconds: float
    peak_rss_bytes: int | None = None


@dataclass(frozen=True)
class ConvertResult:
    """The bundle, whether every gate passed, and what it says of itself."""

    bundle: Path
    passed: bool
    manifest: dict[str, Any]
    stages: tuple[StageRecord, ...]


@dataclass(frozen=True)
class ConvertPlan:
    """What a conversion would do, found out without converting."""

    inputs: tuple[IoSpec, ...]
    calibration_source: str
    calibration_count: int
    evaluation_source: str
    evaluation_count: int
    labelled: bool
    frontends: tuple[str, ...]
    recipe: str


@dataclass(frozen=True)
class _Data:
    calibration: Dataset
    evaluation: Dataset
    split: Split


def convert(request: ConvertRequest, progress: Progress | None = None) -> ConvertResult:
    """Source model to verified int8 bundle at ``request.out``.

    The bundle appears as a whole at the end, or not at all. With a failed gate it holds ``rejected.tflite`` instead of
    ``model.tflite``. Raises the errors of the stages; the source file is only ever read.
    """
    stages = _Stages(progress or Silent())
    _require_onnx(request.model)
    out = request.out
    _check_out(request)
    routes = _routes(request)
    with folder.staging(out) as place:
        work, bundle = place / "work", place / "bundle"
        work.mkdir()
        bundle.mkdir()
        with stages("read the model"):
            source = onnx.prepare(request.model, input_shapes=request.input_shapes, work=work)
        with stages("open the data"):
            data = _open_data(request, source.inputs)
        model, equal, notes = _to_float(request, source, routes, data, work, stages)
        ranges, digest = _calibrate(request, model, data, stages)
        with stages("quantize"):
            int8_path = litert.quantize(model.path, ranges, work=work, timeout_s=request.timeout_s)
            repairs = bias.repair(int8_path, model.path)
        with stages("audit"):
            audited = audit(int8_path)
            require_runs(int8_path, what="the quantised model", timeout_s=request.timeout_s)
        judged = data.split.evaluation
        with stages("evaluate", len(judged)):
            evaluation = evaluate(
                model,
                int8_path,
                data.evaluation.iterate(judged),
                labels=subset_labels(data.evaluation, judged),
                source=data.evaluation.source,
                progress=stages.step,
            )
        verdicts = gates.judge(request.recipe.gates, audited, evaluation)
        findings = manifest.Findings(
            model=model,
            recipe=request.recipe,
            preprocessing=request.options.preprocessing,
            calibration=_calibration_record(data, digest, ranges),
            ranges=ranges,
            audit=audited,
            parity=equal,
            evaluation=evaluation,
            gates=verdicts,
            passed=gates.all_passed(verdicts, allow_undecided=request.allow_undecided),
            route_notes=notes,
            repairs=repairs,
        )
        with stages("write the bundle"):
            document = _fill(bundle, findings, int8_path, data, request)
            _report(bundle, document, stages.records)
            folder.publish(bundle, out)
    return ConvertResult(out, findings.passed, document, tuple(stages.records))


def plan(request: ConvertRequest) -> ConvertPlan:
    """Check model, data, recipe, front ends and output place, as :func:`convert` would, and write nothing there."""
    _require_onnx(request.model)
    _check_out(request)
    routes = _routes(request)
    with tempfile.TemporaryDirectory(prefix="edgekit-plan-") as work:
        source = onnx.prepare(request.model, input_shapes=request.input_shapes, work=Path(work))
        data = _open_data(request, source.inputs)
    return ConvertPlan(
        inputs=source.inputs,
        calibration_source=data.calibration.source,
        calibration_count=len(data.split.calibration),
        evaluation_source=data.evaluation.source,
        evaluation_count=len(data.split.evaluation),
        labelled=data.evaluation.labels is not None,
        frontends=tuple(route.name for route in routes),
        recipe=request.recipe.name,
    )


def _check_out(request: ConvertRequest) -> None:
    # Working files: the private copies, the front end's float and float16 files, the float and int8 models.
    folder.check_target(request.out, force=request.force, needed_bytes=6 * request.model.stat().st_size + 4_000_000)


def _routes(request: ConvertRequest) -> list[frontends.Frontend]:
    return frontends.require([request.frontend] if request.frontend else onnx.ROUTES)


class _Stages:
    """Announces each stage to the listener and keeps its time."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self.records: list[StageRecord] = []

    @contextmanager
    def __call__(self, name: str, total: int | None = None) -> Iterator[None]:
        self._progress.stage(name, total)
        started = time.monotonic()
        yield
        self.records.append(StageRecord(name, round(time.monotonic() - started, 3)))

    def step(self, done: int) -> None:
        self._progress.step(done)

    def child_peak(self, peak_rss_bytes: int | None) -> None:
        """The stage that just ended was done by a child process of this peak memory."""
        last = self.records[-1]
        self.records[-1] = StageRecord(last.name, last.seconds, peak_rss_bytes)


def _require_onnx(path: Path) -> None:
    kind = detect_format(path)
    if kind != "onnx":
        raise UnsupportedModelError(
            f"{path.name} is a {FORMATS.get(kind, kind)}, and this version converts ONNX models",
            hint="export the network to ONNX (PyTorch: torch.onnx.export) and convert that",
        )


def _open_data(request: ConvertRequest, inputs: Sequence[IoSpec]) -> _Data:
    """Labels belong to the data that judge."""
    plain = _without_labels(request.options)
    labelled = DataOptions(**{**plain.__dict__, "labels": request.eval_labels})
    if request.eval_data is None:
        calibration = evaluation = open_dataset(request.data, inputs, labelled)
    else:
        calibration = open_dataset(request.data, inputs, plain)
        evaluation = open_dataset(request.eval_data, inputs, labelled)
    chosen = split(
        count=len(calibration),
        evaluation_count=None if request.eval_data is None else len(evaluation),
        labelled=evaluation.labels is not None,
        calibration_limit=request.calibration_limit,
        evaluation_limit=request.evaluation_limit,
        seed=request.seed,
    )
    return _Data(calibration, evaluation, chosen)


def _without_labels(options: DataOptions) -> DataOptions:
    return DataOptions(**{**options.__dict__, "labels": None})


def _to_float(
    request: ConvertRequest,
    source: onnx.OnnxSource,
    routes: Sequence[frontends.Frontend],
    data: _Data,
    work: Path,
    stages: _Stages,
) -> tuple[FloatModel, Parity, tuple[str, ...]]:
    """The float model of the first front end whose result equals the source, with the parity found and notes on the others."""
    with stages("run the source model"):
        reference = OnnxReference(source.copy, source.output_names, threads=request.threads)
        samples = list(data.calibration.iterate(_spread(data.split.calibration, SAMPLES)))
        references = [reference.run(sample) for sample in samples]
        name = reference.name
        del reference  # its memory is not needed beside the converter's
    notes: list[str] = []
    failures: list[ConversionError] = []
    for frontend in routes:
        try:
            with stages(f"convert to float ({frontend.name})"):
                model, converted = onnx.to_float(
                    source,
                    frontend,
                    samples=samples,
                    references=references,
                    work=work,
                    timeout_s=request.timeout_s,
                    tick=lambda: stages.step(0),
                )
            stages.child_peak(converted.peak_rss_bytes)
            with stages("check parity"):
                limit = request.recipe.gates.parity_min_db
                equal = parity(model, samples, references, reference=name, limit_db=limit)
                require_parity(equal, frontend.name)
        except ConversionError as error:
            notes.append(f"{frontend.name}: {error.message}")
            failures.append(error)
            continue
        notes.append(f"{frontend.name}: equals the source" + (" (simplified first)" if converted.simplified else ""))
        return model, equal, tuple(notes)
    raise _no_route(failures, routes)


def _no_route(failures: Sequence[ConversionError], routes: Sequence[frontends.Frontend]) -> EdgekitError:
    """The last failure, with the earlier ones in its details and the route that was not there in its hint."""
    last = failures[-1]
    others = [name for name in onnx.ROUTES if name not in {route.name for route in routes}]
    wrong = [error for error in failures if isinstance(error, ParityError)]
    worst = wrong[0] if wrong else last
    size = frontends.KINDS[others[0]].size_mb if others else 0
    more = (
        f"the front end {others[0]} may do better: edgekit frontend add {others[0]} (about {size} MB)" if others else ""
    )
    return type(worst)(
        worst.message,
        hint=" ".join(part for part in (worst.hint, more) if part),
        code=worst.code,
        details={**worst.details, "routes": [error.message for error in failures]},
    )


def _calibrate(request: ConvertRequest, model: FloatModel, data: _Data, stages: _Stages) -> tuple[Ranges, str]:
    digest = hashlib.sha256()

    def hashed(samples: Iterable[Sample]) -> Iterator[Sample]:
        for sample in samples:
            for name in sorted(sample):
                digest.update(name.encode() + np.ascontiguousarray(sample[name]).tobytes())
            yield sample

    chosen = data.split.calibration
    with stages("calibrate", len(chosen)):
        ranges = observe(model, hashed(data.calibration.iterate(chosen)), threads=request.threads, progress=stages.step)
        refuse_constant_input(model, ranges)
    return ranges, digest.hexdigest()


def _calibration_record(data: _Data, digest: str, ranges: Ranges) -> manifest.CalibrationRecord:
    indices = data.split.calibration if data.split.same_data else None
    return manifest.CalibrationRecord(data.calibration.source, ranges.count, digest, data.split.seed, indices)


def _spread(indices: Sequence[int], size: int) -> list[int]:
    """At most ``size`` of ``indices``, evenly spread: data often lie in class order."""
    if len(indices) <= size:
        return list(indices)
    return [indices[(i * len(indices)) // size] for i in range(size)]


def _fill(
    bundle: Path, findings: manifest.Findings, int8_path: Path, data: _Data, request: ConvertRequest
) -> dict[str, Any]:
    """Everything in the bundle but the report, and the manifest that describes it."""
    shutil.copyfile(int8_path, bundle / (manifest.MODEL if findings.passed else manifest.REJECTED))
    shutil.copyfile(findings.model.path, bundle / manifest.FLOAT)
    pairs = data.evaluation.iterate(_spread(data.split.evaluation, PAIRS))
    write_npz(bundle / "golden.npz", golden_pairs(findings.model, int8_path, pairs))
    if request.options.class_names:
        (bundle / "labels.txt").write_text("\n".join(request.options.class_names) + "\n", encoding="utf-8")
    delivered = manifest.delivered_io(findings.model, int8_path)
    document = manifest.build(findings, request.model.stem, bundle, delivered)
    manifest.write_json(bundle / "manifest.json", document)
    return document


def _report(bundle: Path, document: dict[str, Any], records: Sequence[StageRecord]) -> None:
    from edgekit.report.html import write_bundle_report

    report = {
        "schema": SCHEMA,
        "kind": "bundle",
        "name": document["model"]["name"],
        "created_utc": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "manifest": document,
        "stages": [record.__dict__ for record in records],
    }
    manifest.write_json(bundle / "report.json", report)
    write_bundle_report(report, bundle / "report.html")


def preprocessing_of(recipe: Recipe, given: Preprocessing | None) -> Preprocessing | None:
    """What the command line says, or else the recipe."""
    return given if given is not None else recipe.preprocessing


__all__ = [
    "ConvertPlan",
    "ConvertRequest",
    "ConvertResult",
    "Progress",
    "Silent",
    "StageRecord",
    "convert",
    "plan",
    "preprocessing_of",
]
