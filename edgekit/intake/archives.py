"""Zip archives that hold a model: read to their end, against their checksums and within bounds, before anybody trusts them."""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgekit.errors import ModelFileError, UnsupportedModelError

AGAIN = "copy or download the file again and compare its size with the original"
_LARGEST_BYTES = 8 * 2**30
"""Unpacked; a network of that size fits no TFLite file, and an archive that says so is meant to fill the disk."""
_LARGEST_JSON_BYTES = 2**28
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    OSError,
    ValueError,
    EOFError,
    LookupError,
    NotImplementedError,
    RuntimeError,
)
"""What zipfile and its decompressors raise on archives that are not as they were written."""


def require_sound_archive(path: Path) -> tuple[str, ...]:
    """The names of the members, each of which was read to its end against its checksum. Raises ModelFileError that names the damaged
    one, UnsupportedModelError for an archive beyond all measure."""
    with opened(path) as archive:
        size = sum(member.file_size for member in archive.infolist())
        if size > _LARGEST_BYTES:
            raise UnsupportedModelError(f"{path.name}: unpacks to {size:,} bytes, more than a .tflite file can hold")
        damaged = archive.testzip()
        names = tuple(archive.namelist())
    if damaged is not None:
        raise ModelFileError(
            f"{path.name}: the archive is damaged: {damaged} does not have the bytes that were written",
            hint=AGAIN,
            code="model_corrupt",
            details={"member": damaged},
        )
    return names


def read_json(path: Path, member: str) -> dict[str, Any]:
    """The JSON object in ``member``. Raises ModelFileError where there is none."""
    with opened(path) as archive:
        info = archive.getinfo(member)
        if info.file_size > _LARGEST_JSON_BYTES:
            raise ModelFileError(f"{path.name}: {member} has {info.file_size:,} bytes, too many for a description")
        text = archive.read(info)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise corrupt(path, f"{member} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise corrupt(path, f"{member} describes no model")
    return found


def corrupt(path: Path, why: str) -> ModelFileError:
    """The complaint about a file that is not as it was written."""
    return ModelFileError(f"{path.name}: it is damaged: {why}", hint=AGAIN, code="model_corrupt")


@contextmanager
def opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """The archive; whatever zipfile raises while it is open becomes a ModelFileError."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except _DAMAGE as error:
        raise ModelFileError(
            f"{path.name}: the archive is damaged: {error}", hint=AGAIN, code="model_corrupt"
        ) from error
