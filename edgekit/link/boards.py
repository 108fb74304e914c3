"""The boards that the user added: names, where they are, and how a link to one is opened.

They lie in ``$XDG_CONFIG_HOME/edgekit/boards.toml``, a file that people may edit. No password and no passphrase is ever in it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import fcntl
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from edgekit.errors import UsageError
from edgekit.link.base import Link
from edgekit.link.local import LocalLink, whole_file
from edgekit.link.questions import Questions

LOCAL = "local"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_ADDRESS_KEYS = ("host", "user", "port", "key")


@dataclasses.dataclass(frozen=True)
class Board:
    """One board. What is None is left to ``~/.ssh/config``. ``settings`` are other rooms' words about it, strings, numbers or lists."""

    name: str
    host: str
    user: str | None = None
    port: int | None = None
    key: str | None = None
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def address(self) -> str:
        """``user@host:port`` with the parts that are known."""
        host = f"[{self.host}]" if ":" in self.host and self.port is not None else self.host
        return f"{self.user + '@' if self.user else ''}{host}{f':{self.port}' if self.port is not None else ''}"


def boards_file() -> Path:
    """Where the boards are listed."""
    config = os.environ.get("XDG_CONFIG_HOME")
    return (Path(config) if config else Path.home() / ".config") / "edgekit" / "boards.toml"


def all_boards() -> list[Board]:
    """Every board that was added, by name. Raises :class:`UsageError` (``boards_file_invalid``) for a file that cannot be read."""
    return [_board(name, table) for name, table in sorted(_read().get("boards", {}).items())]


def find_board(name: str) -> Board:
    """The board of this name. Raises :class:`UsageError` (``board_unknown``) for a name that nobody added."""
    boards = {board.name: board for board in all_boards()}
    if name in boards:
        return boards[name]
    close = difflib.get_close_matches(name, [*boards, LOCAL], n=1)
    known = ", ".join([LOCAL, *boards])
    guess = f"did you mean {close[0]!r}? " if close else ""
    raise UsageError(
        f"no board is called {name!r}",
        code="board_unknown",
        hint=f"{guess}boards: {known}; add one: edgekit device add {name} user@host",
    )


def add_board(board: Board) -> None:
    """Adds a board, or replaces the one of the same name. Raises :class:`UsageError` for a name that is none."""
    check_name(board.name)
    address = {key: getattr(board, key) for key in _ADDRESS_KEYS if getattr(board, key) is not None}
    with _changed() as content:
        content.setdefault("boards", {})[board.name] = {**address, **board.settings}


def check_name(name: str) -> None:
    """Raises :class:`UsageError` for a name that no board can have."""
    if not _NAME.fullmatch(name) or name == LOCAL:
        reason = "that is this machine" if name == LOCAL else "letters, digits, '.', '-' and '_' only"
        raise UsageError(
            f"a board cannot be called {name!r}: {reason}", hint="like edgekit device add pi4 pi@pi4.local"
        )


def remove_board(name: str) -> bool:
    """Forgets a board; False when there was none of this name. The board itself is not touched."""
    with _changed() as content:
        return content.get("boards", {}).pop(name, None) is not None


def set_board(name: str, **settings: Any) -> Board:
    """Keeps further words about a board (None takes one away) and returns it."""
    board = find_board(name)
    kept = {key: value for key, value in {**board.settings, **settings}.items() if value is not None}
    board = dataclasses.replace(board, settings=kept)
    add_board(board)
    return board


def open_link(name: str, *, questions: Questions | None = None) -> Link:
    """The link to a board by its name; ``local`` is this machine.

    Nothing is connected yet: the first use does it. ``questions`` is who is asked for a passphrase, a password or about a new host key;
    without one only the environment answers (``EDGEKIT_PASSWORD``, ``EDGEKIT_PASSPHRASE``) and a new host key is refused.

    Raises :class:`UsageError` (``board_unknown``) for a name that nobody added.
    """
    if name == LOCAL:
        return LocalLink()
    from edgekit.link.ssh import SshLink

    return SshLink(find_board(name), questions=questions or Questions())


def parse_address(text: str) -> tuple[str | None, str, int | None]:
    """``user@host:port`` as (user, host, port); user and port may be missing, an IPv6 host stands in brackets."""
    match = re.fullmatch(
        r"(?:(?P<user>[^@\s]+)@)?(?:\[(?P<v6>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^@:\s\[\]/]+)|(?P<bare>[0-9A-Fa-f:]*:[0-9A-Fa-f:]*:[0-9A-Fa-f:.%\w]*))"
        r"(?::(?P<port>\d{1,5}))?",
        text,
    )
    port = int(match["port"]) if match and match["port"] else None
    if match is None or (port is not None and not 0 < port < 65536) or text.startswith("-"):
        raise UsageError(
            f"{text!r} is not user@host or user@host:port", hint="like pi@192.168.1.20 or pi@pi4.local:2222"
        )
    return match["user"], match["v6"] or match["host"] or match["bare"], port


def _board(name: str, table: Any) -> Board:
    if not isinstance(table, dict) or not isinstance(table.get("host"), str):
        raise UsageError(
            f"{boards_file()}: [boards.{name}] has no host",
            code="boards_file_invalid",
            hint='a line like host = "pi4.local"',
        )
    settings = {key: value for key, value in table.items() if key not in _ADDRESS_KEYS}
    return Board(name, table["host"], table.get("user"), table.get("port"), table.get("key"), settings)


def _read() -> dict[str, Any]:
    path = boards_file()
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{path} cannot be read: {error}", code="boards_file_invalid", hint="mend that line, or move the file away"
        ) from error


@contextlib.contextmanager
def _changed() -> Iterator[dict[str, Any]]:
    """The content to change; written as a whole at the end, by one process at a time."""
    path = boards_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path.parent / ".boards.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            content = _read()
            yield content
            with whole_file(path) as file:
                file.write(_as_toml(content).encode())
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}", code="output_unwritable") from error


def _as_toml(content: Mapping[str, Any], above: str = "") -> str:
    """TOML of tables in tables; values are strings, numbers, booleans and lists of them."""
    lines = [f"{_key(key)} = {_value(value)}" for key, value in content.items() if not isinstance(value, dict)]
    text = (f"[{above}]\n" if above and (lines or not content) else "") + "".join(f"{line}\n" for line in lines)
    for key, value in content.items():
        if isinstance(value, dict):
            below = _as_toml(value, f"{above}.{_key(key)}" if above else _key(key))
            text += ("\n" if text else "") + below
    return text


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        escaped = "".join(
            f"\\{mark}" if mark in '"\\' else mark if mark.isprintable() else f"\\U{ord(mark):08x}" for mark in value
        )
        return f'"{escaped}"'
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_value(one) for one in value)}]"
    raise UsageError(f"{value!r} cannot be kept in {boards_file()}")
