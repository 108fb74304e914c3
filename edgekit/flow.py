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

from edgekit.bundle import folder, manifest
from edgekit.bundle.golden import PAIRS, golden_pairs, write_npz
from edgekit.calibrate.examine import Part, examine
from edgekit.calibrate.fingerprint import Fingerprint
from edgekit.calibrate.health import Health
from edgekit.calibrate.health import require as require_health
from edgekit.calibrate.profile import Profiler
from edgekit.calibrate.ranges import Ranges, observe, refuse_constant_input
from edgekit.calibrate.shapes import with_shapes_of_data
from edgekit.calibrate.sources import DataOptions, Dataset, Sample, open_dataset, sample_name, subset_labels
from edgekit.calibrate.split import Split, split, spread
from edgekit.calibrate.synthetic import SyntheticData
from edgekit.errors import DataError, UsageError
from edgekit.intake import preflight
from edgekit.intake.choose import Truth, choose
from edgekit.intake.door import Door, DoorOptions, Route, open_door
from edgekit.intake.formats import size_bytes
from edgekit.intake.probe import require_runs
from edgekit.intake.ready import ready
from edgekit.quantize import bias, litert
from edgekit.quantize.audit import Audit, audit, audit_float
from edgekit.quantize.contract import contract, weight_types
from edgekit.quantize.correct import NO_CORRECTIONS, Corrected, correct
from edgekit.quantize.recipe import FloatGates, Quantization, Recipe
from edgekit.rewrite.passes import rewrite
from edgekit.stages import Progress, Silent, StageRecord, Stages
from edgekit.values import SCHEMA, FloatModel, IoSpec, Preprocessing
from edgekit.verify import gates
from edgekit.verify.accuracy import Evaluation, evaluate
from edgekit.verify.parity import SAMPLES, Parity, parity
from edgekit.verify.parity import require as require_parity


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


@dataclass(frozen=True)
class _Data:
    calibration: Dataset
    evaluation: Dataset
    split: Split


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
            data = _open_data(request, door.inputs)
        imported = _rewrite(request, _to_float(request, door, data, work, stages), work, stages)
        imported = replace(imported, notes=(*warnings, *imported.notes))
        findings, int8_path = _quantized(request, imported, data, work, stages)
        with stages("write the bundle"):
            document = _fill(bundle, findings, int8_path, data, request)
            _report(bundle, document, stages.records)
            folder.publish(bundle, out, force=request.force)
    return ConvertResult(out, findings.passed, document, tuple(stages.records))


def plan(request: ConvertRequest) -> ConvertPlan:
    """Check model, data, recipe, front ends and output place, as :func:`convert` would, and write nothing there."""
    _check_out(request)
    _preflight(request)
    with tempfile.TemporaryDirectory(prefix="edgekit-plan-") as work, _open_door(request, Path(work)) as door:
        routes = door.routes()
        data = _open_data(request, door.inputs)
    calibrates = request.recipe.calibration is not None
    return ConvertPlan(
        inputs=door.inputs,
        calibration_source=data.calibration.source,
        calibration_count=len(data.split.calibration) if calibrates else 0,
        evaluation_source=data.evaluation.source,
        evaluation_count=0 if request.recipe.quantize is None else len(data.split.evaluation),
        parity_count=min(SAMPLES, len(data.split.calibration)),
        labelled=data.evaluation.labels is not None,
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


def _open_data(request: ConvertRequest, inputs: Sequence[IoSpec]) -> _Data:
    """Labels belong to the data that judge, and those are never the data that calibrate."""
    if request.recipe.quantize is None:
        return _open_parity_data(request, inputs)
    if request.recipe.calibration is None:
        return _open_judging_data(request, inputs)
    if request.data is None:
        raise UsageError(
            f"recipe {request.recipe.name} calibrates, and no --data were given",
            hint="give --data DATA (a folder of images, a .npz, a .npy, or module:function), or stop at float with --recipe float32",
            code="data_missing",
        )
    if request.eval_data is not None and _same_place(request.data, request.eval_data):
        raise DataError(
            f"--data and --eval-data are the same, {request.data}: what calibrated cannot judge",
            hint="leave out --eval-data: the data are then split into two parts that share no sample",
            code="data_overlap",
        )
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


def _open_parity_data(request: ConvertRequest, inputs: Sequence[IoSpec]) -> _Data:
    """Inputs for parity alone: of ``--data``, or made up. Raises UsageError for options that nothing would use."""
    unused = {
        "--eval-data": request.eval_data,
        "--labels": request.eval_labels,
        "--calibration": request.calibration_limit,
        "--evaluation": request.evaluation_limit,
    }
    given = [name for name, value in unused.items() if value is not None]
    if given:
        raise UsageError(
            f"recipe {request.recipe.name} stops at the float model: nothing is calibrated or judged with {', '.join(given)}",
            hint=f"leave out {', '.join(given)}, or choose another --recipe",
        )
    if request.data is None:
        dataset: Dataset = SyntheticData(inputs, seed=request.seed)
    else:
        dataset = open_dataset(request.data, inputs, _without_labels(request.options))
    chosen = spread(range(len(dataset)), SAMPLES, seed=request.seed)
    return _Data(dataset, dataset, Split(chosen, chosen, request.seed, same_data=False))


def _open_judging_data(request: ConvertRequest, inputs: Sequence[IoSpec]) -> _Data:
    """Where nothing calibrates, all data judge: ``--eval-data``, or else ``--data``."""
    name, place = request.recipe.name, request.eval_data or request.data
    if request.calibration_limit is not None:
        raise UsageError(f"recipe {name} calibrates nothing with --calibration", hint="leave out --calibration")
    if place is None:
        raise UsageError(
            f"recipe {name} needs no calibration, but data to judge the result on, and none were given",
            hint="give --data DATA (a folder of images, a .npz, a .npy, or module:function)",
            code="data_missing",
        )
    plain = _without_labels(request.options)
    dataset = open_dataset(place, inputs, DataOptions(**{**plain.__dict__, "labels": request.eval_labels}))
    chosen = split(
        count=len(dataset),
        evaluation_count=len(dataset),
        labelled=dataset.labels is not None,
        calibration_limit=None,
        evaluation_limit=request.evaluation_limit,
        seed=request.seed,
    )
    return _Data(dataset, dataset, chosen)


def _same_place(one: str, other: str) -> bool:
    return one == other or (Path(one).exists() and Path(other).exists() and Path(one).samefile(other))


def _without_labels(options: DataOptions) -> DataOptions:
    return DataOptions(**{**options.__dict__, "labels": None})


@dataclass(frozen=True)
class _Imported:
    """The float model that equals the source, what showed it, notes on the routes, and what the passes changed."""

    model: FloatModel
    truth: Truth
    parity: Parity
    notes: tuple[str, ...]
    rewrites: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def _to_float(request: ConvertRequest, door: Door, data: _Data, work: Path, stages: Stages) -> _Imported:
    """The float model of the first route whose result equals the source. Its front end starts while the source runs."""
    with ready(door.routes(), work=work, tick=stages.alive) as routes:
        return _first_equal(request, door, routes, data, work, stages)


def _first_equal(
    request: ConvertRequest, door: Door, routes: Sequence[Route], data: _Data, work: Path, stages: Stages
) -> _Imported:
    with stages("run the source model"):
        reference = door.reference(threads=request.threads)
        chosen = spread(data.split.calibration, SAMPLES, seed=request.seed)
        samples = list(data.calibration.iterate(chosen))
        outputs = [
            reference.run(sample, name=sample_name(data.calibration, index))
            for index, sample in zip(chosen, samples, strict=True)
        ]
        _check_class_names(request.options.class_names, outputs[0])
        truth = Truth(reference.name, samples, outputs)
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
        truth, limit_db = imported.truth, request.recipe.gates.parity_min_db
        equal = parity(done.model, truth.samples, truth.outputs, reference=truth.reference, limit_db=limit_db)
        require_parity(equal, done.model)
    return replace(imported, model=done.model, parity=equal, rewrites=done.changes)


def _check_class_names(names: Sequence[str], outputs: Sample) -> None:
    """Raises DataError when there are class names and not as many classes."""
    classes = {name: values.shape[1] for name, values in outputs.items() if values.ndim == 2}
    if names and len(classes) == 1 and len(names) not in classes.values():
        output, count = next(iter(classes.items()))
        raise DataError(
            f"--class-names holds {len(names)} names, and output {output!r} has {count} classes",
            hint="one name a line, in the order of the model's output",
        )


def _quantized(
    request: ConvertRequest, imported: _Imported, data: _Data, work: Path, stages: Stages
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
    )
    if isinstance(recipe.gates, FloatGates):
        return found, None
    ranges = None
    if recipe.calibration is not None:
        ranges, digest, health = _calibrate(request, imported.model, data, stages)
        found = replace(found, calibration=_calibration_record(data, digest, ranges), health=health)
    int8_path, repairs = _quantize(request, imported.model, ranges, work, stages)
    if ranges is not None:
        corrected = _correct(request, imported.model, int8_path, ranges, data, stages)
        found = replace(found, ranges=corrected.ranges, corrections=corrected.corrections)
    audited = _audit(request, int8_path, stages)
    evaluation = _evaluate(imported.model, int8_path, data, stages)
    wanted = contract(recipe.quantize or Quantization())
    verdicts = gates.judge(recipe.gates, audited, evaluation, wanted, weight_types(int8_path))
    found = replace(
        found,
        audit=audited,
        evaluation=evaluation,
        gates=verdicts,
        passed=gates.all_passed(verdicts, allow_undecided=request.allow_undecided),
        repairs=repairs,
    )
    return found, int8_path


def _calibrate(request: ConvertRequest, model: FloatModel, data: _Data, stages: Stages) -> tuple[Ranges, str, Health]:
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


def _quantize(
    request: ConvertRequest, model: FloatModel, ranges: Ranges | None, work: Path, stages: Stages
) -> tuple[Path, tuple[bias.Repair, ...]]:
    with stages("quantize"):
        int8_path = litert.quantize(
            model.path,
            ranges,
            work=work,
            timeout_s=request.timeout_s,
            scheme=request.recipe.quantize or Quantization(),
        )
        return int8_path, bias.repair(int8_path, model.path)


def _correct(
    request: ConvertRequest, model: FloatModel, int8_path: Path, ranges: Ranges, data: _Data, stages: Stages
) -> Corrected:
    """Better ranges, weights and biases in place, where the recipe wants them."""
    calibration, chosen = request.recipe.calibration, data.split.calibration
    ranges_by = "min-max" if calibration is None else calibration.ranges
    if request.recipe.corrections is None and ranges_by == "min-max":
        return Corrected(None, ranges)
    with stages("correct"):
        return correct(
            model,
            int8_path,
            ranges,
            lambda positions: list(data.calibration.iterate([chosen[i] for i in positions])),
            request.recipe.corrections or NO_CORRECTIONS,
            ranges_by=ranges_by,
            seed=request.seed,
            threads=request.threads,
            alive=stages.alive,
        )


def _audit(request: ConvertRequest, int8_path: Path, stages: Stages) -> Audit:
    with stages("audit"):
        require_runs(int8_path, what="the quantised model", timeout_s=request.timeout_s)
        return audit(int8_path)


def _evaluate(model: FloatModel, int8_path: Path, data: _Data, stages: Stages) -> Evaluation:
    judged = data.split.evaluation
    with stages("evaluate", len(judged)):
        return evaluate(
            model,
            int8_path,
            data.evaluation.iterate(judged),
            labels=subset_labels(data.evaluation, judged),
            source=data.evaluation.source,
            progress=stages.step,
        )


def _calibration_record(data: _Data, digest: str, ranges: Ranges) -> manifest.CalibrationRecord:
    indices = data.split.calibration if data.split.same_data else None
    return manifest.CalibrationRecord(data.calibration.source, ranges.count, digest, data.split.seed, indices)


def _fill(
    bundle: Path, findings: manifest.Findings, int8_path: Path | None, data: _Data, request: ConvertRequest
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
