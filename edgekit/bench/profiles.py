"""What is known of a kind of board: how to recognise it, what to read, where it gets too hot. One TOML file a kind."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from edgekit.errors import LinkError, RecipeError
from edgekit.link.base import Link
from edgekit.resources import closest, resource_folder

_T = TypeVar("_T")

FALLBACK = "generic-linux"


@dataclasses.dataclass(frozen=True)
class ThermalSetup:
    """One way to cool the board, as two masses: resistances in K/W, capacities in J/K, power of the whole board in W."""

    name: str
    die_to_body_k_w: float
    die_j_k: float
    body_to_air_k_w: float
    body_j_k: float
    idle_w: float
    load_w: float


@dataclasses.dataclass(frozen=True)
class DeviceProfile:
    """One kind of board. Temperatures in degrees Celsius, clocks in kHz; None where no source was found."""

    name: str
    title: str
    note: str = ""
    """What everybody who measures on it should know."""
    model: str | None = None
    """Regular expression for the device tree's model."""
    compatible: str | None = None
    """Regular expression for the device tree's list of compatible names."""
    zone_types: tuple[str, ...] = ()
    """Thermal zones that stand for the board's temperature, best first."""
    throttled_by: str | None = None
    """``kernel`` (visible in cooling devices) or ``firmware`` (not visible there)."""
    throttle_c: float | None = None
    """Where the clock begins to go down."""
    limit_c: float | None = None
    """Where all is throttled."""
    critical_c: float | None = None
    """Where the kernel switches the board off."""
    max_khz: tuple[int, ...] = ()
    """Full clock; several where revisions differ."""
    floor_khz: int | None = None
    """The lowest clock under throttling."""
    pacing_target_c: float | None = None
    """The temperature to hold for a frame rate that lasts."""
    setups: tuple[ThermalSetup, ...] = ()
    """How fast it heats, for each way to cool it."""


_TABLES: Mapping[str, Mapping[str, str]] = {
    "board": {"title": "title", "note": "note"},
    "recognise": {"model": "model", "compatible": "compatible"},
    "sensors": {"zone_types": "zone_types"},
    "throttling": {
        "by": "throttled_by",
        "from_c": "throttle_c",
        "limit_c": "limit_c",
        "critical_c": "critical_c",
        "floor_khz": "floor_khz",
    },
    "clocks": {"max_khz": "max_khz"},
    "pacing": {"target_c": "pacing_target_c"},
}
"""Tables and keys of a profile file, and the field that each fills."""


def load_profile(name: str) -> DeviceProfile:
    """The profile called ``name``. Raises :class:`RecipeError` for one that does not exist or is not valid."""
    names = profile_names()
    if name not in names:
        near = closest(name, names)
        hint = f'did you mean "{near}"?' if near else f"one of {', '.join(names)}"
        raise RecipeError(f"no device profile is called {name!r}", hint=hint)
    return read_profile(resource_folder("devices") / f"{name}.toml")


def profile_names() -> list[str]:
    """The profiles that come with edgekit."""
    return sorted(path.stem for path in resource_folder("devices").glob("*.toml"))


def profile_for(*, model: str | None, compatible: str | None = None) -> DeviceProfile:
    """The profile of the board with this device tree model or compatible list; ``generic-linux`` when none fits."""
    for name in profile_names():
        profile = load_profile(name)
        for pattern, value in ((profile.model, model), (profile.compatible, compatible)):
            if pattern is not None and value is not None and re.search(pattern, value):
                return profile
    return load_profile(FALLBACK)


def profile_of(link: Link) -> DeviceProfile:
    """The profile of the board behind ``link``."""

    def device_tree(name: str) -> str | None:
        for folder in ("/proc/device-tree", "/sys/firmware/devicetree/base"):
            try:
                return link.read_bytes(f"{folder}/{name}").decode("utf-8", "replace").strip("\0\n")
            except LinkError as error:
                if error.code not in ("file_missing", "read_failed"):
                    raise
        return None

    return profile_for(model=device_tree("model"), compatible=device_tree("compatible"))


def read_profile(path: Path) -> DeviceProfile:
    """The profile in a file. Raises :class:`RecipeError` naming an unknown key, a wrong value, or what is no TOML."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RecipeError(f"{path} cannot be read: {error}") from error
    fields: dict[str, Any] = {"name": path.stem}
    fields["setups"] = _setups(path, data.pop("thermal", {}))
    for table, values in data.items():
        keys = _known(path, table, _TABLES, "table")
        if not isinstance(values, dict):
            raise RecipeError(f"{path}: {table} must be a table")
        for key, value in values.items():
            field = _known(path, key, keys, f"key of [{table}]")
            fields[field] = _checked(path, f"{table}.{key}", field, value)
    if "title" not in fields:
        raise RecipeError(f"{path} has no board.title")
    return DeviceProfile(**fields)


def _setups(path: Path, tables: Any) -> tuple[ThermalSetup, ...]:
    """The tables ``[thermal.NAME]``."""
    if not isinstance(tables, dict) or not all(isinstance(values, dict) for values in tables.values()):
        raise RecipeError(f"{path}: thermal must hold tables, one for each way to cool the board")
    names = [field.name for field in dataclasses.fields(ThermalSetup) if field.name != "name"]
    for name, values in tables.items():
        for key, value in values.items():
            _known(path, key, dict.fromkeys(names), f"key of [thermal.{name}]")
            if type(value) not in (int, float) or not value > 0:
                raise RecipeError(f"{path}: thermal.{name}.{key} must be a number above 0, not {value!r}")
        missing = [key for key in names if key not in values]
        if missing:
            raise RecipeError(f"{path}: [thermal.{name}] lacks {', '.join(missing)}")
    return tuple(ThermalSetup(name, **{key: float(values[key]) for key in names}) for name, values in tables.items())


def _known(path: Path, word: str, known: Mapping[str, _T], what: str) -> _T:
    if word not in known:
        near = closest(word, known)
        hint = f'did you mean "{near}"?' if near else f"one of {', '.join(known)}"
        raise RecipeError(f"{path}: {word!r} is no {what}", hint=hint)
    return known[word]


def _checked(path: Path, where: str, field: str, value: Any) -> Any:
    """``value`` in the type of ``field``; :class:`RecipeError` when it has another or cannot be."""
    if field in ("zone_types", "max_khz"):
        item = str if field == "zone_types" else int
        if isinstance(value, list) and value and all(type(entry) is item for entry in value):
            return tuple(value)
        raise RecipeError(f"{path}: {where} must be a list of {item.__name__}")
    if field.endswith("_c"):
        if type(value) in (int, float) and 0 < value <= 150:
            return float(value)
        raise RecipeError(f"{path}: {where} must be a temperature between 0 and 150 degrees, not {value!r}")
    if field == "floor_khz":
        if type(value) is int and value > 0:
            return value
        raise RecipeError(f"{path}: {where} must be a whole number of kHz, not {value!r}")
    if not isinstance(value, str) or not value:
        raise RecipeError(f"{path}: {where} must be a text, not {value!r}")
    if field == "throttled_by" and value not in ("kernel", "firmware"):
        raise RecipeError(f'{path}: {where} must be "kernel" or "firmware", not {value!r}')
    if field in ("model", "compatible"):
        try:
            re.compile(value)
        except re.error as error:
            raise RecipeError(f"{path}: {where} is no regular expression: {error}") from error
    return value
