"""The door for TensorFlow SavedModels: one signature of the folder, under its own argument names."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from edgekit.errors import ModelFileError
from edgekit.intake.door import DoorOptions
from edgekit.intake.formats import FORMATS, require_path
from edgekit.intake.tensorflow_model import TensorflowSource, open_program, require_frontend
from edgekit.values import SourceModel


def open_model(path: Path, options: DoorOptions) -> TensorflowSource:
    """The door for :func:`edgekit.intake.door.open_door`; see :func:`edgekit.intake.tensorflow_model.open_program` for its errors."""
    path = require_path(path)
    frontend = require_frontend(options, FORMATS["savedmodel"])
    folder = options.work / "tensorflow"
    folder.mkdir()
    private = folder / "source"
    try:
        digest, size_bytes = digest_of_folder(path)
        shutil.copytree(path, private)
    except (OSError, shutil.Error) as error:
        raise ModelFileError(f"{path}: cannot be read as a whole: {error}", code="model_file_unreadable") from error
    source = SourceModel(path, "savedmodel", digest, size_bytes)
    model = {"kind": "savedmodel", "model": str(private), "signature": options.signature}
    return open_program(frontend, source, model, folder, options)


def digest_of_folder(folder: Path) -> tuple[str, int]:
    """SHA-256 over the files below ``folder``, sorted by relative name: each one's name, size and content; and their bytes together."""
    digest, total = hashlib.sha256(), 0
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    for name, path in sorted(files.items()):
        size = path.stat().st_size
        digest.update(f"{len(name.encode())}:{name}:{size}:".encode())
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
        total += size
    return digest.hexdigest(), total
