"""Files sent to a board by their content: what is there already is not sent again."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from edgekit.errors import LinkError, UsageError
from edgekit.push.contact import Agent, disk_full, explained

SPARE_BYTES = 4 << 20
"""What stays free on the board's disk."""

Progress = Callable[[int, int], None]
"""Told ``(done_bytes, total_bytes)`` over all files that have to travel."""


@dataclasses.dataclass(frozen=True)
class Content:
    """A file to be on the board, under a name of its own there."""

    name: str
    path: Path
    sha256: str
    size_bytes: int

    def as_json(self) -> dict[str, Any]:
        """What the agent is told."""
        return {"sha256": self.sha256, "size_bytes": self.size_bytes}


def content(path: Path, name: str | None = None) -> Content:
    """``path`` with its hash and size. Raises :class:`UsageError` when it cannot be read."""
    try:
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return Content(name or path.name, path, digest, file.tell())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error


def blob_name(sha256: str) -> str:
    """Where a file lies on the board, below edgekit's folder."""
    return f"blobs/{sha256}"


def as_request(files: Iterable[Content]) -> dict[str, Any]:
    """``files`` by name, as the agent is told."""
    return {file.name: file.as_json() for file in files}


def send_missing(
    agent: Agent,
    files: Sequence[Content],
    missing: Sequence[str],
    *,
    free_bytes: int | None,
    progress: Progress | None = None,
) -> int:
    """Puts those of ``files`` whose hash is in ``missing`` into the board's store; returns the bytes that travelled.

    ``free_bytes`` is what the board has (None: not known). Raises :class:`JobError` with code ``disk_full`` before anything is sent
    when that is not enough, and :class:`LinkError` as :meth:`edgekit.link.base.Link.put` does.
    """
    absent = list({file.sha256: file for file in files if file.sha256 in set(missing)}.values())
    total = sum(file.size_bytes for file in absent)
    if absent and free_bytes is not None and free_bytes < total + SPARE_BYTES:
        raise disk_full(agent.link.name, agent.home, total + SPARE_BYTES, free_bytes)
    sent = done = 0
    for file in absent:

        def told(now: int, _: int, before: int = done) -> None:
            if progress is not None:
                progress(before + now, total)

        try:
            sent += agent.link.put(file.path, agent.path(blob_name(file.sha256)), progress=told).sent_bytes
        except LinkError as error:
            raise explained(agent.link, error, agent.path("blobs"), file.size_bytes) from error
        done += file.size_bytes
    return sent


def ask_with_files(
    agent: Agent, what: str, request: Mapping[str, Any], files: Sequence[Content], *, progress: Progress | None = None
) -> tuple[dict[str, Any], int]:
    """The answer to an errand that needs ``files`` in the store, and the bytes that travelled: what is damaged there is sent once more."""
    sent = 0
    for last in (False, True):
        answer = agent.ask(what, request)
        if answer["state"] != "missing" or last:
            return answer, sent
        sent += send_missing(agent, files, answer["missing"], free_bytes=None, progress=progress)
    raise AssertionError("the last attempt returns")
