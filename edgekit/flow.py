"""The way through the house: :func:`convert` is its table of contents, each stage a function of what came before."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from edgekit.bundle import folder, lock, manifest
from edgekit.bundle.golden import PAIRS, golden_pairs, write_npz
from edgekit.calibrate.examine import Part, examine
from edgekit.calibrate.fingerprint import Fingerprint
from edgekit.calibrate.health import Health
from edgekit.calibrate.health import require as require_health
from edgekit.calibrate.opening import OpenData, open_data, require_class_names
from edgekit.calibrate.profile import Profiler
from edgekit.calibrate.ranges import Ranges, observe, refuse_constant_input
from edgekit.calibrate.shapes import with_shapes_of_data
from edgekit.calibrate.sources import DataOptions, is_labelled, sample_name
from edgekit.calibrate.split import spread
from edgekit.calibrate.synthetic import SyntheticData
from edgekit.errors import UsageError
from edgekit.intake import preflight
from edgekit.intake.choose import Truth, choose, recomputed
from edgekit.intake.door import Door, DoorOptions, Route, open_door
from edgekit.intake.formats import size_bytes
from edgekit.intake.probe import require_runs
from edgekit.intake.ready import ready
from edgekit.quantize.audit import Audit, audit, audit_float
from edgekit.quantize.contract import contract, weight_types
from edgekit.quantize.correct import NO_CORRECTIONS, Corrected, correct
from edgekit.quantize.engine import Made, make
from edgekit.quantize.islands import islands
from edgekit.quantize.recipe import FloatGates, Quantization, Recipe
from edgekit.quantize.soundness import unsound
from edgekit.quantize.uint8_ends import to_uint8
from edgekit.rewrite.passes import rewrite
from edgekit.rewrite.split_heads import LEVELS, mixed_heads, split_heads
from edgekit.stages import Progress, Silent, StageRecord, Stages
from edgekit.values import SCHEMA, FloatModel, IoSpec, Preprocessing
from edgekit.verify import gates
from edgekit.verify.accuracy import Evaluation, evaluate, task
from edgekit.verify.parity import SAMPLES, Parity


@dataclass(frozen=True)
class ConvertRequest:
    """What to convert, with what data, to where. Fields are the options of ``edgekit convert``.

    ``data`` may be None where the recipe calibrates nothing.
    """

    model: Path
    data: str | None
    out: Path
    recipe: Recipe
    eval_data: str | None = None
    options: DataOptions = field(default_factory=DataOptions)
    eval_labels: str | None = None
    decode: str | None = None
    input_shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    calibration_limit: int | None = None
    evaluation_limit: int | None = None
    frontend: str | None = None
    signature: str | None = None
    seed: int = 0
    threads: int = 0
    timeout_s: float = 1800.0
    force: bool = False
    allow_undecided: bool = False
    keep_layout: bool = False
    keep_outputs: bool = False
    locked: Mapping[str, Any] | None = None
    """A manifest whose conversion is to be repeated to the same bytes (:mod:`edgekit.bundle.lock`)."""


@dataclass(frozen=True)
class ConvertResult:
    """The bundle, whether every gate passed, and what it says of itself."""

    bundle: Path
    passed: bool
    manifest: dict[str, Any]
    stages: tuple[StageRecord, ...]


@dataclass(frozen=True)
class ConvertPlan:
    """What a conversion would do, found out without converting. Where nothing is calibrated those counts are 0."""

    inputs: tuple[IoSpec, ...]
    calibration_source: str
    calibration_count: int
    evaluation_source: str
    evaluation_count: int
    parity_count: int
    labelled: bool
    frontends: tuple[str, ...]
    recipe: str


def convert(request: ConvertRequest, progress: Progress | None = None) -> ConvertResult:
    """Source model to verified bundle at ``request.out``: int8, or float where the recipe quantises nothing.

    The bundle appears as a whole at the end, or not at all. With a failed gate it holds ``rejected.tflite`` instead of
    ``model.tflite``. Raises the errors of the stages; the source file is only ever read.
    """
    stages = Stages(progress or Silent())
    out = request.out
    _check_out(request)
    with folder.staging(out) as place, ExitStack() as opened:
        work, bundle = place / "work", place / "bundle"
        work.mkdir()
        bundle.mkdir()
        with stages("pre-flight"):
            warnings = _preflight(request)
        with stages("read the model"):
            door = opened.enter_context(_open_door(request, work, stages.alive))
        with stages("open the data"):
            data = open_data(request, door.inputs)
        imported = _rewrite(request, _to_float(request, door, data, work, stages), work, stages)
        imported = replace(imported, notes=(*warnings, *imported.notes))
        if request.locked is not None:
            lock.require_source(request.locked, imported.model.source)
        findings, int8_path = _quantized(request, imported, data, work, stages)
        with stages("write the bundle"):
            document = _fill(bundle, findings, int8_path, data, request)
            if request.locked is not None:
                lock.require_same(request.locked, document)
            _report(bundle, document, stages.records)
            folder.publish(bundle, out, force=request.force)
    return ConvertResult(out, findings.passed, document, tuple(stages.records))


def plan(request: ConvertRequest) -> ConvertPlan:
    """Check model, data, recipe, front ends and output place, as :func:`convert` would, and write nothing there."""
    _check_out(request)
    _preflight(request)
    with tempfile.TemporaryDirectory(prefix="edgekit-plan-") as work, _open_door(request, Path(work)) as door:
        routes = door.routes()
        data = open_data(request, door.inputs)
    calibrates = request.recipe.calibration is not None
    return ConvertPlan(
        inputs=door.inputs,
        calibration_source=data.calibration.source,
        calibration_count=len(data.split.calibration) if calibrates else 0,
        evaluation_source=data.evaluation.source,
        evaluation_count=0 if request.recipe.quantize is None else len(data.split.evaluation),
        parity_count=min(SAMPLES, len(data.split.calibration)),
        labelled=is_labelled(data.evaluation),
        frontends=tuple(route.name for route in routes),
        recipe=request.recipe.name,
    )


def _check_out(request: ConvertRequest) -> None:
    # Working files: the private copies, the front end's float and float16 files, the float and int8 models.
    needed_bytes = 6 * size_bytes(request.model) + 4_000_000
    folder.check_target(request.out, force=request.force, needed_bytes=needed_bytes)


def _preflight(request: ConvertRequest) -> tuple[str, ...]:
    """What may go wrong, in sentences. Raises UnsupportedModelError for what certainly will."""
    findings = preflight.preflight(request.model)
    preflight.require(findings, request.model)
    return preflight.remarks(findings)


def _open_door(request: ConvertRequest, work: Path, tick: Callable[[], None] = lambda: None) -> Door:
    options = DoorOptions(
        work=work,
        input_shapes=request.input_shapes,
        frontend=request.frontend,
        signature=request.signature,
        timeout_s=request.timeout_s,
        tick=tick,
    )
    try:
        return open_door(request.model, options)
    except UsageError as error:
        if error.code != "input_shape_open":
            raise
        raise with_shapes_of_data(error, request.data, request.options.preprocessing) from None


@dataclass(frozen=True)
class _Imported:
    """The float model that equals the source, what showed it, notes on the routes, and what the passes changed."""

    model: FloatModel
    truth: Truth
    parity: Parity
    notes: tuple[str, ...]
    rewrites: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def _to_float(request: ConvertRequest, door: Door, data: OpenData, work: Path, stages: Stages) -> _Imported:
    """The float model of the first route whose result equals the source. Its front end starts while the source runs."""
    with ready(door.routes(), work=work, tick=stages.alive) as routes:
        return _first_equal(request, door, routes, data, work, stages)


def _first_equal(
    request: ConvertRequest, door: Door, routes: Sequence[Route], data: OpenData, work: Path, stages: Stages
) -> _Imported:
    with stages("run the source model"):
        reference = door.reference(threads=request.threads)
        chosen = spread(data.split.calibration, SAMPLES, seed=request.seed)
        samples = list(data.calibration.iterate(chosen))
        outputs = [
            reference.run(sample, name=sample_name(data.calibration, index))
            for index, sample in zip(chosen, samples, strict=True)
        ]
        require_class_names(request.options.class_names, outputs[0])
        made_up = isinstance(data.calibration, SyntheticData)
        truth = Truth(reference.name, samples, outputs, made_up, recomputed(door, samples, outputs))
        del reference  # its memory is not needed beside the converter's
    limit_db = request.recipe.gates.parity_min_db
    model, equal, notes = choose(
        door, routes, truth, limit_db=limit_db, work=work, timeout_s=request.timeout_s, stages=stages
    )
    return _Imported(model, truth, equal, notes)


def _rewrite(request: ConvertRequest, imported: _Imported, work: Path, stages: Stages) -> _Imported:
    """The float model after the passes, judged against the source once more where they changed something."""
    with stages("rewrite"):
        done = rewrite(imported.model, to=work / "rewritten.tflite", keep_layout=request.keep_layout)
        if not done.changes:
            return imported
        require_runs(done.model.path, what="the rewritten float model", timeout_s=request.timeout_s)
        equal = imported.truth.judged(done.model, limit_db=request.recipe.gates.parity_min_db)
    return replace(imported, model=done.model, parity=equal, rewrites=done.changes)


def _quantized(
    request: ConvertRequest, imported: _Imported, data: OpenData, work: Path, stages: Stages
) -> tuple[manifest.Findings, Path | None]:
    """All that is to be known about the result, and the int8 file; None where the recipe quantises nothing."""
    recipe = request.recipe
    found = manifest.Findings(
        model=imported.model,
        recipe=recipe,
        preprocessing=request.options.preprocessing,
        audit=audit_float(imported.model.path),
        parity=imported.parity,
        gates=gates.judge_float(imported.parity),
        passed=imported.parity.passed,
        route_notes=imported.notes,
        parity_source=data.calibration.source,
        synthetic=isinstance(data.calibration, SyntheticData),
        rewrites=imported.rewrites,
        request=lock.options(request),
    )
    if isinstance(recipe.gates, FloatGates):
        return found, None
    ranges = None
    if recipe.calibration is not None:
        ranges, digest, health = _calibrate(request, imported.model, data, stages)
        found = replace(found, calibration=_calibration_record(data, digest, ranges), health=health)
        imported, ranges = _split_heads(request, imported, ranges, data, work, stages)
        found = replace(found, model=imported.model, route_notes=imported.notes, rewrites=imported.rewrites)
    made = _quantize(request, imported.model, ranges, work, stages)
    int8_path = made.path
    if ranges is not None:
        corrected = _correct(request, imported.model, int8_path, ranges, data, work, stages)
        found = replace(found, ranges=corrected.ranges, corrections=corrected.corrections)
    if (recipe.quantize or Quantization()).io == "uint8":
        to_uint8(int8_path)
    audited = _audit(request, int8_path, stages)
    evaluation, judged = _evaluate(request, imported.model, int8_path, data, stages)
    wanted = contract(recipe.quantize or Quantization())
    verdicts = gates.judge(recipe.gates, audited, evaluation, wanted, weight_types(int8_path), unsound(int8_path))
    found = replace(
        found,
        audit=audited,
        evaluation=evaluation,
        judged=judged,
        gates=verdicts,
        passed=gates.all_passed(verdicts, allow_undecided=request.allow_undecided),
        repairs=made.repairs,
        closing=made.closing,
        islands=islands(int8_path, imported.model.tensor_sources) if wanted.integer else (),
    )
    return found, int8_path


def _calibrate(
    request: ConvertRequest, model: FloatModel, data: OpenData, stages: Stages
) -> tuple[Ranges, str, Health]:
    """Ranges and digest of the calibration data, and their health; raises DataError where the health check refuses them."""
    fingerprint, profiler = Fingerprint(), Profiler(model.inputs)
    chosen = data.split.calibration
    with stages("calibrate", len(chosen)):
        ranges = observe(
            model,
            profiler.over(fingerprint.over(data.calibration.iterate(chosen))),
            threads=request.threads,
            progress=stages.step,
            name_of=lambda count: sample_name(data.calibration, chosen[count]),
        )
        refuse_constant_input(model, ranges)
        fingerprint.refuse_repetition()
    with stages("check the data"):
        health = examine(
            model,
            profiler.profiles(),
            ranges,
            calibration=Part(data.calibration, chosen),
            verification=Part(data.evaluation, data.split.evaluation),
            preprocessing=request.options.preprocessing,
            seed=request.seed,
            threads=request.threads,
            alive=lambda _: stages.alive(),
        )
        require_health(health)
    return ranges, fingerprint.digest, health


def _split_heads(
    request: ConvertRequest, imported: _Imported, ranges: Ranges, data: OpenData, work: Path, stages: Stages
) -> tuple[_Imported, Ranges]:
    """The float model with the parts of a mixed output as outputs, and the ranges of what is in it; unless that was refused."""
    levels = LEVELS.get((request.recipe.quantize or Quantization()).activations)
    if levels is None:
        return imported, ranges
    with stages("split heads"):
        if request.keep_outputs:
            said = mixed_heads(imported.model, ranges.by_tensor, levels=levels)
            notes = (f"{words}: kept whole as asked, at one scale that is coarse for the narrow ones" for words in said)
            return replace(imported, notes=(*imported.notes, *notes)), ranges
        proof = spread(data.split.calibration, PAIRS, seed=request.seed)
        done = split_heads(
            imported.model,
            ranges.by_tensor,
            data.calibration.iterate(proof),
            levels=levels,
            to=work / "split.tflite",
        )
    if done is None:
        return imported, ranges
    rewrites = {**imported.rewrites, "split_heads": done.changes}
    left = replace(ranges, by_tensor=done.left(ranges.by_tensor), histograms=done.left(ranges.histograms))
    return replace(imported, model=done.model, rewrites=rewrites), left


def _quantize(request: ConvertRequest, model: FloatModel, ranges: Ranges | None, work: Path, stages: Stages) -> Made:
    with stages("quantize"):
        return _engine(request, model.path, ranges, work)


def _engine(request: ConvertRequest, float_path: Path, ranges: Ranges | None, work: Path) -> Made:
    scheme = request.recipe.quantize or Quantization()
    return make(float_path, ranges, work=work, timeout_s=request.timeout_s, scheme=scheme)


def _correct(
    request: ConvertRequest,
    model: FloatModel,
    int8_path: Path,
    ranges: Ranges,
    data: OpenData,
    work: Path,
    stages: Stages,
) -> Corrected:
    """Better ranges, weights and biases in place, where the recipe wants them."""
    calibration, chosen = request.recipe.calibration, data.split.calibration
    ranges_by = "min-max" if calibration is None else calibration.ranges
    if request.recipe.corrections is None and ranges_by == "min-max":
        return Corrected(None, ranges)
    again = work / "again"
    again.mkdir()
    with stages("correct"):
        return correct(
            model,
            int8_path,
            ranges,
            lambda positions: data.calibration.iterate([chosen[i] for i in positions]),
            lambda path, found: _engine(request, path, found, again).with_repairs,
            request.recipe.corrections or NO_CORRECTIONS,
            ranges_by=ranges_by,
            seed=request.seed,
            threads=request.threads,
            work=again,
            alive=stages.alive,
        )


def _audit(request: ConvertRequest, int8_path: Path, stages: Stages) -> Audit:
    with stages("audit"):
        require_runs(int8_path, what="the quantised model", timeout_s=request.timeout_s)
        return audit(int8_path)


def _evaluate(
    request: ConvertRequest, model: FloatModel, int8_path: Path, data: OpenData, stages: Stages
) -> tuple[Evaluation, manifest.JudgedRecord]:
    judged, fingerprint = data.split.evaluation, Fingerprint()
    with stages("evaluate", len(judged)):
        found = evaluate(
            model,
            int8_path,
            fingerprint.over(data.evaluation.iterate(judged)),
            task=task(model, data.evaluation, judged, metric=request.options.metric, decode=request.decode),
            source=data.evaluation.source,
            seed=request.seed,
            progress=stages.step,
        )
    return found, manifest.JudgedRecord(data.evaluation.source, len(judged), fingerprint.digest)


def _calibration_record(data: OpenData, digest: str, ranges: Ranges) -> manifest.CalibrationRecord:
    indices = data.split.calibration if data.split.same_data else None
    return manifest.CalibrationRecord(data.calibration.source, ranges.count, digest, data.split.seed, indices)


def _fill(
    bundle: Path, findings: manifest.Findings, int8_path: Path | None, data: OpenData, request: ConvertRequest
) -> dict[str, Any]:
    """Everything in the bundle but the report, and the manifest that describes it."""
    delivered_path = int8_path or findings.model.path
    shutil.copyfile(delivered_path, bundle / (manifest.MODEL if findings.passed else manifest.REJECTED))
    if int8_path is not None:
        shutil.copyfile(findings.model.path, bundle / manifest.FLOAT)
    pairs = data.evaluation.iterate(spread(data.split.evaluation, PAIRS, seed=request.seed))
    write_npz(bundle / "golden.npz", golden_pairs(findings.model, int8_path, pairs))
    if request.options.class_names:
        (bundle / "labels.txt").write_text("\n".join(request.options.class_names) + "\n", encoding="utf-8")
    delivered = manifest.delivered_io(findings.model, delivered_path)
    document = manifest.build(findings, findings.model.source.path.stem, bundle, delivered)
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
