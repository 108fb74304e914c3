"""An SSH server inside the test process, for boards that no real sshd can play: an SFTP server that fails as it is told.

Commands run for real, in ``sh``, in the folder that is its home; files are real files there.
"""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

import paramiko


class Faults:
    """What the SFTP server does wrong: takes no more than ``room_bytes``, gives no sizes, hangs up once ``hang_up_bytes`` were written."""

    def __init__(self, *, room_bytes: int | None = None, sizes: bool = True, hang_up_bytes: int | None = None) -> None:
        self.room_bytes = room_bytes
        self.sizes = sizes
        self.hang_up_bytes = hang_up_bytes
        self.written_bytes = 0


class StubBoard:
    """Listens on ``port``; ``home`` is its only folder. The user's name and key do not matter."""

    def __init__(self, home: Path, faults: Faults) -> None:
        self.home = home
        self.faults = faults
        self.key = paramiko.Ed25519Key(filename=str(_key(home.parent)))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._transports: list[paramiko.Transport] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def host_key_line(self) -> str:
        """The line of known_hosts."""
        return f"[127.0.0.1]:{self.port} {self.key.get_name()} {self.key.get_base64()}\n"

    def hang_up(self) -> None:
        """Ends every connection."""
        for transport in self._transports:
            transport.close()
        self._transports.clear()

    def close(self) -> None:
        """Ends it."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            transport = paramiko.Transport(connection)
            transport.add_server_key(self.key)
            transport.set_subsystem_handler("sftp", paramiko.SFTPServer, _Files, board=self)
            self._transports.append(transport)
            transport.start_server(event=threading.Event(), server=_Door(self))


class _Door(paramiko.ServerInterface):
    def __init__(self, board: StubBoard) -> None:
        self._board = board

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return paramiko.AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(target=self._run, args=(channel, command.decode()), daemon=True).start()
        return True

    def _run(self, channel: paramiko.Channel, command: str) -> None:
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            ["sh", "-c", command], cwd=self._board.home, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
        )

        def feed() -> None:
            assert process.stdin is not None
            with process.stdin as stdin:
                while block := channel.recv(4096):
                    os.write(stdin.fileno(), block)

        def pass_on(stream: Any, send: Any) -> None:
            with stream:
                while block := stream.read1(4096):
                    send(block)

        threading.Thread(target=feed, daemon=True).start()
        readers = [
            threading.Thread(target=pass_on, args=words, daemon=True)
            for words in ((process.stdout, channel.sendall), (process.stderr, channel.sendall_stderr))
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        channel.send_exit_status(process.wait())
        channel.close()


class _Files(paramiko.SFTPServerInterface):
    def __init__(self, server: paramiko.ServerInterface, board: StubBoard) -> None:
        self._board = board

    def canonicalize(self, path: str) -> str:
        return os.path.normpath(os.path.join(self._board.home, path))

    def stat(self, path: str) -> Any:
        return self._attributes(lambda: os.stat(self.canonicalize(path)))

    def lstat(self, path: str) -> Any:
        return self._attributes(lambda: os.lstat(self.canonicalize(path)))

    def open(self, path: str, flags: int, attr: Any) -> Any:
        try:
            descriptor = os.open(self.canonicalize(path), flags, 0o644)
        except OSError as error:
            return paramiko.SFTPServer.convert_errno(error.errno)
        return _File(descriptor, flags, self._board, self._attributes)

    def mkdir(self, path: str, attr: Any) -> int:
        return self._done(lambda: os.mkdir(self.canonicalize(path)))

    def remove(self, path: str) -> int:
        return self._done(lambda: os.remove(self.canonicalize(path)))

    def posix_rename(self, oldpath: str, newpath: str) -> int:
        return self._done(lambda: os.replace(self.canonicalize(oldpath), self.canonicalize(newpath)))

    def _attributes(self, look: Any) -> Any:
        try:
            attributes = paramiko.SFTPAttributes.from_stat(look())
        except OSError as error:
            return paramiko.SFTPServer.convert_errno(error.errno)
        if not self._board.faults.sizes:
            attributes._flags &= ~attributes.FLAG_SIZE
            attributes.st_size = None
        return attributes

    def _done(self, deed: Any) -> int:
        try:
            deed()
        except OSError as error:
            return int(paramiko.SFTPServer.convert_errno(error.errno))
        return int(paramiko.SFTP_OK)


class _File(paramiko.SFTPHandle):
    def __init__(self, descriptor: int, flags: int, board: StubBoard, attributes: Any) -> None:
        super().__init__(flags)
        self._descriptor = descriptor
        self._board = board
        self._attributes = attributes

    def read(self, offset: int, length: int) -> bytes:
        return os.pread(self._descriptor, length, offset)

    def write(self, offset: int, data: bytes) -> int:
        faults = self._board.faults
        if faults.room_bytes is not None and offset + len(data) > faults.room_bytes:
            return int(paramiko.SFTP_FAILURE)
        os.pwrite(self._descriptor, data, offset)
        faults.written_bytes += len(data)
        if faults.hang_up_bytes is not None and faults.written_bytes >= faults.hang_up_bytes:
            faults.hang_up_bytes = None
            threading.Thread(target=self._board.hang_up, daemon=True).start()
        return int(paramiko.SFTP_OK)

    def stat(self) -> Any:
        return self._attributes(lambda: os.fstat(self._descriptor))

    def close(self) -> None:
        os.close(self._descriptor)


def _key(folder: Path) -> Path:
    from lab_sshd import make_key

    path = folder / "stub_host_key"
    return path if path.exists() else make_key(path)
