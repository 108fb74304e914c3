"""Which runtimes can run a TFLite file: what the file asks for, against what each runtime said that it has.

``runtime_operators.json`` holds the highest version of every operator in each runtime, found by asking the runtimes themselves
(``tools/runtime_matrix.py``); nothing in it is copied from documentation.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgekit.intake import tflite

_TABLE = Path(__file__).with_name("runtime_operators.json")
_METADATA = "min_runtime_version"
_IN_EVERY_RUNTIME = ("TFLite_Detection_PostProcess", "AudioSpectrogram", "Mfcc", "NumericVerify")
_WITHOUT_OUTSIDE_WEIGHTS = ("tflite-runtime 2.13.0",)
"""Runtimes that read no weights behind the flatbuffer: they load such a file and fail at the first run ("lacks data")."""


@dataclasses.dataclass(frozen=True)
class MissingOperator:
    """An operator in a version that a runtime lacks. ``highest`` is the one that it has, None where it has none at all."""

    operator: str
    version: int
    highest: int | None


@dataclasses.dataclass(frozen=True)
class RuntimeFit:
    """One runtime: what it lacks for the file. ``obstacle`` is anything else that is in the way, in words."""

    name: str
    missing: tuple[MissingOperator, ...]
    obstacle: str = ""

    @property
    def runs(self) -> bool:
        """Whether nothing is missing."""
        return not self.missing and not self.obstacle

    @property
    def sentence(self) -> str:
        """Why it cannot run the file, in one sentence; "" where it can."""
        if self.runs:
            return ""
        lacks = [
            f"{item.operator} version {item.version} ({f'it has up to {item.highest}' if item.highest else 'it has none'})"
            for item in self.missing
        ]
        return f"{self.name} lacks {', '.join(lacks)}" if lacks else f"{self.name}: {self.obstacle}"


@dataclasses.dataclass(frozen=True)
class Requirements:
    """What a file asks of a runtime.

    ``declared`` is the TensorFlow version that its converter wrote down (None where it did not), ``operators`` the highest version of
    each operator used, ``runtimes`` the verdict for every runtime that was asked, the oldest first.
    """

    declared: str | None
    operators: Mapping[str, int]
    runtimes: tuple[RuntimeFit, ...]

    @property
    def oldest(self) -> str | None:
        """The oldest runtime known here that can run the file; None when none can."""
        return next((fit.name for fit in self.runtimes if fit.runs), None)


def requirements(model: Any, *, weights_outside: bool = False) -> Requirements:
    """For a ``ModelT``; ``weights_outside`` says that the file keeps weights behind its flatbuffer (:func:`has_weights_outside`)."""
    operators = _operators(model)
    fits = []
    for name, table in runtime_operators().items():
        missing = tuple(
            MissingOperator(operator, version, table.get(operator))
            for operator, version in operators.items()
            if operator.partition("CUSTOM:")[2] not in _IN_EVERY_RUNTIME and version > (table.get(operator) or 0)
        )
        outside = weights_outside and name in _WITHOUT_OUTSIDE_WEIGHTS
        fits.append(RuntimeFit(name, missing, "it reads no weights that lie behind the flatbuffer" if outside else ""))
    return Requirements(_declared(model), operators, tuple(fits))


def has_weights_outside(raw: bytes | bytearray) -> bool:
    """Whether a file (its bytes, checked already) keeps weights behind the flatbuffer, as newer converters do above some size."""
    from ai_edge_litert import schema_py_generated as schema

    model = schema.Model.GetRootAs(raw, 0)
    return any(model.Buffers(index).Offset() > 1 for index in range(model.BuffersLength()))


@functools.cache
def runtime_operators() -> Mapping[str, Mapping[str, int]]:
    """Runtime to operator to the highest version that it has; runtimes from the oldest to the newest."""
    table: dict[str, dict[str, int]] = json.loads(_TABLE.read_text(encoding="utf-8"))
    return table


def _operators(model: Any) -> dict[str, int]:
    """The highest version of each operator in use; a code that no operator has is looked up by the interpreter all the same."""
    used: dict[str, int] = {}
    for code in model.operatorCodes or []:
        name = tflite.operator_name(code)
        used[name] = max(used.get(name, 0), int(code.version))
    return dict(sorted(used.items()))


def _declared(model: Any) -> str | None:
    for entry in model.metadata or []:
        name = entry.name.decode("utf-8", errors="replace") if isinstance(entry.name, bytes) else entry.name
        if name == _METADATA and 0 <= entry.buffer < len(model.buffers):
            data = model.buffers[entry.buffer].data
            text = bytes(data if data is not None else b"").split(b"\0")[0].decode("ascii", errors="replace").strip()
            return text or None
    return None
