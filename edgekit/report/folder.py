"""A run folder in memory, as far as it was written.

A run that was cut short is still evidence: missing optional files, a torn last line and a torn last number are noted
and read around. Only a folder that is no run folder at all, or one of a newer schema, is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.errors import UsageError
from edgekit.report.summary import FLOAT, MAIN
from edgekit.values import SCHEMA

Latencies = NDArray[np.int64]

ITEM_BYTES = 8
"""``latencies.bin`` is int64, little-endian, nanoseconds."""


@dataclass(frozen=True, eq=False)
class RunFolder:
    """The files of one run. ``latencies_ns`` and ``warmup_ns`` map a variant's name to its raw numbers, in time order.

    ``notes`` says what was missing or torn, in words for the reader.
    """

    path: Path
    request: Mapping[str, Any]
    facts: Mapping[str, Any]
    status: Mapping[str, Any]
    result: Mapping[str, Any]
    manifest: Mapping[str, Any] | None
    samples: tuple[Mapping[str, Any], ...]
    events: tuple[Mapping[str, Any], ...]
    latencies_ns: Mapping[str, Latencies]
    warmup_ns: Mapping[str, Latencies]
    notes: tuple[str, ...]

    @classmethod
    def load(cls, path: Path) -> RunFolder:
        """The run folder at ``path``.

        Raises UsageError when there is no such folder, when it is not a run folder, when ``request.json`` or
        ``result.json`` is not readable JSON, or when a newer edgekit wrote it.
        """
        path = Path(path)
        _check_is_run_folder(path)
        notes: list[str] = []
        request = _required_json(path / "request.json")
        result = _required_json(path / "result.json") if (path / "result.json").exists() else {}
        if not result:
            notes.append("result.json is missing: the run did not reach its end")
        latencies, warmup = {}, {}
        for variant in variant_names(request):
            suffix = "" if variant == MAIN else f"-{variant}"
            steady = _read_latencies(path / f"latencies{suffix}.bin", notes)
            if steady is not None:
                latencies[variant] = steady
                early = _read_latencies(path / f"warmup{suffix}.bin", notes)
                warmup[variant] = early if early is not None else np.empty(0, dtype=np.int64)
        if MAIN not in latencies:
            notes.append("latencies.bin is missing: no inference was timed")
        return cls(
            path=path,
            request=request,
            facts=_optional_json(path / "facts.json", notes) or {},
            status=_optional_json(path / "status.json", notes) or {},
            result=result,
            manifest=_optional_json(path / "bundle.json", notes, expected=False),
            samples=_read_lines(path / "samples.jsonl", notes),
            events=_read_lines(path / "events.jsonl", notes),
            latencies_ns=latencies,
            warmup_ns=warmup,
            notes=tuple(notes),
        )

    @property
    def variants(self) -> tuple[str, ...]:
        """What could have been measured: the model, its float form, and those that the request names beside them."""
        return variant_names(self.request)

    @property
    def state(self) -> str:
        """``done``, ``failed`` or ``cancelled`` from the result; without one, what the status last said; else
        ``unknown``.
        """
        return str(self.result.get("state") or self.status.get("state") or "unknown")

    def variant(self, name: str) -> Mapping[str, Any]:
        """The variant's object in result.json, empty when it is not there."""
        found = mapping(self.result.get("variants")).get(name)
        return mapping(found)


def variant_names(request: Mapping[str, Any]) -> tuple[str, ...]:
    """The variants that a run of this request may hold. A name that is no plain word is left out: it becomes part of a file's name."""
    more = request.get("more_variants")
    named = [str(mapping(item).get("name") or "") for item in more] if isinstance(more, list) else []
    return (MAIN, FLOAT, *(name for name in dict.fromkeys(named) if re.fullmatch(r"[a-z0-9-]+", name)))


def mapping(value: Any) -> Mapping[str, Any]:
    """``value`` if it is a JSON object, else an empty one: a field that an interrupted writer left null reads as
    absent.
    """
    return value if isinstance(value, Mapping) else {}


def number(value: Any) -> float | None:
    """``value`` if it is a finite JSON number, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if np.isfinite(value) else None


def _check_is_run_folder(path: Path) -> None:
    if not path.exists():
        raise UsageError(
            f"no run folder at {path}",
            code="run_folder_missing",
            hint="ls runs    shows the runs that are kept here",
        )
    if not path.is_dir():
        raise UsageError(
            f"{path} is a file, not a run folder", code="run_folder_invalid", hint="name the folder it lies in"
        )
    if (path / "request.json").is_file():
        return
    inside = sorted(item.parent.name for item in path.glob("*/request.json"))
    if inside:
        raise UsageError(
            f"{path} is not a run folder, but holds {len(inside)}",
            code="run_folder_invalid",
            hint=f"edgekit report {path / inside[-1]}",
        )
    raise UsageError(
        f"{path} is not a run folder: it has no request.json",
        code="run_folder_invalid",
        hint="a run folder is what `edgekit bench` writes under ./runs",
    )


def _required_json(path: Path) -> Mapping[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"cannot read {path}: {error}", code="run_folder_invalid", hint="measure again: edgekit bench BUNDLE"
        ) from error
    if not isinstance(data, dict):
        raise UsageError(f"{path} is not a JSON object", code="run_folder_invalid")
    schema = data.get("schema")
    if isinstance(schema, int) and schema > SCHEMA:
        raise UsageError(
            f"{path} has schema {schema}; this edgekit reads up to {SCHEMA}",
            code="run_folder_newer",
            hint="update edgekit on this machine",
        )
    return data


def _optional_json(path: Path, notes: list[str], *, expected: bool = True) -> Mapping[str, Any] | None:
    """The object in ``path``, or None with a note when it is missing (if ``expected``) or torn."""
    if not path.exists():
        if expected:
            notes.append(f"{path.name} is missing")
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        notes.append(f"{path.name} cannot be read: {error}")
        return None
    if not isinstance(data, dict):
        notes.append(f"{path.name} is not a JSON object")
        return None
    return data


def _read_latencies(path: Path, notes: list[str]) -> Latencies | None:
    """The int64 numbers of ``path``; a torn last one is dropped with a note. None when there is no such file."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        notes.append(f"{path.name} cannot be read: {error}")
        return None
    torn = len(raw) % ITEM_BYTES
    if torn:
        notes.append(f"{path.name} ends in the middle of a number: {torn} bytes dropped")
    values = np.frombuffer(raw[: len(raw) - torn], dtype="<i8").astype(np.int64)
    impossible = int(np.count_nonzero(values <= 0))
    if impossible:
        # A clock cannot say this; zeros are what a file system leaves in a block that was never written.
        notes.append(f"{path.name} has {impossible} latencies that are not positive: dropped")
        values = values[values > 0]
    return values


def _read_lines(path: Path, notes: list[str]) -> tuple[Mapping[str, Any], ...]:
    """The JSON objects of a line file, without the lines that cannot be read, which are noted."""
    if not path.exists():
        notes.append(f"{path.name} is missing")
        return ()
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError as error:
        notes.append(f"{path.name} cannot be read: {error}")
        return ()
    objects, bad = [], []
    for index, line in enumerate(lines):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
        except ValueError:
            data = None
        if isinstance(data, dict):
            objects.append(data)
        else:
            bad.append(index + 1)
    if bad:
        last = bad == [len(lines)]
        notes.append(
            f"{path.name}: the last line is torn and was dropped"
            if last
            else f"{path.name}: {len(bad)} lines cannot be read and were dropped (first: line {bad[0]})"
        )
    return tuple(objects)
