"""A file put on a board so that it is there as a whole or not at all: written beside its place, hashed there, renamed."""

from __future__ import annotations

import hashlib
import posixpath
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.errors import LinkError, UsageError
from edgekit.link.base import Progress, Transfer, tail

if TYPE_CHECKING:
    from edgekit.link.base import Link

HASH_BYTES_PER_S = 2e6
"""No board is so slow: the oldest Raspberry Pi reads its card at 10 MB/s."""

MAX_IDLE_ATTEMPTS = 3
"""So many connections in a row may break before one more byte arrived."""

ASK_FOR_SPACE_BYTES = 1 << 20
"""Smaller files are not worth the question."""

_HASH_SCRIPT = """\
[ -e "$1" ] || exit 44
for words in 'sha256sum' 'shasum -a 256' 'openssl dgst -sha256 -r'; do
  line=$($words <"$1" 2>/dev/null) && [ -n "$line" ] && { echo "$line"; exit 0; }
done
exec python3 -c 'import hashlib, sys
digest = hashlib.sha256()
for block in iter(lambda: sys.stdin.buffer.read(1 << 20), b""):
    digest.update(block)
print(digest.hexdigest())' <"$1"
"""
"""The file comes from stdin: names with a backslash change what sha256sum prints."""

_MISSING = 44
_LONGEST_NAME_BYTES = 180
"""Of 255 that a file system takes."""


def upload(link: Link, local: Path, remote: str, *, resume: bool, progress: Progress | None) -> Transfer:
    """See :meth:`edgekit.link.base.Link.put`."""
    digest, total_bytes = _hash_of(local)
    remote = link.absolute(remote)
    folder, base = posixpath.split(remote)
    link.make_folder(folder)
    mark = digest[:32] if resume else secrets.token_hex(16)
    name = base.encode()[:_LONGEST_NAME_BYTES].decode("utf-8", "ignore")
    part = posixpath.join(folder, f".{name}.{mark}.part")
    there = (link.size_bytes(part) or 0) if resume else 0
    if there > total_bytes:
        link.remove(part)
        there = 0
    _refuse_when_full(link, remote, total_bytes - there)
    try:
        sent = _send(link, local, part, digest=digest, offset_bytes=there, total_bytes=total_bytes, progress=progress)
        _install(link, part, remote)
    except LinkError as error:
        if error.code == "file_missing" and link.exists(remote) and link.sha256(remote) == digest:
            return Transfer(
                digest, total_bytes, total_bytes - there
            )  # by us, or by somebody who sent the same bytes meanwhile
        if error.code not in ("write_failed", "bytes_altered"):
            raise
        missing = total_bytes - (link.size_bytes(part) or 0)
        free_bytes = link.free_bytes(folder)
        link.remove(part)
        if free_bytes is not None and free_bytes < missing:  # SFTP says no more than "Failure"
            raise _full(link, remote, missing, free_bytes) from error
        raise
    return Transfer(digest, total_bytes, sent)


def _refuse_when_full(link: Link, remote: str, needed_bytes: int) -> None:
    """Raises when the file does not fit: found out by writing, it would take the last free byte from whatever runs there."""
    if needed_bytes < ASK_FOR_SPACE_BYTES:
        return
    free_bytes = link.free_bytes(remote)
    if free_bytes is not None and free_bytes < needed_bytes:
        raise _full(link, remote, needed_bytes, free_bytes)


def _full(link: Link, remote: str, needed_bytes: int, free_bytes: int) -> LinkError:
    return LinkError(
        f"the disk of {link.name} is full: {remote} needs {needed_bytes / 1e6:.1f} MB more, {free_bytes / 1e6:.1f} MB are free",
        code="write_failed",
        hint="make room there: df -h; du -xh / | sort -h | tail",
        details={"needed_bytes": needed_bytes, "free_bytes": free_bytes},
    )


def hash_on_board(link: Link, remote: str) -> str:
    """See :meth:`edgekit.link.base.Link.sha256`."""
    remote = link.absolute(remote)
    size = link.size_bytes(remote) or 0
    done = link.run(["sh", "-c", _HASH_SCRIPT, "sh", remote], timeout_s=30.0 + size / HASH_BYTES_PER_S, idempotent=True)
    word = done.text.split(maxsplit=1)[0] if done.text else ""
    if done.returncode == 0 and len(word) == 64:
        return word
    if done.returncode == _MISSING or not link.exists(remote):  # another who sends the same may have taken it meanwhile
        raise LinkError(f"{remote} does not exist", code="file_missing")
    raise LinkError(
        f"{remote} cannot be hashed on {link.name} (exit {done.returncode})",
        code="hash_unavailable",
        hint="the board needs one of sha256sum, shasum, openssl or python3",
        details={"stderr": tail(done.stderr)},
    )


def _send(
    link: Link, local: Path, part: str, *, digest: str, offset_bytes: int, total_bytes: int, progress: Progress | None
) -> int:
    """Brings ``part`` to hold ``local``; the bytes that had to travel. A part that was resumed and is wrong is sent anew, once."""
    _append_all(link, local, part, offset_bytes=offset_bytes, progress=progress)
    arrived = link.sha256(part)
    if arrived != digest and offset_bytes:
        link.remove(part)
        _append_all(link, local, part, offset_bytes=0, progress=progress)
        offset_bytes, arrived = 0, link.sha256(part)
    if arrived != digest:
        raise LinkError(
            f"other bytes arrived on {link.name} than were sent: sha256 {arrived[:16]}... there, {digest[:16]}... here",
            code="bytes_altered",
            hint="try again; if it stays so, the board's storage or memory is failing (see dmesg there)",
            details={"sent": digest, "arrived": arrived},
        )
    return total_bytes - offset_bytes


def _append_all(link: Link, local: Path, part: str, *, offset_bytes: int, progress: Progress | None) -> None:
    """Appends over as many connections as it takes, as long as each brings some bytes."""
    idle = 0
    while True:
        try:
            link.append(local, part, offset_bytes=offset_bytes, progress=progress)
            return
        except LinkError as error:
            if error.code != "link_lost" or idle >= MAX_IDLE_ATTEMPTS:
                raise
            broken = error
        try:
            there = link.size_bytes(part) or 0  # connects anew, and waits for it
        except LinkError as error:
            raise broken from error
        idle = 0 if there > offset_bytes else idle + 1
        offset_bytes = there


def _install(link: Link, part: str, remote: str) -> None:
    """Gives the part its name. When the link breaks on the answer it may have it already: it is missing then."""
    try:
        link.replace(part, remote)
    except LinkError as error:
        if error.code != "link_lost":
            raise
        link.exists(part)  # connects anew, and waits for it
        link.replace(part, remote)


def _hash_of(local: Path) -> tuple[str, int]:
    try:
        with open(local, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return digest, file.tell()
    except OSError as error:
        raise UsageError(f"{local} cannot be read: {error.strerror or error}") from error
