"""A manifest as a lock file: the same conversion again, to the same bytes, or what differs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from edgekit.bundle.manifest import MODEL, REJECTED
from edgekit.bundle.rebuild import rebuild
from edgekit.errors import ConversionError, UsageError
from edgekit.intake.frontends import KINDS
from edgekit.quantize.recipe import Recipe
from edgekit.values import Preprocessing, SourceModel, to_json

OPTIONS = (
    "seed", "calibration_limit", "evaluation_limit", "input_shapes", "signature", "keep_layout", "keep_outputs",
    "allow_undecided", "decode",
)  # fmt: skip
"""Fields of a conversion's request that a repetition takes from the manifest; ``frontend``, data options and recipe beside them."""
DATA_OPTIONS = ("raw_pixel_arrays", "layout", "metric")


def options(request: Any) -> dict[str, Any]:
    """What the manifest keeps of a :class:`edgekit.flow.ConvertRequest`: no path and no data."""
    kept = {name: to_json(getattr(request, name)) for name in OPTIONS}
    return {**kept, **{name: getattr(request.options, name) for name in DATA_OPTIONS}}


def replayed(request: Any, document: Mapping[str, Any]) -> Any:
    """``request`` with everything that ``document``, a manifest, has: recipe, options, preprocessing and front end."""
    said = document["request"]
    data_options = dataclasses.replace(
        request.options,
        preprocessing=None if document["preprocessing"] is None else Preprocessing.from_json(document["preprocessing"]),
        **{name: said[name] for name in DATA_OPTIONS},
    )
    shapes = {name: tuple(shape) for name, shape in said["input_shapes"].items()}
    fields = {name: said[name] for name in OPTIONS} | {"input_shapes": shapes}
    frontend = document["frontend"]["name"]
    return dataclasses.replace(
        request,
        **fields,
        recipe=rebuild(Recipe, document["recipe"]),
        options=data_options,
        frontend=frontend if frontend in KINDS else None,
        locked=document,
    )


def require_source(locked: Mapping[str, Any], source: SourceModel) -> None:
    """Raises UsageError when the model is not the one that was converted."""
    wanted = locked["model"]["sha256"]
    if source.sha256 != wanted:
        raise UsageError(
            f"{source.path.name} has sha256 {source.sha256[:12]}..., and the locked conversion began with {wanted[:12]}...",
            hint="give the same model file, or convert without --locked",
            code="lock_source",
        )


def require_same(locked: Mapping[str, Any], made: Mapping[str, Any]) -> None:
    """Raises ConversionError when the model that was ``made`` is not the locked one, byte for byte; says what differs."""
    wanted, got = _model(locked), _model(made)
    if wanted == got:
        return
    found = differences(locked, made)
    cause = "; ".join(found) if found else "no input of the conversion that is on record"
    raise ConversionError(
        f"the model came out as {got[:12]}..., and the manifest has {wanted[:12]}...; what differs: {cause}",
        hint="use the versions, the data and the machine of the manifest, or convert without --locked",
        code="lock_differs",
        details={"differences": list(found)},
    )


def differences(locked: Mapping[str, Any], made: Mapping[str, Any]) -> tuple[str, ...]:
    """What went in that was not the same: data, versions, recipe, options, ranges; in words."""
    said = []
    data = [(side.get("calibration") or {}).get("digest") for side in (locked, made)]
    if data[0] != data[1]:
        said.append(f"the calibration data (digest {_short(data[1])} instead of {_short(data[0])})")
    versions = locked.get("versions", {}), made.get("versions", {})
    for name in sorted({*versions[0], *versions[1]}):
        if versions[0].get(name) != versions[1].get(name):
            said.append(f"{name} {versions[1].get(name, 'missing')} instead of {versions[0].get(name, 'none')}")
    for key in ("edgekit", "recipe", "preprocessing", "request", "frontend"):
        if locked.get(key) != made.get(key):
            said.append(
                f"{key}: {made.get(key)!r} instead of {locked.get(key)!r}" if key == "edgekit" else f"the {key}"
            )
    floats = [(side["files"].get("float.tflite") or {}).get("sha256") for side in (locked, made)]
    if floats[0] != floats[1]:
        said.append("the float model that the front end made")
    ranges = [(side.get("calibration") or {}).get("ranges") or {} for side in (locked, made)]
    moved = sorted(name for name in {*ranges[0], *ranges[1]} if ranges[0].get(name) != ranges[1].get(name))
    if moved:
        more = f" and {len(moved) - 3} more" if len(moved) > 3 else ""
        said.append(f"the ranges of {', '.join(moved[:3])}{more}")
    return tuple(said)


def _model(document: Mapping[str, Any]) -> str:
    files = document["files"]
    return str(files.get(MODEL, files.get(REJECTED, {})).get("sha256", ""))


def _short(digest: str | None) -> str:
    return "none" if digest is None else f"{digest[:12]}..."
