"""The Keras part of :mod:`edgekit.intake.preflight`: the archive or HDF5 file is whole, and what its configuration says of the layers."""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edgekit.errors import ModelFileError
from edgekit.intake.archives import AGAIN, corrupt, read_json, require_sound_archive
from edgekit.intake.preflight import Finding, Level, found

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_CONFIG_STARTS = (b'{"class_name": "', b'{"module": "', b'{"backend": "', b'{"config": {')
_RECURRENT = ("LSTM", "GRU", "SimpleRNN", "RNN", "ConvLSTM1D", "ConvLSTM2D", "Bidirectional", "LSTMCell", "GRUCell")


def archive_findings(path: Path) -> Iterator[Finding]:
    """Findings for a ``.keras`` file. Raises ModelFileError where a member is damaged or nothing describes a model."""
    require_sound_archive(path)
    config = read_json(path, "config.json")
    if "class_name" not in config:
        raise corrupt(path, "its config.json describes no model")
    yield from _findings(config)


def hdf5_findings(path: Path) -> Iterator[Finding]:
    """Findings for an HDF5 file. Raises ModelFileError where it is shorter than it says, or its first block is none."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        _require_whole(path, data)
        config = _config(data)
    if config is not None:
        yield from _findings(config)


def _require_whole(path: Path, data: mmap.mmap) -> None:
    """The superblock (HDF5 file format specification, version 3, II.A) against the size of the file."""
    start = data.find(_SIGNATURE)
    head = data[start : start + 96]
    if len(head) < 48:
        raise _cut(path, len(data), None)
    version = head[8]
    if version in (0, 1):
        width, first = head[13], 24 + 4 * version
        addresses = [head[first + i * width : first + (i + 1) * width] for i in range(3)]
    elif version in (2, 3):
        width, first = head[9], 12
        addresses = [head[first + i * width : first + (i + 1) * width] for i in range(3)]
    else:
        raise corrupt(path, f"its first block has version {version}, and HDF5 knows 0 to 3")
    if width not in (2, 4, 8):
        raise corrupt(path, f"its addresses have {width} bytes")
    base, end = (int.from_bytes(addresses[i], "little") for i in (0, 2))
    if base + end > len(data) or end == 0:
        raise _cut(path, len(data), base + end)


def _cut(path: Path, size: int, said: int | None) -> ModelFileError:
    words = "ends within its first block" if said is None else f"says that it has {said:,}"
    return ModelFileError(
        f"{path.name}: the HDF5 file {words}, and has {size:,} bytes: cut short or damaged",
        hint=AGAIN,
        code="model_truncated",
        details={"size_bytes": size},
    )


def _config(data: mmap.mmap) -> dict[str, Any] | None:
    """The model's configuration, which HDF5 keeps as one piece of text; None where it is not found or cannot be read so."""
    at = data.find(b"model_config")
    starts = [place for word in _CONFIG_STARTS if (place := data.find(word)) >= 0]
    if at < 0 or not starts:
        return None
    text = data[min(starts) : min(starts) + 2**26].split(b"\0", 1)[0]
    try:
        config, _ = json.JSONDecoder().raw_decode(text.decode("utf-8", errors="replace"))
    except (ValueError, RecursionError):
        return None
    return config if isinstance(config, dict) else None


def _findings(config: dict[str, Any]) -> Iterator[Finding]:
    layers: dict[str, list[str]] = {}
    for kind, name in _layers(config):
        layers.setdefault(kind, []).append(name)
    for kind, names in layers.items():
        if kind in _RECURRENT:
            reason = (
                "recurrent layer: written out step by step, and its states share scales that rarely fit both in int8"
            )
            advice = "few, known steps convert best; look at the worst slice of every state in the report"
            yield found(Level.WARN, "recurrent", reason, advice, operator=kind, nodes=names)
        elif kind.endswith("3D"):
            reason = "volumes have five axes: TFLite's kernels for them are float only, and delegates leave them out"
            advice = "work on slices with 2-D layers"
            yield found(Level.WARN, "rank_high", reason, advice, operator=kind, nodes=names)


def _layers(config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Class and name of every layer; without recursion, since a damaged file may be nested as deep as it is long."""
    waiting: list[Any] = [config]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            inner = item.get("config")
            if isinstance(item.get("class_name"), str) and isinstance(inner, dict) and "name" in inner:
                yield item["class_name"], str(inner["name"])
            waiting.extend(reversed(item.values()))
        elif isinstance(item, list):
            waiting.extend(reversed(item))
