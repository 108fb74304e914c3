"""The link to this machine: what the others do over the network, with files and child processes."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from edgekit.errors import LinkError, OutputError
from edgekit.link.base import Completed, detached, started_pid

_NOT_FOUND = 127
"""The exit code that a shell, and so SSH, gives for a program that does not exist."""


class LocalLink:
    """This machine as a board. Needs no set-up."""

    @property
    def name(self) -> str:
        """Always ``local``."""
        return "local"

    def run(self, argv: Sequence[str], *, timeout_s: float) -> Completed:
        """See :meth:`edgekit.link.base.Link.run`."""
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            return Completed(tuple(argv), _NOT_FOUND, b"", str(error).encode())
        with process:
            try:
                stdout, stderr = process.communicate(timeout=timeout_s)
            except BaseException as error:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                raise LinkError(
                    f"{argv[0]} did not end within {timeout_s:g} s on this machine", code="command_timeout"
                ) from error
        return Completed(tuple(argv), process.returncode, stdout, stderr)

    def put(self, local: Path, remote: str) -> None:
        """See :meth:`edgekit.link.base.Link.put`."""
        target = _path(remote)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _copy(local, target)
        except OSError as error:
            raise LinkError(f"{remote} cannot be written: {error.strerror or error}", code="write_failed") from error

    def get(self, remote: str, local: Path) -> None:
        """See :meth:`edgekit.link.base.Link.get`."""
        source = _path(remote)
        if not source.is_file():
            raise _unreadable(remote, FileNotFoundError() if not source.exists() else IsADirectoryError())
        try:
            _copy(source, local)
        except OSError as error:
            raise OutputError(f"{local} cannot be written: {error.strerror or error}") from error

    def read_bytes(self, remote: str, *, offset: int = 0) -> bytes:
        """See :meth:`edgekit.link.base.Link.read_bytes`."""
        try:
            with open(_path(remote), "rb") as file:
                file.seek(offset)
                return file.read()
        except OSError as error:
            raise _unreadable(remote, error) from error

    def exists(self, remote: str) -> bool:
        """See :meth:`edgekit.link.base.Link.exists`."""
        return _path(remote).exists()

    def start_job(self, argv: Sequence[str], *, cwd: str, log: str) -> int:
        """See :meth:`edgekit.link.base.Link.start_job`."""
        return started_pid(self.run(detached(argv, cwd=str(_path(cwd)), log=str(_path(log))), timeout_s=30.0))


def _path(remote: str) -> Path:
    return Path(remote).expanduser()


def _copy(source: Path, target: Path) -> None:
    """``target`` becomes a copy of ``source``; a reader sees the old file or the whole new one."""
    with open(source, "rb") as reader:
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(descriptor, "wb") as writer:
                shutil.copyfileobj(reader, writer, 1 << 20)
                writer.flush()
                os.fsync(writer.fileno())
            os.chmod(name, 0o644)  # mkstemp gives 600
            os.replace(name, target)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
            raise


def _unreadable(remote: str, error: OSError) -> LinkError:
    missing = isinstance(error, FileNotFoundError)
    return LinkError(
        f"{remote} does not exist" if missing else f"{remote} cannot be read: {error.strerror or error}",
        code="file_missing" if missing else "read_failed",
    )
