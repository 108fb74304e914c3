"""The door for Keras files: ``.keras`` archives of Keras 3, and the older HDF5 files. Nothing in the file is ever run."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from edgekit.intake.archives import require_sound_archive
from edgekit.intake.door import DoorOptions
from edgekit.intake.formats import FORMATS, detect_format, require_file
from edgekit.intake.tensorflow_model import TensorflowSource, open_program, require_frontend
from edgekit.values import SourceModel


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
