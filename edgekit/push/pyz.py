"""The agent as one file: a zipapp of the parts that run on the board, the same bytes for the same sources."""

from __future__ import annotations

import functools
import hashlib
import io
import zipfile
from pathlib import Path

import edgekit

_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)
_PARTS = ("__init__.py", "errors.py", "values.py", "runtime", "agent")
_MAIN = "agent/start.py"


@functools.cache
def _members() -> dict[str, bytes]:
    """The sources by their name in the zip."""
    package = Path(edgekit.__file__).parent
    members = {"__main__.py": (package / _MAIN).read_bytes()}
    for part in _PARTS:
        path = package / part
        for source in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            members[f"edgekit/{source.relative_to(package).as_posix()}"] = source.read_bytes()
    return members


@functools.cache
def build_agent() -> bytes:
    """``agent.pyz``: runs with any Python 3.8 or later that finds numpy and an interpreter, without edgekit installed."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in sorted(_members().items()):
            entry = zipfile.ZipInfo(name, _ZIP_EPOCH)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED, compresslevel=9)
    return buffer.getvalue()


@functools.cache
def agent_name() -> str:
    """The agent's file name on a board, by its content: that of the sources, which costs no packing."""
    digest = hashlib.sha256()
    for name, data in sorted(_members().items()):
        digest.update(f"{name} {len(data)}\n".encode() + data)
    return f"agent-{digest.hexdigest()[:16]}.pyz"
