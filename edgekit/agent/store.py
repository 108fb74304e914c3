"""What lies on the board under edgekit's folder, by content, and what of it is thrown away. Standard library only.

``blobs/SHA256`` are files that releases and benchmarks share, ``env/HASH`` unpacked interpreters, ``jobs/ID`` benchmarks,
``apps/APP`` releases. A clock that is wrong by years must cost nothing that is needed: what is referenced stays whatever its age, and
what seems to come from the future begins to age now.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Set

SCHEMA = 1
"""Of what the agent keeps in its folder and answers; :mod:`edgekit.values` would take longer to import than most errands."""

DAY_S = 86400.0
BLOB_IDLE_S = DAY_S
"""A file that no release needs may belong to a push that was cut: it stays for a day, to go on from."""
PROGRAM_IDLE_S = 7 * DAY_S
"""Agents and environments that are no longer the newest may still be running."""
JOB_IDLE_S = 30 * DAY_S

_FINAL_STATES = ("done", "failed", "cancelled")


class Store:
    """The blobs in ``home``."""

    def __init__(self, home: str) -> None:
        self.home = home
        self.folder = os.path.join(home, "blobs")

    def path(self, sha256: str) -> str:
        """Where the file with this content is, or would be."""
        return os.path.join(self.folder, sha256)

    def missing(self, wanted: Sequence[Mapping[str, Any]]) -> List[str]:
        """The hashes of ``wanted`` (objects with ``sha256`` and ``size_bytes``) that have to be sent. Those that are there count as just used."""
        absent = []
        for file in wanted:
            path = self.path(file["sha256"])
            try:
                there = os.path.getsize(path) == file["size_bytes"]
                if there:
                    os.utime(path)
            except OSError as error:
                there = not isinstance(error, FileNotFoundError)  # read-only: there, and not to be touched
            if not there:
                absent.append(file["sha256"])
        return absent

    def damaged(self, wanted: Sequence[Mapping[str, Any]]) -> List[str]:
        """The hashes of ``wanted`` that are absent or whose bytes are others; such files are removed."""
        found = []
        for file in wanted:
            path = self.path(file["sha256"])
            try:
                right = sha256_of(path) == file["sha256"]
            except OSError:
                right = False
            if not right:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
                found.append(file["sha256"])
        return found


def sha256_of(path: str) -> str:
    """The hash of a file's bytes. Raises OSError."""
    import hashlib

    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def write_json(path: str, value: Mapping[str, Any]) -> None:
    """Replaces a JSON file as a whole, and has it on the disk before it returns."""
    beside = f"{path}.new"
    try:
        with open(beside, "w", encoding="utf-8") as file:
            json.dump(value, file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
    sync_folder(os.path.dirname(path))


def read_json(path: str) -> Dict[str, Any]:
    """The object in a JSON file; empty where there is none that can be read."""
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def sync_folder(path: str) -> None:
    """Has the names in a folder on the disk: a rename is not, until then."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def free_bytes(path: str) -> int:
    """What this user may still write to the disk of ``path``, or of the nearest folder above that exists."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    stats = os.statvfs(path)
    return stats.f_bavail * stats.f_frsize


def sweep(home: str, *, agent: str) -> List[str]:
    """Removes what nobody needs any more and returns the paths, relative to ``home``. ``agent`` is the program that is running."""
    removed: List[str] = []
    needed = _needed(home)
    environment = os.path.realpath(os.path.join(home, "env", "current"))
    for path in _idle(os.path.join(home, "blobs"), BLOB_IDLE_S):
        if os.path.basename(path) not in needed:
            removed += _remove(path)
    for path in _idle(home, PROGRAM_IDLE_S):
        name = os.path.basename(path)
        if re.fullmatch(r"agent-[0-9a-f]+\.(pyz|.+\.code)|\.agent-.*\.part", name) and os.path.realpath(path) != agent:
            removed += _remove(path)
    for path in _idle(os.path.join(home, "env"), PROGRAM_IDLE_S):
        if os.path.realpath(path) != environment and not os.path.islink(path):
            removed += _remove(path)
    for path in _idle(os.path.join(home, "jobs"), JOB_IDLE_S):
        if read_json(os.path.join(path, "status.json")).get("state") in _FINAL_STATES:
            removed += _remove(path)
    return [os.path.relpath(path, home) for path in removed]


def _needed(home: str) -> Set[str]:
    """The hashes that a release or a benchmark's request names."""
    named: Set[str] = set()
    for folder, files in (("apps", "release.json"), ("jobs", "request.json")):
        for root, _, names in os.walk(os.path.join(home, folder)):
            if files in names:
                try:
                    with open(os.path.join(root, files), encoding="utf-8", errors="replace") as file:
                        named.update(re.findall(r"\b[0-9a-f]{64}\b", file.read()))
                except OSError:
                    continue
    return named


def _idle(folder: str, limit_s: float) -> Iterator[str]:
    """The entries of ``folder`` that were last changed longer ago than ``limit_s``."""
    try:
        names = os.listdir(folder)
    except OSError:
        return
    now = time.time()
    for name in names:
        path = os.path.join(folder, name)
        try:
            age_s = now - os.lstat(path).st_mtime
            if age_s < 0 and not os.path.islink(path):
                os.utime(path)
        except OSError:
            continue
        if age_s > limit_s:
            yield path


def _remove(path: str) -> List[str]:
    import shutil

    try:
        shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
    except OSError:
        return []
    return [path]
