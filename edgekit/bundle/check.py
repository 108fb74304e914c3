"""Everything that a bundle says of itself, checked again: files, seal, operators, ends, golden pairs, gates, report; and on data."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.bundle import manifest
from edgekit.bundle.rebuild import rebuild
from edgekit.calibrate.arrays import UNREADABLE
from edgekit.errors import EdgekitError, ModelFileError
from edgekit.intake.probe import require_runs
from edgekit.quantize.audit import Audit, audit, audit_float
from edgekit.quantize.contract import contract, weight_types
from edgekit.quantize.recipe import FloatGates, Recipe
from edgekit.quantize.soundness import unsound
from edgekit.runtime.backend import open_backend
from edgekit.values import SCHEMA, FloatModel, IoSpec, Joined, SourceModel, to_json
from edgekit.verify import gates
from edgekit.verify.accuracy import Evaluation, Int8Result, run, whole
from edgekit.verify.intervals import Accuracy
from edgekit.verify.measures import ratio_db
from edgekit.verify.parity import Parity

GOLDEN_FLOAT_DB = 80.0
"""Other machines round float sums differently; a model that is another one is far below this."""
GOLDEN_STEPS = 1
"""Steps by which an integer output may differ: kernels of other machines round some halves the other way."""
REPORTS = ("manifest.json", "report.html", "report.json")


@dataclass(frozen=True)
class Check:
    """One thing that was checked: what was found, and whether it is as the manifest says."""

    name: str
    passed: bool
    message: str


@dataclass(frozen=True)
class Checked:
    """All checks of a bundle. ``delivered``: the gates passed when it was made. ``notes``: what differs and proves nothing."""

    name: str
    delivered: bool
    checks: tuple[Check, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def passed(self) -> bool:
        """Everything is as the manifest says, and the model had passed."""
        return self.delivered and all(check.passed for check in self.checks)


def load_manifest(bundle: Path) -> dict[str, Any]:
    """The manifest of the folder (or the file itself). Raises ModelFileError where there is none that can be read."""
    path = bundle if bundle.is_file() else bundle / "manifest.json"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelFileError(
            f"{bundle} is no bundle: {path.name} cannot be read ({error})",
            hint="give the folder that edgekit convert made",
        ) from error
    needed = {"schema", "model", "files", "recipe", "inputs", "outputs", "verification", "request"}
    if not isinstance(document, dict) or not needed <= document.keys():
        raise ModelFileError(f"{path} is no manifest of edgekit", hint="give the folder that edgekit convert made")
    if document["schema"] != SCHEMA:
        raise ModelFileError(
            f"{path} has schema {document['schema']}, and this edgekit reads {SCHEMA}",
            hint="use the edgekit that made it",
        )
    return document


def check(bundle: Path, *, timeout_s: float = 600.0, stage: Callable[[str], None] = lambda _: None) -> Checked:
    """Check the bundle in the folder ``bundle``. ``stage`` hears what is being checked."""
    document = load_manifest(bundle)
    steps: Sequence[tuple[str, Callable[[], str]]] = (
        ("manifest", lambda: _seal(document)),
        ("files", lambda: _files(bundle, document)),
        ("report", lambda: _report(bundle, document)),
        ("loads", lambda: _loads(bundle, document, timeout_s)),
        ("operators", lambda: _operators(bundle, document)),
        ("ends", lambda: _ends(bundle, document)),
        ("golden", lambda: _golden(bundle, document)),
        ("gates", lambda: _gates(bundle, document)),
    )
    done = []
    for name, step in steps:
        stage(name)
        done.append(_carried_out(name, step))
    delivered = document["verification"].get("passed") is True
    return Checked(str(document.get("model", {}).get("name", bundle.name)), delivered, tuple(done), _versions(document))


class _Differs(Exception):
    """What is not as the manifest says, in words."""


def _carried_out(name: str, step: Callable[[], str]) -> Check:
    try:
        return Check(name, True, step())
    except _Differs as differs:
        return Check(name, False, str(differs))
    except EdgekitError as error:
        return Check(name, False, error.message)
    except (*UNREADABLE, AttributeError, IndexError) as error:  # a manifest or an archive that was altered
        return Check(name, False, f"cannot be checked: {type(error).__name__}: {error}")


def _seal(document: Mapping[str, Any]) -> str:
    if manifest.seal(document) != document.get("seal"):
        raise _Differs("manifest.json was changed after it was written: its seal does not fit")
    return "unchanged since it was written"


def _files(bundle: Path, document: Mapping[str, Any]) -> str:
    listed = document["files"]
    there = {path.name for path in bundle.iterdir()}
    missing, foreign = sorted(set(listed) - there), sorted(there - set(listed) - set(REPORTS))
    changed = [name for name, entry in listed.items() if name in there and manifest.file_entry(bundle / name) != entry]
    said = [
        f"{', '.join(names)} {what}"
        for names, what in ((missing, "missing"), (changed, "changed"), (foreign, "unknown"))
        if names
    ]
    if said:
        raise _Differs("; ".join(said))
    return f"{len(listed)} files with the size and sha256 of the manifest"


def _report(bundle: Path, document: Mapping[str, Any]) -> str:
    """The two files whose time of day keeps them out of the manifest: one repeats the manifest, the other is made of the first."""
    import tempfile

    from edgekit.report.html import write_bundle_report

    report = json.loads((bundle / "report.json").read_text(encoding="utf-8"))
    if report["manifest"] != document:
        raise _Differs("report.json speaks of another manifest")
    with tempfile.TemporaryDirectory(prefix="edgekit-verify-") as folder:
        again = Path(folder) / "report.html"
        write_bundle_report(report, again)
        if again.read_bytes() != (bundle / "report.html").read_bytes():
            raise _Differs("report.html is not the page of report.json")
    return "report.json and report.html say what the manifest says"


def delivered_file(bundle: Path, document: Mapping[str, Any]) -> Path:
    """model.tflite, or rejected.tflite where a gate had failed."""
    found = [name for name in (manifest.MODEL, manifest.REJECTED) if name in document["files"]]
    if len(found) != 1:
        raise _Differs(f"the manifest lists {' and '.join(found) or 'no model'}")
    return bundle / found[0]


def float_model(bundle: Path, document: Mapping[str, Any]) -> FloatModel:
    """The float model of the bundle, its ends described in the source's words."""
    quantised = document["recipe"]["quantize"] is not None
    path = bundle / manifest.FLOAT if quantised else delivered_file(bundle, document)
    source = document["model"]
    described = [tuple(IoSpec.from_json(item) for item in document[side]) for side in ("inputs", "outputs")]
    with open_backend(path) as backend:
        sides = [
            tuple(manifest.undelivered(spec, detail) for spec, detail in zip(specs, details, strict=True))
            for specs, details in zip(described, (backend.inputs, backend.outputs), strict=True)
        ]
    original = SourceModel(path, source["format"], source["sha256"], source["size_bytes"])
    joins = tuple(Joined.from_json(item) for item in document.get("joins", ()))
    return FloatModel(path, original, sides[0], sides[1], str(document["frontend"]["name"]), joins=joins)


def _loads(bundle: Path, document: Mapping[str, Any], timeout_s: float) -> str:
    path = delivered_file(bundle, document)
    require_runs(path, what=path.name, timeout_s=timeout_s)
    return f"{path.name} loads and runs"


def _operators(bundle: Path, document: Mapping[str, Any]) -> str:
    path = delivered_file(bundle, document)
    found = audit_float(path) if document["recipe"]["quantize"] is None else audit(path)
    if to_json(found) != document["verification"]["audit"]:
        raise _Differs(f"the operators of {path.name} are not those of the manifest")
    return f"{found.operators_total} operators, {len(found.float_operators)} of them float, as the manifest says"


def _ends(bundle: Path, document: Mapping[str, Any]) -> str:
    found = manifest.delivered_io(float_model(bundle, document), delivered_file(bundle, document))
    for side, specs in zip(("inputs", "outputs"), found, strict=True):
        if to_json(specs) != document[side]:
            raise _Differs(
                f"the {side} of the file are not those of the manifest: names, shapes, types, scales or zero points"
            )
    return "names, shapes, types, scales and zero points of the file are those of the manifest"


def _golden(bundle: Path, document: Mapping[str, Any]) -> str:
    """The golden pairs, computed anew by both models."""
    model = float_model(bundle, document)
    path = delivered_file(bundle, document)
    worst_db, steps, moved, values = float("inf"), 0, 0, 0
    with np.load(bundle / "golden.npz", allow_pickle=False) as golden, open_backend(model.path) as before:
        count = next(iter(golden.values())).shape[0]
        quantised = any(name.startswith("int8/") for name in golden.files)
        with open_backend(path) as after:
            for pair in range(count):
                inputs = [golden[f"input/{spec.name}"][pair] for spec in model.inputs]
                floats = run(before, inputs)
                whole(model, floats)  # raises where the parts do not give the outputs that the manifest describes
                if quantised:
                    run(after, inputs)
                for position, spec in enumerate(model.outputs):
                    truth = np.asarray(golden[f"float/{spec.name}"][pair], np.float64)
                    noise = float(((truth - floats[position]) ** 2).sum())
                    worst_db = min(worst_db, ratio_db(float((truth**2).sum()), noise))
                    if quantised:
                        kept, got = golden[f"int8/{spec.name}"][pair], after.get_output(position)
                        apart = _apart(kept, got)
                        steps, moved, values = (
                            max(steps, int(apart.max())),
                            moved + int((apart > 0).sum()),
                            values + apart.size,
                        )
    if worst_db < GOLDEN_FLOAT_DB:
        raise _Differs(
            f"the float model answers a golden input with {worst_db:.1f} dB to what it answered when the bundle was made"
        )
    if steps > GOLDEN_STEPS:
        raise _Differs(
            f"the model answers a golden input {steps} steps apart from what it answered when the bundle was made"
        )
    return f"{count} pairs give the same answers" + (f"; {moved} of {values} values one step apart" if moved else "")


def _apart(kept: Any, got: Any) -> Any:
    """Distance in steps of integers; of floats in units of a thousandth of the largest value."""
    wide = np.abs(kept.astype(np.float64) - got.astype(np.float64))
    if kept.dtype.kind != "f":
        return wide
    return np.floor(wide / max(float(np.abs(kept).max()) * 1e-3, 1e-12))


def _gates(bundle: Path, document: Mapping[str, Any]) -> str:
    """Every gate judged again, from the measures in the manifest and the file as it is."""
    said, verification = rebuild(Recipe, document["recipe"]), document["verification"]
    if isinstance(said.gates, FloatGates):
        parity = {key: value for key, value in verification["parity"].items() if key != "data"}
        found = gates.judge_float(rebuild(Parity, parity))
    else:
        evaluation = Evaluation(
            rebuild(Int8Result, verification["int8"]),
            None if verification["accuracy"] is None else rebuild(Accuracy, verification["accuracy"]),
        )
        path = delivered_file(bundle, document)
        wanted = contract(said.quantize) if said.quantize is not None else None
        assert wanted is not None
        audited = rebuild(Audit, verification["audit"])
        found = gates.judge(said.gates, audited, evaluation, wanted, weight_types(path), unsound(path))
    if to_json(found) != verification["gates"]:
        raise _Differs("the gates do not follow from the measures in the manifest and the file")
    verdicts = {gates.all_passed(found, allow_undecided=allowed) for allowed in (False, True)}
    named = manifest.MODEL if verification["passed"] else manifest.REJECTED
    if verification["passed"] not in verdicts or named not in document["files"]:
        raise _Differs("the verdict does not follow from the gates")
    return f"{len(found)} gates judged again, with the same verdicts"


def _versions(document: Mapping[str, Any]) -> tuple[str, ...]:
    now = manifest.versions_here()
    then = {name: version for name, version in document.get("versions", {}).items() if name in now}
    return tuple(
        f"{name} is {now[name]} here and was {version}" for name, version in then.items() if now[name] != version
    )
