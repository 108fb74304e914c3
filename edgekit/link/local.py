"""The link to this machine: what the others do over the network, with files and child processes."""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, BinaryIO

from edgekit.errors import LinkError, OutputError
from edgekit.link import base
from edgekit.link.base import Completed, Link, Progress, ended_early

_BLOCK_BYTES = 1 << 20

_LAST_WORDS_S = 5.0

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
            streams = _Streams(process, stdin)
            try:
                ended = streams.wait(timeout_s)
            finally:  # interrupted, too
                if streams.open:
                    _kill_group(process)
                    streams.close()
        if not ended:
            raise ended_early(
                argv,
                "this machine",
                loud=streams.loud,
                timeout_s=timeout_s,
                stdout=bytes(streams.stdout),
                stderr=bytes(streams.stderr),
            )
        return Completed(tuple(argv), process.returncode, bytes(streams.stdout), bytes(streams.stderr))

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


class _Streams:
    """A process's streams, each with a thread of its own, so that none waits for another."""

    def __init__(self, process: subprocess.Popen[bytes], stdin: bytes) -> None:
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.loud = False
        self._process = process
        self._threads = [threading.Thread(target=self._feed, args=(stdin,), daemon=True)] if stdin else []
        for stream, kept in ((process.stdout, self.stdout), (process.stderr, self.stderr)):
            assert stream is not None
            self._threads.append(threading.Thread(target=self._drain, args=(stream, kept), daemon=True))
        for thread in self._threads:
            thread.start()

    @property
    def open(self) -> bool:
        """Whether the process, or a child that holds its streams, is still there."""
        return self._process.poll() is None or any(thread.is_alive() for thread in self._threads)

    def wait(self, timeout_s: float) -> bool:
        """Whether it ended, streams and all, in time and without saying too much."""
        end = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
            if thread.is_alive():
                return False
        try:
            self._process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return not self.loud

    def close(self) -> None:
        """After the end was forced: what is still in the pipes is read."""
        for thread in self._threads:
            thread.join(_LAST_WORDS_S)

    def _drain(self, stream: IO[bytes], kept: bytearray) -> None:
        assert isinstance(stream, io.BufferedReader)
        while block := stream.read1(_BLOCK_BYTES):
            kept += block
            if len(kept) > base.MOST_OUTPUT_BYTES:
                self.loud = True
                _kill_group(self._process)
                return

    def _feed(self, stdin: bytes) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._process.stdin as stream:
            stream.write(stdin)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


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
