"""The door for Keras files: ``.keras`` archives of Keras 3, and the older HDF5 files. Nothing in the file is ever run."""

from __future__ import annotations

import hashlib
import shutil
import zipfile
import zlib
from pathlib import Path

from edgekit.errors import ModelFileError, UnsupportedModelError
from edgekit.intake.door import DoorOptions
from edgekit.intake.formats import FORMATS, detect_format, require_file
from edgekit.intake.tensorflow_model import TensorflowSource, open_program, require_frontend
from edgekit.values import SourceModel

_LARGEST_BYTES = 8 * 2**30
"""Unpacked; a network of that size fits no TFLite file, and an archive that says so is meant to fill the disk."""
_AGAIN = "copy or download the file again and compare its size with the original"


def open_model(path: Path, options: DoorOptions) -> TensorflowSource:
    """The door for :func:`edgekit.intake.door.open_door`; see :func:`edgekit.intake.tensorflow_model.open_program` for its errors."""
    path = require_file(path)
    kind = detect_format(path)
    frontend = require_frontend(options, FORMATS[kind])
    if kind == "keras":
        require_sound_archive(path)
    folder = options.work / "tensorflow"
    folder.mkdir()
    private = folder / f"source.{kind}"  # Keras tells its formats by the ending
    shutil.copyfile(path, private)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    source = SourceModel(path, kind, digest, path.stat().st_size)
    return open_program(frontend, source, {"kind": "keras", "model": str(private), "signature": None}, folder, options)


def require_sound_archive(path: Path) -> None:
    """Every member of the archive read to its end, against its checksum. Raises ModelFileError that names the damaged one."""
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
            if size > _LARGEST_BYTES:
                raise UnsupportedModelError(
                    f"{path.name}: unpacks to {size:,} bytes, more than a .tflite file can hold"
                )
            damaged = archive.testzip()
    except (zipfile.BadZipFile, zlib.error, OSError, ValueError, EOFError, NotImplementedError, RuntimeError) as error:
        raise ModelFileError(
            f"{path.name}: the archive is damaged: {error}", hint=_AGAIN, code="model_corrupt"
        ) from error
    if damaged is not None:
        raise ModelFileError(
            f"{path.name}: the archive is damaged: {damaged} does not have the bytes that were written",
            hint=_AGAIN,
            code="model_corrupt",
            details={"member": damaged},
        )
