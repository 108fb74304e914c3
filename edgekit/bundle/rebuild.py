"""Dataclasses from the JSON that :func:`edgekit.values.to_json` made of them, by their type hints."""

from __future__ import annotations

import dataclasses
import enum
import types
from collections.abc import Mapping
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def rebuild(kind: type[T], data: Any) -> T:
    """A ``kind`` from ``data``. Raises ValueError, KeyError or TypeError where it does not fit."""
    built: T = _value(kind, data)
    return built


def _value(kind: Any, data: Any) -> Any:
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return None if data is None else _first_fitting([part for part in parts if part is not type(None)], data)
    if origin is tuple:
        if len(parts) == 2 and parts[1] is Ellipsis:
            return tuple(_value(parts[0], item) for item in data)
        return tuple(_value(part, item) for part, item in zip(parts, data, strict=True))
    if origin is not None and issubclass(origin, Mapping):
        return {key: _value(parts[1], item) for key, item in data.items()}
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        known = {field.name for field in dataclasses.fields(kind)}
        if set(data) - known:
            raise ValueError(f"{kind} has no {sorted(set(data) - known)}")
        make: Any = kind
        return make(**{name: _value(hints[name], item) for name, item in data.items()})
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(data)
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if kind in (int, float, str, bool) and type(data) is not kind:
        raise TypeError(f"{data!r} is no {kind.__name__}")
    return data


def _first_fitting(kinds: list[Any], data: Any) -> Any:
    """Of several dataclasses, the one that has just these fields; else whichever takes the data."""
    for kind in kinds:
        if dataclasses.is_dataclass(kind) and {field.name for field in dataclasses.fields(kind)} == set(data):
            return _value(kind, data)
    for kind in kinds[:-1]:
        try:
            return _value(kind, data)
        except (ValueError, KeyError, TypeError):
            continue
    return _value(kinds[-1], data)
