"""Files on a board over SFTP: each a step that may be done twice. Paths are absolute."""

from __future__ import annotations

import contextlib
import errno
import posixpath
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.errors import LinkError, OutputError
from edgekit.link.base import Progress
from edgekit.link.connect import STEP_TIMEOUT_S, Connection
from edgekit.link.local import whole_file
from edgekit.link.pipeline import READ_BYTES, WRITE_BYTES, Pipeline

if TYPE_CHECKING:
    import paramiko

ANSWER_TIMEOUT_S = 30.0
"""For one answer of the SFTP server while sshd itself is well: a card that is busy writing may take its time."""

SYNC_BYTES_PER_S = 2e6
"""A worn card writes no slower."""


class Files:
    """The SFTP subsystem of one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._open = contextlib.ExitStack()
        self._channel, self._client = self._started()

    @property
    def alive(self) -> bool:
        """Whether the server's end of it still runs."""
        return not self._channel.closed

    def home(self) -> str:
        """The folder that the server starts in, which is the user's home."""
        return str(self._client.normalize("."))

    def append(self, local: Path, remote: str, *, offset_bytes: int, progress: Progress | None) -> None:
        """See :meth:`edgekit.link.base.Link.append`."""
        with open(local, "rb") as reader, self._writable(remote) as writer:
            total_bytes = reader.seek(0, 2)
            reader.seek(offset_bytes)
            pipeline = Pipeline(self._client, writer.handle)
            while block := reader.read(WRITE_BYTES):
                pipeline.write(reader.tell() - len(block), block)
                if progress is not None:
                    progress(reader.tell(), total_bytes)
            pipeline.finish()
            self._sync(writer, total_bytes - offset_bytes)

    def get(self, remote: str, local: Path, progress: Progress | None) -> None:
        """See :meth:`edgekit.link.base.Link.get`."""
        with self._client.open(remote, "rb") as reader:
            size_bytes = self._size_to_read(reader, remote)
            try:
                with whole_file(local) as writer:
                    for block in _marked(self._blocks(reader, 0, size_bytes)):
                        writer.write(block)
                        if progress is not None:
                            progress(writer.tell(), size_bytes)
            except _Remote as remote_side:
                assert remote_side.__cause__ is not None
                raise remote_side.__cause__ from None
            except OSError as error:
                raise OutputError(f"{local} cannot be written: {error.strerror or error}") from error

    def read_bytes(self, remote: str, offset: int) -> bytes:
        """See :meth:`edgekit.link.base.Link.read_bytes`. Files that do not know their size (``/proc``) are read too."""
        with self._client.open(remote, "rb") as reader:
            size_bytes = self._size_to_read(reader, remote)
            return b"".join(self._blocks(reader, offset, size_bytes))

    def size_bytes(self, remote: str) -> int | None:
        """See :meth:`edgekit.link.base.Link.size_bytes`."""
        try:
            return self._client.stat(remote).st_size or 0
        except FileNotFoundError:
            return None
        except OSError as error:
            if self._is_below_a_file(remote, error):
                return None
            raise

    def names(self, remote: str) -> list[str]:
        """See :meth:`edgekit.link.base.Link.names`."""
        try:
            return sorted(self._client.listdir(remote))
        except FileNotFoundError:
            return []
        except OSError:
            if not self._is_folder(remote):
                return []
            raise

    def make_folder(self, remote: str) -> None:
        """See :meth:`edgekit.link.base.Link.make_folder`. Usually one question, as the folder is there."""
        missing = []
        while not self._is_folder(remote):
            missing.append(remote)
            remote = posixpath.dirname(remote)
        for folder in reversed(missing):
            try:
                self._client.mkdir(folder, 0o777)
            except OSError:
                if not self._is_folder(folder):  # made by somebody else meanwhile
                    raise

    def replace(self, remote: str, target: str) -> None:
        """See :meth:`edgekit.link.base.Link.replace`. ``rename`` of SFTP itself replaces nothing; OpenSSH's extension does."""
        self._client.posix_rename(remote, target)

    def symlink(self, points_to: str, remote: str) -> None:
        """See :meth:`edgekit.link.base.Link.symlink`."""
        folder, base = posixpath.split(remote)
        beside = posixpath.join(folder, f".{base}.{secrets.token_hex(8)}")
        self._client.symlink(points_to, beside)
        try:
            self._client.posix_rename(beside, remote)
        except OSError:
            self.remove(beside)
            raise

    def read_symlink(self, remote: str) -> str | None:
        """See :meth:`edgekit.link.base.Link.read_symlink`."""
        try:
            if not stat.S_ISLNK(self._client.lstat(remote).st_mode or 0):
                return None
            text: str | None = self._client.readlink(remote)
            return text
        except FileNotFoundError:
            return None

    def remove(self, remote: str) -> None:
        """See :meth:`edgekit.link.base.Link.remove`."""
        with contextlib.suppress(FileNotFoundError):
            self._client.remove(remote)

    def _started(self) -> tuple[paramiko.Channel, paramiko.SFTPClient]:
        import paramiko

        channel = self._open.enter_context(self._connection.session())
        channel.settimeout(ANSWER_TIMEOUT_S)
        try:
            with self._connection.watchdog.deadline(STEP_TIMEOUT_S, "starting SFTP"):
                channel.invoke_subsystem("sftp")
                return channel, paramiko.SFTPClient(channel)
        except (paramiko.SSHException, paramiko.SFTPError, EOFError, OSError) as error:
            self._open.close()
            if not self._connection.alive:
                raise
            raise self._no_sftp(error) from error

    def _no_sftp(self, error: BaseException) -> LinkError:
        import paramiko

        where = self._connection.target.address
        if isinstance(error, paramiko.SFTPError):  # an answer that is none
            return LinkError(
                f"{where} prints words of its own where SFTP answers are due, so no file can be moved",
                code="sftp_garbled",
                hint="let ~/.bashrc there print nothing for commands (return early unless $- holds i), "
                "or set `Subsystem sftp internal-sftp` in its /etc/ssh/sshd_config",
            )
        return LinkError(
            f"{where} does not offer SFTP, so no file can be moved: {error or 'the subsystem ended at once'}",
            code="sftp_missing",
            hint="add `Subsystem sftp internal-sftp` to /etc/ssh/sshd_config there and restart sshd "
            "(or install its sftp server, e.g. openssh-sftp-server)",
        )

    @contextlib.contextmanager
    def _writable(self, remote: str) -> Iterator[paramiko.SFTPFile]:
        """A file to write into at any place, made if it is missing and not cut off if it is there."""
        try:
            file = self._client.open(remote, "r+b")
        except FileNotFoundError:
            file = self._client.open(remote, "ab")  # creates; closed at once, as it would only ever write to the end
            file.close()
            file = self._client.open(remote, "r+b")
        with file:
            yield file

    def _sync(self, writer: paramiko.SFTPFile, size_bytes: int) -> None:
        """Has the file on the disk: what a power cut must not take back once it has its name. Servers that cannot are left alone."""
        from paramiko.sftp import CMD_EXTENDED

        self._channel.settimeout(ANSWER_TIMEOUT_S + size_bytes / SYNC_BYTES_PER_S)
        try:
            self._client._request(CMD_EXTENDED, "fsync@openssh.com", writer.handle)
        except OSError as error:
            if isinstance(error, TimeoutError) or "unsupported" not in str(error).lower():
                raise
        finally:
            self._channel.settimeout(ANSWER_TIMEOUT_S)

    def _blocks(self, reader: paramiko.SFTPFile, offset: int, size_bytes: int) -> Iterator[bytes]:
        """The file from ``offset`` on: what it says it holds at full speed, then to its real end."""
        pipeline = Pipeline(self._client, reader.handle)
        for block in pipeline.read(offset, size_bytes):
            offset += len(block)
            yield block
        reader.seek(offset)
        while block := reader.read(READ_BYTES):
            yield block

    def _size_to_read(self, reader: paramiko.SFTPFile, remote: str) -> int:
        attributes = reader.stat()
        if stat.S_ISDIR(attributes.st_mode or 0):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", remote)
        return attributes.st_size or 0

    def _is_folder(self, remote: str) -> bool:
        try:
            return stat.S_ISDIR(self._client.stat(remote).st_mode or 0)
        except FileNotFoundError:
            return False

    def _is_below_a_file(self, remote: str, error: OSError) -> bool:
        """SFTP has no word for "not a directory": it says "Failure"."""
        if error.errno is not None:
            return False
        above = posixpath.dirname(remote)
        try:
            return above != remote and not self._is_folder(above)
        except OSError:
            return True


class _Remote(Exception):
    """Something went wrong on the board's side while a local file was being written."""


def _marked(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The blocks, with what goes wrong in getting them told apart from what goes wrong in keeping them."""
    try:
        yield from blocks
    except Exception as error:
        raise _Remote from error
