"""A bundle folder appears as a whole or not at all: it is filled beside its place and moved there in one step."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgekit.errors import OutputError

MARKER = "manifest.json"


def check_target(out: Path, *, force: bool, needed_bytes: int) -> None:
    """Raises OutputError when ``out`` cannot become a bundle, before any work is done.

    It must not exist; with ``force`` it may be an earlier bundle or an empty folder (and never anything else: a mistyped path must
    not delete somebody's data). ``needed_bytes`` is an estimate of what will be written beside it.
    """
    if out.is_symlink() or out.exists():
        if not out.is_dir() or out.is_symlink():
            raise OutputError(f"{out} exists and is not a folder", hint="choose another --out")
        if not force:
            raise OutputError(
                f"{out} is already there", hint="choose another --out, or replace it as a whole with --force"
            )
        if any(out.iterdir()) and not (out / MARKER).is_file():
            raise OutputError(
                f"{out} is a folder but no bundle (it has no {MARKER}): it is not replaced", hint="choose another --out"
            )
    parent = _existing_parent(out)
    if not os.access(parent, os.W_OK):
        raise OutputError(f"{parent} is not writable", hint="choose another --out")
    free = shutil.disk_usage(parent).free
    if free < needed_bytes:
        raise OutputError(
            f"{parent} has {free / 1e6:.1f} MB free, and the bundle with its working files needs about {needed_bytes / 1e6:.1f} MB",
            hint="free some space, or choose another --out",
            code="no_space",
            details={"free_bytes": free, "needed_bytes": needed_bytes},
        )


def _existing_parent(out: Path) -> Path:
    parent = out.absolute().parent
    while not parent.exists():
        parent = parent.parent
    return parent


@contextmanager
def staging(out: Path) -> Iterator[Path]:
    """A hidden folder beside ``out`` to work in; it is gone afterwards, whatever happened. A full disk becomes an OutputError."""
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.absolute().parent))
    folder.chmod(0o755)  # it becomes the bundle, which others may read
    try:
        yield folder
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise OutputError(
                f"no space left in {out.absolute().parent} while the bundle was written; nothing was left behind",
                hint="free some space, or choose another --out",
                code="no_space",
            ) from error
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def publish(folder: Path, out: Path) -> None:
    """Move the finished ``folder`` to ``out``; an earlier bundle there is replaced in the same moment and then deleted."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    if not out.exists():
        os.rename(folder, out)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{out.name}.old.", dir=out.absolute().parent))
    os.rename(out, old / "bundle")
    try:
        os.rename(folder, out)
    except BaseException:
        os.rename(old / "bundle", out)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)
