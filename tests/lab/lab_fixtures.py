"""The virtual board as pytest fixtures: a desk (home folder and configuration of the workstation's user), a board, a bad link to it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lab_proxy import Proxy
from lab_sshd import USER_ID, LabBoard, Setup, has_accounts, why_not

from edgekit.link.base import Link
from edgekit.link.boards import Board, add_board
from edgekit.link.local import LocalLink
from edgekit.link.questions import Questions
from edgekit.link.ssh import SshLink


@dataclasses.dataclass(frozen=True)
class Desk:
    """The workstation's side, in folders of its own: ``home`` holds ``.ssh``, ``config`` is where edgekit keeps its boards."""

    home: Path
    config: Path

    @property
    def known_hosts(self) -> Path:
        return self.home / ".ssh" / "known_hosts"

    def trust(self, board: LabBoard, *, port: int | None = None) -> None:
        """Knows the board's host key, at its own port or at that of a proxy before it."""
        with open(self.known_hosts, "a") as file:
            file.write(board.host_key_line(port=port))

    def add(self, board: LabBoard, name: str = "board", *, port: int | None = None) -> Board:
        """Adds the board under a name, as ``edgekit device add`` does, and trusts it."""
        self.trust(board, port=port)
        added = Board(name, board.host, user=board.user, port=port or board.port, key=str(board.key))
        add_board(added)
        return added


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """An empty home folder, no agent, no password in the environment, no configuration of this machine."""
    home = tmp_path / "desk"
    (home / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    monkeypatch.setattr("edgekit.link.sshconfig.SYSTEM_FOLDER", tmp_path / "no" / "etc" / "ssh")
    for name in ("SSH_AUTH_SOCK", "EDGEKIT_PASSWORD", "EDGEKIT_PASSPHRASE"):
        monkeypatch.delenv(name, raising=False)
    return Desk(home, home / ".config" / "edgekit")


@pytest.fixture
def make_board() -> Iterator[Callable[..., LabBoard]]:
    """``make_board(Setup(...))``: a running board, stopped at the end. Skips where there can be none."""
    if why_not():
        pytest.skip(why_not())
    boards: list[LabBoard] = []

    def make(setup: Setup | None = None, *, port: int = 0, accounts: bool = False) -> LabBoard:
        if accounts and not has_accounts():
            pytest.skip("a board with a user of its own needs root and mount namespaces")
        board = LabBoard(setup, port=port)
        boards.append(board)
        board.start()
        return board

    yield make
    for board in boards:
        board.close()


@pytest.fixture
def lab_board(make_board: Callable[..., LabBoard]) -> LabBoard:
    """A board as it comes: ``host``, ``port``, ``user``, ``key``, ``known_hosts``, ``home``."""
    return make_board()


@pytest.fixture
def make_proxy() -> Iterator[Callable[[LabBoard], Proxy]]:
    """``make_proxy(board)``: a bad link to it."""
    proxies: list[Proxy] = []

    def make(board: LabBoard) -> Proxy:
        proxies.append(Proxy((board.host, board.port)))
        return proxies[-1]

    yield make
    for proxy in proxies:
        proxy.close()


@pytest.fixture
def proxy(lab_board: LabBoard, make_proxy: Callable[[LabBoard], Proxy]) -> Proxy:
    """A bad link to ``lab_board``, as good as any until told otherwise."""
    return make_proxy(lab_board)


@pytest.fixture
def ssh_link(lab_board: LabBoard, desk: Desk) -> Iterator[SshLink]:
    """A link to ``lab_board``."""
    link = SshLink(desk.add(lab_board), questions=Questions())
    yield link
    link.close()


@pytest.fixture
def frail_link(lab_board: LabBoard, desk: Desk, proxy: Proxy) -> Iterator[SshLink]:
    """A link to ``lab_board`` through ``proxy``; it tries to mend itself for ten seconds."""
    link = SshLink(desk.add(lab_board, "frail", port=proxy.port), questions=Questions(), retry_for_s=10)
    yield link
    link.close()


@dataclasses.dataclass(frozen=True)
class Ground:
    """A link, the home on its board, and a folder there; ``folder`` is the same path on both sides, as the board is this machine."""

    link: Link
    home: Path
    folder: Path
    owner: int | None

    def write(self, name: str, data: bytes) -> Path:
        """A file on the board that belongs to its user."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        if self.owner is not None:
            os.chown(path, self.owner, self.owner)
        return path


@pytest.fixture(params=["local", "ssh"])
def ground(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    desk: Desk,
    make_board: Callable[..., LabBoard],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Ground]:
    if request.param == "local":
        home = tmp_path / "home"
        (home / "ground").mkdir(parents=True)
        monkeypatch.setenv("HOME", str(home))
        yield Ground(LocalLink(), home, home / "ground", None)
        return
    board = make_board()
    folder = board.home / "ground"
    folder.mkdir()
    if board.accounts:
        os.chown(folder, USER_ID, USER_ID)
    with SshLink(desk.add(board), questions=Questions(), retry_for_s=5) as link:
        yield Ground(link, board.home, folder, USER_ID if board.accounts else None)
