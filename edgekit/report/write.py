"""Text onto the disk, whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from edgekit.errors import OutputError

REASONS = {
    errno.ENOSPC: ("the disk is full", "free some space, or choose another place with --out"),
    errno.EDQUOT: ("the disk quota is used up", "free some space, or choose another place with --out"),
    errno.EACCES: ("permission denied", "choose a place that you may write to with --out"),
    errno.EROFS: ("the file system is read-only", "choose a place that you may write to with --out"),
    errno.ENOTDIR: ("a part of the path is a file", "choose another place with --out"),
}


def write_text(path: Path, text: str) -> None:
    """Replaces ``path`` by ``text`` (UTF-8) in one step: a reader sees the old file or the new one, never a part.

    Parent folders are made. Raises OutputError with the system's reason; the old file is then untouched and no fragment
    stays.
    """
    path = Path(path)
    if path.is_dir():
        raise OutputError(f"{path} is a folder, not a file", hint=f"--out {path / 'report.html'}")
    temporary = path.parent / f".{path.name}.{os.getpid()}.part"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("w", encoding="utf-8", errors="replace", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        reason, hint = REASONS.get(error.errno or 0, (error.strerror or str(error), "choose another place with --out"))
        raise OutputError(f"cannot write {path}: {reason}", hint=hint, details={"errno": error.errno}) from error
