"""The link to this machine: what the others do over the network, with files and child processes."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from edgekit.errors import LinkError, OutputError
from edgekit.link.base import Completed, Link, Progress

_BLOCK_BYTES = 1 << 20

_NOT_FOUND = 127
"""The exit code that a shell, and so SSH, gives for a program that does not exist."""


class LocalLink(Link):
    """This machine as a board. Needs no set-up."""

    @property
    def name(self) -> str:
        """Always ``local``."""
        return "local"

    def home(self) -> str:
        """See :meth:`edgekit.link.base.Link.home`."""
        return str(Path.home())

    def run(self, argv: Sequence[str], *, timeout_s: float, stdin: bytes = b"", idempotent: bool = False) -> Completed:
        """See :meth:`edgekit.link.base.Link.run`."""
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            return Completed(tuple(argv), _NOT_FOUND, b"", str(error).encode())
        with process:
            try:
                stdout, stderr = process.communicate(stdin or None, timeout=timeout_s)
            except BaseException as error:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                if not isinstance(error, subprocess.TimeoutExpired):
                    raise
                raise LinkError(
                    f"{argv[0]} did not end within {timeout_s:g} s on this machine", code="command_timeout"
                ) from error
        return Completed(tuple(argv), process.returncode, stdout, stderr)

    def append(self, local: Path, remote: str, *, offset_bytes: int, progress: Progress | None = None) -> None:
        """See :meth:`edgekit.link.base.Link.append`."""
        total_bytes = os.path.getsize(local)
        try:
            descriptor = os.open(self._path(remote), os.O_WRONLY | os.O_CREAT, 0o644)
            with open(local, "rb") as reader, os.fdopen(descriptor, "wb") as writer:
                reader.seek(offset_bytes)
                writer.seek(offset_bytes)
                while block := reader.read(_BLOCK_BYTES):
                    writer.write(block)
                    if progress is not None:
                        progress(reader.tell(), total_bytes)
                writer.flush()
                os.fsync(writer.fileno())
        except OSError as error:
            raise _unwritable(remote, error) from error

    def get(self, remote: str, local: Path, *, progress: Progress | None = None) -> None:
        """See :meth:`edgekit.link.base.Link.get`."""
        source = self._path(remote)
        if not source.is_file():
            raise _unreadable(remote, FileNotFoundError() if not source.exists() else IsADirectoryError())
        try:
            with whole_file(local) as writer, open(source, "rb") as reader:
                shutil.copyfileobj(reader, writer, _BLOCK_BYTES)
                size_bytes = writer.tell()
        except OSError as error:
            raise OutputError(f"{local} cannot be written: {error.strerror or error}") from error
        if progress is not None:
            progress(size_bytes, size_bytes)

    def read_bytes(self, remote: str, *, offset: int = 0) -> bytes:
        """See :meth:`edgekit.link.base.Link.read_bytes`."""
        try:
            with open(self._path(remote), "rb") as file:
                file.seek(offset)
                return file.read()
        except OSError as error:
            raise _unreadable(remote, error) from error

    def size_bytes(self, remote: str) -> int | None:
        """See :meth:`edgekit.link.base.Link.size_bytes`."""
        try:
            return self._path(remote).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _unreadable(remote, error) from error

    def names(self, remote: str) -> list[str]:
        """See :meth:`edgekit.link.base.Link.names`."""
        try:
            return sorted(os.listdir(self._path(remote)))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise _unreadable(remote, error) from error

    def make_folder(self, remote: str) -> None:
        """See :meth:`edgekit.link.base.Link.make_folder`."""
        try:
            self._path(remote).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritable(remote, error) from error

    def replace(self, remote: str, target: str) -> None:
        """See :meth:`edgekit.link.base.Link.replace`."""
        try:
            os.replace(self._path(remote), self._path(target))
        except FileNotFoundError as error:
            raise _unreadable(remote, error) from error
        except OSError as error:
            raise _unwritable(target, error) from error

    def symlink(self, points_to: str, remote: str) -> None:
        """See :meth:`edgekit.link.base.Link.symlink`."""
        path = self._path(remote)
        beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        try:
            os.symlink(points_to, beside)
            os.replace(beside, path)
        except OSError as error:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise _unwritable(remote, error) from error

    def read_symlink(self, remote: str) -> str | None:
        """See :meth:`edgekit.link.base.Link.read_symlink`."""
        path = self._path(remote)
        return os.readlink(path) if path.is_symlink() else None

    def remove(self, remote: str) -> None:
        """See :meth:`edgekit.link.base.Link.remove`."""
        try:
            self._path(remote).unlink(missing_ok=True)
        except OSError as error:
            raise _unwritable(remote, error) from error

    def close(self) -> None:
        """Nothing is open."""

    def _path(self, remote: str) -> Path:
        return Path(self.absolute(remote))


@contextlib.contextmanager
def whole_file(target: Path) -> Iterator[BinaryIO]:
    """A file to write to that becomes ``target`` at the end: a reader sees the old file or the whole new one."""
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as writer:
            yield writer
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


def _unwritable(remote: str, error: OSError) -> LinkError:
    return LinkError(f"{remote} cannot be written: {error.strerror or error}", code="write_failed")
