"""A bundle folder appears as a whole or not at all: it is filled beside its place and moved there in one step."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgekit.errors import EdgekitError, OutputError

MARKER = "manifest.json"


def check_target(out: Path, *, force: bool, needed_bytes: int) -> None:
    """Raises OutputError when ``out`` cannot become a bundle, before any work is done.

    It must not exist; with ``force`` it may be an earlier bundle or an empty folder (and never anything else: a mistyped path must
    not delete somebody's data). ``needed_bytes`` is an estimate of what will be written beside it.
    """
    _check_place(out, force=force)
    parent = _existing_parent(out)
    if not parent.is_dir():
        raise OutputError(f"{parent} is a file, so {out} cannot be made below it", hint="choose another --out")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise OutputError(f"{parent} is not writable", hint="choose another --out")
    free = shutil.disk_usage(parent).free
    if free < needed_bytes:
        raise OutputError(
            f"{parent} has {free / 1e6:.1f} MB free, and the bundle with its working files needs about {needed_bytes / 1e6:.1f} MB",
            hint="free some space, or choose another --out",
            code="no_space",
            details={"free_bytes": free, "needed_bytes": needed_bytes},
        )


def _check_place(out: Path, *, force: bool) -> None:
    if out.name in ("", ".."):
        raise OutputError(f"--out {out} names no new folder", hint="give the folder a name, like --out model.bundle")
    if not (out.is_symlink() or out.exists()):
        return
    if not out.is_dir() or out.is_symlink():
        raise OutputError(f"{out} exists and is not a folder", hint="choose another --out", code="output_exists")
    if not force:
        hint = "choose another --out, or replace it as a whole with --force"
        raise OutputError(f"{out} is already there", hint=hint, code="output_exists")
    if any(out.iterdir()) and not _is_bundle(out):
        raise OutputError(
            f"{out} is a folder but no bundle (it has no {MARKER} of edgekit): it is not replaced",
            hint="choose another --out",
            code="output_exists",
        )


def _is_bundle(folder: Path) -> bool:
    """Other programs have files called manifest.json too."""
    try:
        manifest = json.loads((folder / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(manifest, dict) and {"schema", "edgekit", "files"} <= manifest.keys()


def _existing_parent(out: Path) -> Path:
    parent = out.absolute().parent
    while not parent.exists():
        parent = parent.parent
    return parent


@contextmanager
def staging(out: Path) -> Iterator[Path]:
    """A hidden folder beside ``out`` to work in; it is gone afterwards, whatever happened, and so are parents made for it.

    A full disk becomes an OutputError, also where a child process met it.
    """
    parent = out.absolute().parent
    made = _make_parents(parent)
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=parent))
        folder.chmod(0o755)  # it becomes the bundle, which others may read
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    except Exception as error:
        if _disk_was_full(error):
            raise OutputError(
                f"no space left in {parent} while the bundle was written; nothing was left behind",
                hint="free some space, or choose another --out",
                code="no_space",
            ) from error
        raise
    finally:
        for path in made:
            try:
                path.rmdir()
            except OSError:
                break  # the bundle is in it


def _make_parents(parent: Path) -> list[Path]:
    """Makes ``parent`` with what is missing above it; the folders made, the innermost first."""
    missing = []
    path = parent
    while not path.exists():
        missing.append(path)
        path = path.parent
    parent.mkdir(parents=True, exist_ok=True)
    return missing


def _disk_was_full(error: BaseException | None) -> bool:
    """Whether ``error`` or what caused it is a full disk; a child process can only say so in words."""
    words = {os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT)}
    seen = set()
    while error is not None and id(error) not in seen:  # a chain may lead back to itself
        seen.add(id(error))
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        if isinstance(error, EdgekitError):
            said = [error.message, str(error.details.get("trace", "")), *error.details.get("log_tail", [])]
            if any(word in line for word in words for line in said):
                return True
        error = error.__cause__
    return False


def publish(folder: Path, out: Path, *, force: bool) -> None:
    """Move the finished ``folder`` to ``out``; an earlier bundle there is replaced in the same moment and then deleted.

    Raises OutputError when something that may not be replaced has appeared there meanwhile.
    """
    _check_place(out, force=force)
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
