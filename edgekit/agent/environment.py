"""Interpreter and numpy on the board: wheels unpacked into a folder that is put on ``PYTHONPATH``. No pip, no venv. Standard library only."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any, Dict, Mapping

from edgekit.agent.store import SCHEMA, Store, free_bytes, read_json, sync_folder, write_json
from edgekit.errors import JobError

ENVIRONMENT_FILE = "edgekit-env.json"
SPARE_BYTES = 16 << 20
"""What stays free on the board's disk."""


def current_environment(home: str) -> Dict[str, Any]:
    """What :func:`install` wrote about the environment that is in use, with its ``path``; empty when there is none."""
    path = os.path.join(home, "env", "current")
    known = read_json(os.path.join(path, ENVIRONMENT_FILE))
    return {**known, "path": path} if known else {}


def install(home: str, request: Mapping[str, Any]) -> Dict[str, Any]:
    """Unpacks the wheels ``request["wheels"]`` (each ``sha256``, ``name``) from the store into ``env/HASH``, as a whole or not at all.

    It is not in use yet: :func:`use` does that. Returns its ``path``; ``missing`` names blobs that are not there or are damaged.
    """
    import shutil
    import zipfile

    path = os.path.join(home, "env", request["hash"])
    if os.path.exists(os.path.join(path, ENVIRONMENT_FILE)):
        return {"state": "unchanged", "path": path}
    store = Store(home)
    absent = store.damaged(request["wheels"])
    if absent:
        return {"state": "missing", "missing": absent}
    blobs = [store.path(wheel["sha256"]) for wheel in request["wheels"]]
    needed = sum(entry.file_size for blob in blobs for entry in zipfile.ZipFile(blob).infolist()) + SPARE_BYTES
    if free_bytes(home) < needed:
        raise JobError(
            f"the environment needs {needed / 1e6:.0f} MB on the board, and {free_bytes(home) / 1e6:.0f} MB are free",
            code="disk_full",
            hint="free some space there, and run it again",
        )
    beside = os.path.join(home, "env", f".{request['hash']}.{os.getpid()}")
    os.makedirs(beside)
    try:
        for blob in blobs:
            _unpack(blob, beside)
        known = {"python": sys.executable, "python_version": list(sys.version_info[:3]), "wheels": request["wheels"]}
        write_json(os.path.join(beside, ENVIRONMENT_FILE), {"schema": SCHEMA, **known, "hash": request["hash"]})
        shutil.rmtree(path, ignore_errors=True)  # one without the file above was never finished
        os.rename(beside, path)
        sync_folder(os.path.dirname(path))
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    return {"state": "done", "path": path}


def use(home: str, name: str) -> None:
    """Makes ``env/NAME`` the one in use, in one step; the wheels that it was made of are no longer needed."""
    folder = os.path.join(home, "env")
    beside = os.path.join(folder, ".current.new")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(beside)
    os.symlink(name, beside)
    os.replace(beside, os.path.join(folder, "current"))
    sync_folder(folder)
    for wheel in current_environment(home).get("wheels", []):
        with contextlib.suppress(OSError):
            os.unlink(Store(home).path(wheel["sha256"]))


def _unpack(wheel: str, folder: str) -> None:
    import zipfile

    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            target = os.path.normpath(os.path.join(folder, entry.filename))
            if not target.startswith(folder + os.sep):
                raise JobError(f"{entry.filename!r} in a wheel leads out of its folder", code="wheel_invalid")
            archive.extract(entry, folder)
