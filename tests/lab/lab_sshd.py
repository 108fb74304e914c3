"""A board made of a real sshd on loopback: own keys, own configuration, own port, a home of its own.

As root, a private mount namespace gives the sshd an account database of its own, so that the board has a user ``pi`` with a password, a
login shell and a home of any name, and nothing of this machine's is changed. As anybody else the sshd runs under that user, who is
then the only one who can log in; the home is a folder of its own too, but shell and password are what they are.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

SSHD = "/usr/sbin/sshd"
USER_ID = 1777
SFTP_SERVERS = ("/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server", "/usr/libexec/sftp-server")


def why_not() -> str:
    """Why there can be no board here; "" when there can."""
    if not Path(SSHD).exists() or not shutil.which("ssh-keygen"):
        return "needs an OpenSSH server: apt-get install openssh-server"
    return ""


def has_accounts() -> bool:
    """Whether boards can have users of their own."""
    return os.geteuid() == 0 and subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0


@dataclasses.dataclass(frozen=True)
class Setup:
    """What a board is like. ``home`` is a folder's name; ``home_size`` limits it (as a tmpfs of so many bytes); ``config`` are further
    lines for sshd, before the others, so that they win; ``netns`` is the network namespace that it lives in; ``hide`` are programs that
    the board does not have."""

    home: str = "home"
    shell: str = "/bin/bash"
    password: str = "raspberry"
    host_key_type: str = "ed25519"
    address: str = "127.0.0.1"
    netns: str = ""
    config: str = ""
    sftp: str = "internal-sftp"
    home_size: int = 0
    hide: tuple[str, ...] = ()


class LabBoard:
    """One board. ``with LabBoard() as board`` runs it; ``host``, ``port``, ``user``, ``key``, ``known_hosts`` and ``home`` say how to use it."""

    def __init__(self, setup: Setup | None = None, *, port: int = 0) -> None:
        self.setup = setup or Setup()
        self.folder = Path(
            tempfile.mkdtemp(prefix="edgekit-board-")
        )  # not under pytest's own, which others cannot enter
        self.folder.chmod(0o755)
        self.accounts = has_accounts()
        self.host = self.setup.address
        self.port = port or free_port()
        self.user = "pi" if self.accounts else _own_name()
        self.home = self.folder / self.setup.home
        self.home.mkdir()
        self.key = self.folder / "user_key"
        self.known_hosts = self.folder / "known_hosts"
        self._host_key = self.folder / "host_key"
        self._process: subprocess.Popen[bytes] | None = None
        make_key(self.key)
        make_key(self._host_key, self.setup.host_key_type)
        (self.folder / "authorized_keys").write_bytes(public(self.key))
        self._write_config()
        self.known_hosts.write_text(self.host_key_line())

    def __enter__(self) -> LabBoard:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def log(self) -> str:
        """What sshd said."""
        return (self.folder / "sshd.log").read_bytes().decode("latin-1")

    @property
    def host_key(self) -> bytes:
        """The public host key, one line."""
        return public(self._host_key)

    def host_key_line(self, *, host: str | None = None, port: int | None = None) -> str:
        """The line of known_hosts for this board, at its own address or at that of a proxy before it."""
        kind, key = self.host_key.decode().split()[:2]
        host, port = host or self.host, port or self.port
        return f"{host if port == 22 else f'[{host}]:{port}'} {kind} {key}\n"

    def authorize(self, key: Path) -> None:
        """Lets this key in, and no other."""
        (self.folder / "authorized_keys").write_bytes(public(key))

    def new_host_key(self) -> None:
        """The board was set up anew."""
        self._host_key.unlink()
        Path(f"{self._host_key}.pub").unlink()
        make_key(self._host_key, self.setup.host_key_type)
        self.restart()

    def write(self, name: str, text: str) -> Path:
        """A file in the home, owned by the board's user."""
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        self._give(path)
        return path

    def start(self) -> None:
        """Runs sshd and returns when it listens."""
        log = open(self.folder / "sshd.log", "ab")  # noqa: SIM115 - given to the child
        begin = log.tell()
        self._process = subprocess.Popen(
            self._command(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
        )
        log.close()
        end = time.monotonic() + 20
        while "Server listening" not in self.log[begin:]:
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"sshd did not start: {self.log[begin:]}")
            time.sleep(0.01)

    def stop(self) -> None:
        """Kills sshd and everything that runs under it, as a power cut does (but for what its kernel still sends)."""
        if self._process is None:
            return
        for pid in [self._process.pid, *self.sessions()]:
            _kill(pid, signal.SIGKILL)
        self._process.wait(10)
        self._process = None

    def restart(self) -> None:
        """Off and on again."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stops it and removes its folder."""
        self.stop()
        subprocess.run(["umount", "-l", str(self.home)], capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def sessions(self) -> list[int]:
        """Every process below the sshd, commands included."""
        assert self._process is not None
        parents: dict[int, int] = {}
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
        found, grown = {self._process.pid}, True
        while grown:
            more = {pid for pid, parent in parents.items() if parent in found} - found
            found, grown = found | more, bool(more)
        return sorted(found - {self._process.pid})

    def signal_sessions(self, number: signal.Signals) -> None:
        """A signal to everything below the listening sshd: SIGSTOP makes a board that hangs while its kernel still acknowledges."""
        for pid in self.sessions():
            _kill(pid, number)

    def _write_config(self) -> None:
        folder = self.folder
        lines = [
            self.setup.config,
            f"Port {self.port}",
            f"ListenAddress {self.setup.address}",
            f"HostKey {self._host_key}",
            f"PidFile {folder}/sshd.pid",
            f"AuthorizedKeysFile {folder}/authorized_keys",
            "StrictModes no",  # it refuses every path through a folder that all may write to, as /tmp is
            "UsePAM no",
            "PasswordAuthentication yes" if self.accounts else "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PermitRootLogin yes",
            "MaxStartups 100:30:200",
            "UseDNS no",
            "PrintMotd no",
            "LogLevel VERBOSE",
        ]
        if self.setup.sftp:
            start = "" if self.accounts or self.setup.sftp != "internal-sftp" else f' -d "{self.home}"'
            lines.append(f"Subsystem sftp {self.setup.sftp}{start}")
        if not self.accounts:
            lines.append(f'SetEnv "HOME={self.home}"')
        (folder / "sshd_config").write_text("\n".join(lines) + "\n")

    def _command(self) -> list[str]:
        sshd = [SSHD, "-D", "-e", "-f", f"{self.folder}/sshd_config"]
        if not self.accounts:
            return sshd
        self._write_accounts()
        os.makedirs("/run/sshd", exist_ok=True)
        self._give(self.home)
        if self.setup.home_size and not os.path.ismount(self.home):  # outside of the namespace, so that tests see it
            options = f"size={self.setup.home_size},uid={USER_ID},gid={USER_ID}"
            subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.home)], check=True)
        binds = [f"mount --bind {self.folder}/{name} /etc/{name}" for name in ("passwd", "group", "shadow")]
        binds += [f"for p in $(which -a {name}); do mount --bind /dev/null $p; done" for name in self.setup.hide]
        script = "\n".join(["set -e", "mount --make-rprivate /", *binds, f"exec {' '.join(sshd)}"])
        command = ["unshare", "-m", "sh", "-c", script]
        return ["ip", "netns", "exec", self.setup.netns, *command] if self.setup.netns else command

    def _write_accounts(self) -> None:
        others = [line for line in Path("/etc/passwd").read_text().splitlines() if not line.startswith("pi:")]
        account = f"pi:x:{USER_ID}:{USER_ID}:pi:{self.home}:{self.setup.shell}"
        (self.folder / "passwd").write_text("\n".join([*others, account]) + "\n")
        groups = [line for line in Path("/etc/group").read_text().splitlines() if not line.startswith("pi:")]
        (self.folder / "group").write_text("\n".join([*groups, f"pi:x:{USER_ID}:"]) + "\n")
        hashed = subprocess.run(
            ["openssl", "passwd", "-6", "-stdin"], input=self.setup.password, capture_output=True, text=True, check=True
        ).stdout.strip()
        shadow = self.folder / "shadow"
        shadow.write_text(f"root:*:19000:0:99999:7:::\nsshd:!:19000::::::\npi:{hashed}:19000:0:99999:7:::\n")
        shadow.chmod(0o640)

    def _give(self, path: Path) -> None:
        if self.accounts:
            while path != self.folder:
                os.chown(path, USER_ID, USER_ID)
                path = path.parent


def sftp_server() -> str | None:
    """The sftp server that is a program of its own, started through the login shell; None where there is none."""
    return next((path for path in SFTP_SERVERS if Path(path).exists()), None)


def make_key(path: Path, kind: str = "ed25519", *, passphrase: str = "", options: tuple[str, ...] = ()) -> Path:
    """A key pair at ``path``."""
    command = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", path.name, "-f", str(path), *options]
    subprocess.run(command, check=True, capture_output=True)
    return path


def public(key: Path) -> bytes:
    """The public half of a key pair."""
    return Path(f"{key}.pub").read_bytes()


def free_port() -> int:
    """A port on loopback that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _own_name() -> str:
    import pwd

    return pwd.getpwuid(os.geteuid()).pw_name


def _kill(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
