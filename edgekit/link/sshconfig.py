"""Where a board is and how to get in, as ``~/.ssh/config`` and the user's own words say it.

paramiko reads the format; what it leaves out is done here: ``Include`` (also inside a block), blocks that it does not understand, and
turning the words into values. As in OpenSSH, the first value that is found counts.
"""

from __future__ import annotations

import dataclasses
import getpass
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from edgekit.errors import UsageError

DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")
SYSTEM_FOLDER = Path("/etc/ssh")
_DEEPEST_INCLUDE = 16
_LINE = re.compile(r"\s*(\w+)(?:\s*=\s*|\s+)(.*?)\s*$")
_ALONE = {"all", "canonical", "final"}
_CONDITIONS = {*_ALONE, "host", "originalhost", "user", "localuser", "exec"}
_PROBE = "EdgekitBlockApplies"


@dataclasses.dataclass(frozen=True)
class Target:
    """One SSH server. ``label`` is the name that known_hosts knows it by (HostKeyAlias, else the host).

    ``keys`` are tried in this order; ``only_these_keys`` keeps the agent's other keys out. ``jumps`` are the servers to pass through
    first. ``strict`` refuses new host keys without asking, ``accept_new`` takes them. ``alive_every_s`` is None where nothing is said.
    """

    host: str
    port: int
    user: str
    alias: str | None
    keys: tuple[Path, ...]
    only_these_keys: bool
    jumps: tuple[str, ...]
    proxy_command: str | None
    known_hosts: tuple[Path, ...]
    system_known_hosts: tuple[Path, ...]
    hash_known_hosts: bool
    strict: bool
    accept_new: bool
    alive_every_s: float | None

    @property
    def address(self) -> str:
        """``user@host:port``, for people."""
        return f"{self.user}@{self.host}" + (f":{self.port}" if self.port != 22 else "")

    @property
    def ssh_words(self) -> str:
        """The same as arguments of ``ssh`` and ``ssh-copy-id``."""
        return (f"-p {self.port} " if self.port != 22 else "") + f"{self.user}@{self.host}"


def resolve(host: str, *, user: str | None = None, port: int | None = None, key: str | None = None) -> Target:
    """What the files say about ``host``; what is given here comes before them.

    Raises :class:`UsageError` (``ssh_config_invalid``) with the line for a file that cannot be understood.
    """
    import paramiko

    folder = Path.home() / ".ssh"
    text = flattened(host, user=user, port=port)
    try:
        options = paramiko.SSHConfig.from_text(text).lookup(host)
        found_port = int(options.get("port", 22))
        alive = float(options.get("serveraliveinterval", 0)) or None
    except (paramiko.SSHException, ValueError, KeyError) as error:
        raise _invalid(str(error)) from error
    strictness = str(options.get("stricthostkeychecking", "ask")).lower()
    named = [key] if key else [word for word in options.get("identityfile", []) if word.lower() != "none"]
    jump = str(options.get("proxyjump", "none"))
    return Target(
        host=str(options["hostname"]),
        port=found_port,
        user=str(options.get("user") or getpass.getuser()),
        alias=options.get("hostkeyalias"),
        keys=tuple(Path(word).expanduser() for word in named or [str(folder / name) for name in DEFAULT_KEYS]),
        only_these_keys=bool(key) or str(options.get("identitiesonly", "no")).lower() == "yes",
        jumps=() if jump.lower() == "none" else tuple(word.strip() for word in jump.split(",") if word.strip()),
        proxy_command=options.get("proxycommand") if jump.lower() == "none" else None,
        known_hosts=_files(options.get("userknownhostsfile"), [folder / "known_hosts", folder / "known_hosts2"]),
        system_known_hosts=_files(options.get("globalknownhostsfile"), [SYSTEM_FOLDER / "ssh_known_hosts"]),
        hash_known_hosts=str(options.get("hashknownhosts", "no")).lower() == "yes",
        strict=strictness == "yes",
        accept_new=strictness in ("accept-new", "no", "off"),
        alive_every_s=alive,
    )


def flattened(host: str, *, user: str | None = None, port: int | None = None) -> str:
    """The lines of the user's and the system's file that apply to ``host``, in order, with no block and no ``Include`` left.

    What is given comes first: it counts, and conditions and ``%p`` see it.
    """
    lines = ([f"Port {port}"] if port is not None else []) + ([f'User "{user}"'] if user else [])
    for path, base in (
        (Path.home() / ".ssh" / "config", Path.home() / ".ssh"),
        (SYSTEM_FOLDER / "ssh_config", SYSTEM_FOLDER),
    ):
        _flatten(path, base, host, lines, depth=0)
    return "\n".join(lines)


def _flatten(path: Path, base: Path, host: str, lines: list[str], *, depth: int) -> None:
    """Appends what applies. A block inside an included file counts only where the block around the ``Include`` does."""
    if depth > _DEEPEST_INCLUDE:
        raise _invalid(f"{path}: Include goes deeper than {_DEEPEST_INCLUDE} files")
    applies = True
    for word, value, line in _words(path):
        if word in ("host", "match"):
            applies = _block_applies(line, host, lines)
        elif not applies:
            continue
        elif word == "include":
            for included in _included(value, base):
                _flatten(included, base, host, lines, depth=depth + 1)
        else:
            lines.append(line.strip())


def _words(path: Path) -> Iterator[tuple[str, str, str]]:
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise _invalid(f"{path}: {error.strerror or error}") from error
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.strip().startswith("#"):
            continue
        match = _LINE.match(line)
        if match is None or not match[2]:
            raise _invalid(f"{path}:{number}: {line.strip()!r} is no keyword with a value")
        yield match[1].lower(), match[2], line


def _block_applies(header: str, host: str, before: list[str]) -> bool:
    """Whether ``Host ...`` or ``Match ...`` takes this host in. A condition that paramiko does not know does not (it would ignore it)."""
    import paramiko

    if header.split()[0].lower() == "match" and not _conditions(header) <= _CONDITIONS:
        return False
    text = "\n".join([*before, header, f"  {_PROBE} yes"])
    try:
        return _PROBE.lower() in paramiko.SSHConfig.from_text(text).lookup(host)
    except (paramiko.SSHException, ImportError, ValueError, KeyError):
        return False


def _conditions(header: str) -> set[str]:
    """The words of a ``Match`` line that are conditions, without what they are compared with."""
    words = iter(shlex.split(header)[1:])
    found = set()
    for word in words:
        condition = word.lstrip("!").lower()
        found.add(condition)
        if condition not in _ALONE:
            next(words, None)
    return found


def _included(value: str, base: Path) -> list[Path]:
    paths: list[Path] = []
    for word in shlex.split(value):
        pattern = Path(word).expanduser()
        pattern = pattern if pattern.is_absolute() else base / pattern
        found = Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor)))
        paths += sorted(path for path in found if path.is_file())
    return paths


def _files(value: str | None, default: list[Path]) -> tuple[Path, ...]:
    if value is None:
        return tuple(default)
    return tuple(Path(word).expanduser() for word in shlex.split(value) if word.lower() != "none")


def _invalid(reason: str) -> UsageError:
    return UsageError(
        f"the ssh configuration cannot be understood: {reason}",
        code="ssh_config_invalid",
        hint="`ssh -G HOST` shows how OpenSSH reads it",
    )
