"""Recipes: how to quantise and what to require, as a TOML file that is complete on its own."""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgekit.calibrate.clipping import METHODS
from edgekit.errors import RecipeError
from edgekit.resources import did_you_mean, resource_folder
from edgekit.values import Preprocessing


@dataclasses.dataclass(frozen=True)
class Quantization:
    """What becomes smaller than float32, and how.

    ``weights``: "int8-per-channel" or "float16". ``activations``: "int8" and "int16" have ranges from calibration; "dynamic" ones are
    float32 between operators and rounded to int8 inside of those with weights, anew for each input; "float32". ``io``: the type at
    both ends; "uint8" ones decode to the same values as int8 ones.
    """

    engine: str = "litert-quantizer"
    weights: str = "int8-per-channel"
    activations: str = "int8"
    io: str = "int8"

    @property
    def calibrates(self) -> bool:
        """Whether activations need ranges, and so calibration data."""
        return self.activations in ("int8", "int16")


@dataclasses.dataclass(frozen=True)
class Calibration:
    """How ranges are found: by one method for every tensor (:mod:`edgekit.calibrate.clipping`), or by "search" each by its own."""

    ranges: str = "search"


@dataclasses.dataclass(frozen=True)
class Corrections:
    """What is done about weights and biases, and about channels of unlike ranges: "auto" (kept where it helps on held-out calibration samples), "on" or "off"."""

    bias: str = "auto"
    rounding: str = "auto"
    equalise: str = "auto"


@dataclasses.dataclass(frozen=True)
class Gates:
    """What the result must reach. Ratios in dB, ``agreement_min`` a fraction, ``accuracy_drop_max_points`` percentage points.

    ``contract``: the file must be what ``[quantize]`` asks for, operator by operator and at both ends.
    """

    contract: bool = True
    parity_min_db: float = 80.0
    sqnr_min_db: float = 10.0
    constant_slices_max: int = 0
    agreement_min: float = 0.8
    accuracy_drop_max_points: float = 2.0


@dataclasses.dataclass(frozen=True)
class FloatGates:
    """What a float model must reach where nothing is quantised: so many dB against the source, in the worst output and slice."""

    parity_min_db: float = 80.0


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A whole recipe. ``preprocessing`` is None where the recipe leaves it to the command line.

    A recipe without ``quantize`` has no ``calibration`` either and stops at the verified float model; its ``gates`` are FloatGates.
    ``calibration`` is also None where the activations need no ranges.
    """

    name: str
    description: str
    quantize: Quantization | None
    calibration: Calibration | None
    gates: Gates | FloatGates
    preprocessing: Preprocessing | None = None
    corrections: Corrections | None = None


KNOWN_VALUES: Mapping[str, tuple[str, ...]] = {
    "quantize.engine": ("litert-quantizer",),
    "quantize.weights": ("int8-per-channel", "float16"),
    "quantize.activations": ("int8", "int16", "dynamic", "float32"),
    "quantize.io": ("int8", "uint8", "int16", "float32"),
    "calibration.ranges": ("search", *METHODS),
    "corrections.bias": ("auto", "on", "off"),
    "corrections.rounding": ("auto", "on", "off"),
    "corrections.equalise": ("auto", "on", "off"),
    "preprocessing.fit": ("short-side", "stretch", "letterbox", "pad-right"),
    "preprocessing.filter": ("bilinear", "bicubic", "nearest"),
    "preprocessing.color": ("rgb", "bgr", "gray"),
}
SCHEMES = frozenset({
    ("int8-per-channel", "int8", "int8"), ("int8-per-channel", "int8", "uint8"), ("int8-per-channel", "int8", "float32"),
    ("int8-per-channel", "int16", "int16"), ("int8-per-channel", "int16", "float32"),
    ("int8-per-channel", "dynamic", "float32"), ("float16", "float32", "float32"),
})  # fmt: skip
"""Weights, activations and ends that go together."""
SEE = "see recipes/full-int8.toml: every key with what it means"
LIMITS: Mapping[str, tuple[float, float]] = {
    "gates.parity_min_db": (0.0, 300.0),
    "gates.sqnr_min_db": (-300.0, 300.0),
    "gates.constant_slices_max": (0, 2**31),
    "gates.agreement_min": (0.0, 1.0),
    "gates.accuracy_drop_max_points": (0.0, 100.0),
}
"""Lowest and highest value that makes sense."""
_TABLES: Mapping[str, Any] = {
    "quantize": Quantization,
    "calibration": Calibration,
    "corrections": Corrections,
    "gates": Gates,
    "preprocessing": Preprocessing,
}


def recipe_names() -> list[str]:
    """The recipes that come with edgekit."""
    return sorted(path.stem for path in resource_folder("recipes").glob("*.toml"))


def load(name: str) -> Recipe:
    """The recipe of that name, or in that file. Raises RecipeError with what is wrong and what was probably meant."""
    path = Path(name)
    if path.suffix != ".toml":
        path = resource_folder("recipes") / f"{name}.toml"
    if not path.is_file():
        known = recipe_names()
        raise RecipeError(
            f"there is no recipe {name!r}",
            hint=f"{did_you_mean(name, known)} known recipes: {', '.join(known)}".strip(),
        )
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecipeError(f"{path} cannot be read: {error.strerror}", hint=SEE) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RecipeError(f"{path.name} is not TOML: {error}", hint=SEE) from error
    return parse(data, path.name)


def parse(data: Mapping[str, Any], where: str) -> Recipe:
    """A recipe from its parsed TOML; unknown keys and impossible values are RecipeErrors."""
    allowed = ["name", "description", *_TABLES]
    _refuse_unknown(data, allowed, where, "")
    float_only = "quantize" not in data and "calibration" not in data
    for key in ("name", "gates") if float_only else ("name", "quantize", "gates"):
        if key not in data:
            raise RecipeError(
                f"{where}: {key} is missing: a recipe is complete on its own",
                hint=f"see recipes/{'float32' if float_only else 'full-int8'}.toml",
            )
    for key in ("name", "description"):
        if not isinstance(data.get(key, ""), str):
            raise RecipeError(f"{where}: {key} = {data[key]!r} should be a text", hint=SEE)
    kinds = {**_TABLES, "gates": FloatGates} if float_only else _TABLES
    tables = {key: _table(key, kinds[key], data[key], where) for key in kinds if key in data}
    if not float_only:
        _check_scheme(tables["quantize"], "calibration" in tables, where)
        _check_corrections(tables, where)
    return Recipe(
        name=data["name"],
        description=data.get("description", ""),
        preprocessing=tables.get("preprocessing"),
        quantize=tables.get("quantize"),
        calibration=tables.get("calibration"),
        gates=tables["gates"],
        corrections=tables.get("corrections"),
    )


def _check_scheme(quantize: Quantization, calibrated: bool, where: str) -> None:
    """Raises RecipeError for parts that do not go together."""
    if (quantize.weights, quantize.activations, quantize.io) not in SCHEMES:
        possible = "; ".join(sorted(f"{' '.join(scheme)}" for scheme in SCHEMES))
        raise RecipeError(
            f"{where}: weights {quantize.weights}, activations {quantize.activations} and io {quantize.io} do not go together",
            hint=f"possible (weights, activations, io): {possible}",
        )
    if quantize.calibrates and not calibrated:
        raise RecipeError(f"{where}: calibration is missing: a recipe is complete on its own", hint=SEE)
    if calibrated and not quantize.calibrates:
        raise RecipeError(
            f"{where}: activations {quantize.activations!r} have no ranges to calibrate, and there is a table [calibration]",
            hint="leave out [calibration]",
        )


def _check_corrections(tables: Mapping[str, Any], where: str) -> None:
    """Raises RecipeError for corrections of what is not int8."""
    calibration, activations = tables.get("calibration"), tables["quantize"].activations
    if activations == "int8":
        return
    if "corrections" in tables or (calibration is not None and calibration.ranges != "min-max"):
        raise RecipeError(
            f"{where}: corrections and ranges other than the true extremes are for int8 activations, and these are {activations}",
            hint='leave out [corrections], and set calibration.ranges = "min-max" where there is that table',
        )


def _table(key: str, kind: Any, values: Any, where: str) -> Any:
    if not isinstance(values, Mapping):
        raise RecipeError(f"{where}: {key} is not a table", hint=SEE)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    _refuse_unknown(values, list(fields), where, f"{key}.")
    for name in ("mean", "std") if kind is Preprocessing else fields:
        if name not in values:
            raise RecipeError(f"{where}: {key}.{name} is missing: a recipe is complete on its own", hint=SEE)
    if kind is Preprocessing:
        checked = {name: _preprocessing_value(where, name, value) for name, value in values.items()}
        return Preprocessing(**checked)
    return kind(**{name: _value(where, f"{key}.{name}", value, fields[name].default) for name, value in values.items()})


def _refuse_unknown(values: Mapping[str, Any], known: list[str], where: str, prefix: str) -> None:
    for key in values:
        if key not in known:
            raise RecipeError(
                f"{where}: unknown key {prefix}{key}",
                hint=did_you_mean(key, known) or f"known keys: {', '.join(prefix + name for name in known)}",
            )


def _value(where: str, key: str, value: Any, default: Any) -> Any:
    kind = type(default)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not kind:
        raise RecipeError(f"{where}: {key} = {value!r} should be a {kind.__name__}, like {default!r}", hint=SEE)
    low, high = LIMITS.get(key, (-math.inf, math.inf))
    if kind in (int, float) and not low <= value <= high:  # NaN is not either
        raise RecipeError(f"{where}: {key} = {value!r} is not possible", hint=f"possible: {low:g} to {high:g}")
    return _known_value(where, key, value)


def _known_value(where: str, key: str, value: Any) -> Any:
    choices = KNOWN_VALUES.get(key)
    if choices and value not in choices:
        raise RecipeError(f"{where}: {key} = {value!r} is not possible", hint=f"possible: {', '.join(choices)}")
    return value


def _preprocessing_value(where: str, name: str, value: Any) -> Any:
    key = f"preprocessing.{name}"
    if name in ("resize", "crop"):
        pair = [value, value] if isinstance(value, int) else value
        if not (isinstance(pair, list) and len(pair) == 2 and all(type(v) is int and v > 0 for v in pair)):
            raise RecipeError(
                f"{where}: {key} = {value!r} should be a size in pixels, like 224 or [height, width]", hint=SEE
            )
        return tuple(pair)
    if name in ("mean", "std"):
        numbers = value if isinstance(value, list) else [value]
        if len(numbers) not in (1, 3) or not all(type(v) in (int, float) for v in numbers):
            raise RecipeError(f"{where}: {key} = {value!r} should be one number, or three", hint=SEE)
        if name == "std" and any(v <= 0 for v in numbers):
            raise RecipeError(f"{where}: {key} = {value!r} must be above zero: pixels are divided by it", hint=SEE)
        return tuple(float(v) for v in numbers)
    return _known_value(where, key, value)
