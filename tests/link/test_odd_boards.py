"""Boards that are not as one expects: shells, homes, missing programs, full disks. Everything works, or says what to do."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from lab_fixtures import Desk
from lab_sshd import LabBoard, Setup, sftp_server
from lab_wait import wait_until

from edgekit.errors import LinkError
from edgekit.link.boards import Board
from edgekit.link.questions import Questions
from edgekit.link.ssh import SshLink

pytestmark = pytest.mark.timeout(60)

WORDS = ["a b", "$HOME", "'", '"', "\\", "\\'", "!!", "%", "(x)", "ä", "two\nlines", "{1,2}", "^", ""]
SHOW = "import sys; print(ascii(sys.argv[1:])); sys.stderr.write('err'); sys.exit(7)"


def link_to(board: LabBoard, desk: Desk) -> SshLink:
    desk.trust(board)
    where = Board("board", board.host, user=board.user, port=board.port, key=str(board.key))
    return SshLink(where, questions=Questions(), retry_for_s=0)


def works(link: SshLink, board: LabBoard, tmp_path: Path) -> None:
    """Commands, files and jobs do what they should."""
    done = link.run(["python3", "-c", SHOW, *WORDS], timeout_s=30)
    assert (done.text, done.stderr, done.returncode) == (ascii(WORDS), b"err", 7)
    assert link.run(["cat"], timeout_s=30, stdin=b"\0\xff" * 1000).stdout == b"\0\xff" * 1000
    data = os.urandom(1_200_000)
    (tmp_path / "a").write_bytes(data)
    link.put(tmp_path / "a", "~/models/a")
    assert (board.home / "models/a").read_bytes() == data
    assert link.sha256("~/models/a") == hashlib.sha256(data).hexdigest()
    link.get("~/models/a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == data
    link.start_job(["sh", "-c", "echo done; sleep 0.1"], cwd="~/models", log="~/models/log")
    wait_until(lambda: (board.home / "models/log").read_text() == "done\n")


@pytest.mark.parametrize("home", ["with space", 'it\'s "quoted" $HOME `x`', "mädchen für öl", "back\\slash"])
def test_a_home_with_an_odd_name(make_board: Callable[..., LabBoard], desk: Desk, tmp_path: Path, home: str) -> None:
    board = make_board(Setup(home=home), accounts=True)
    with link_to(board, desk) as link:
        assert link.home() == str(board.home)
        works(link, board, tmp_path)


@pytest.mark.parametrize("shell", ["fish", "dash", "bash", "zsh", "tcsh"])
def test_login_shells(make_board: Callable[..., LabBoard], desk: Desk, tmp_path: Path, shell: str) -> None:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"needs {shell} as a login shell: apt-get install {shell}")
    board = make_board(Setup(shell=path), accounts=True)
    with link_to(board, desk) as link:
        works(link, board, tmp_path)


NOISE = "echo Welcome to the board; echo 'and a warning' >&2; printf 'no newline'\n"


def test_a_shell_that_greets(make_board: Callable[..., LabBoard], desk: Desk, tmp_path: Path) -> None:
    board = make_board(accounts=True)
    board.write(".bashrc", NOISE)
    plain = subprocess.run(
        ["ssh", "-F", "none", "-i", board.key, "-o", f"UserKnownHostsFile={board.known_hosts}", "-p", str(board.port)]
        + [f"{board.user}@{board.host}", "true"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Welcome" in plain.stdout  # it does greet
    with link_to(board, desk) as link:
        works(link, board, tmp_path)


def test_a_greeting_where_sftp_answers_are_due(make_board: Callable[..., LabBoard], desk: Desk, tmp_path: Path) -> None:
    """The sftp server is a program that the login shell starts: its greeting comes first."""
    server = sftp_server()
    if server is None:
        pytest.skip("needs openssh-sftp-server")
    board = make_board(Setup(sftp=server), accounts=True)
    with link_to(board, desk) as link:
        works(link, board, tmp_path)
    board.write(".bashrc", NOISE)
    with link_to(board, desk) as link:
        assert link.run(["echo", "in"], timeout_s=30).text == "in"
        error = refused(lambda: link.read_bytes("/proc/version"), "sftp_garbled")
        assert ".bashrc" in error.hint


@pytest.mark.parametrize("sftp", ["", "/no/such/server"], ids=["switched off", "not installed"])
def test_sftp_is_off(make_board: Callable[..., LabBoard], desk: Desk, tmp_path: Path, sftp: str) -> None:
    board = make_board(Setup(sftp=sftp))
    (tmp_path / "a").write_bytes(b"x")
    with link_to(board, desk) as link:
        assert link.run(["echo", "in"], timeout_s=30).text == "in"
        error = refused(lambda: link.put(tmp_path / "a", "a"), "sftp_missing")
        assert "Subsystem sftp internal-sftp" in error.hint
        assert link.run(["echo", "still in"], timeout_s=30).text == "still in"


def test_an_account_without_a_shell(make_board: Callable[..., LabBoard], desk: Desk) -> None:
    board = make_board(Setup(shell="/usr/sbin/nologin"), accounts=True)
    with link_to(board, desk) as link:
        error = refused(lambda: link.run(["true"], timeout_s=30), "shell_unusable")
        assert "not available" in error.message


@pytest.mark.parametrize(
    "hide", [("sha256sum",), ("sha256sum", "shasum"), ("sha256sum", "shasum", "openssl")], ids=lambda names: names[-1]
)
def test_programs_that_hash(
    make_board: Callable[..., LabBoard], desk: Desk, tmp_path: Path, hide: tuple[str, ...]
) -> None:
    board = make_board(Setup(hide=hide), accounts=True)
    data = os.urandom(300_000)
    (tmp_path / "a").write_bytes(data)
    with link_to(board, desk) as link:
        link.put(tmp_path / "a", "it's \\ a")
        assert (board.home / "it's \\ a").read_bytes() == data


def test_nothing_that_hashes(make_board: Callable[..., LabBoard], desk: Desk, tmp_path: Path) -> None:
    board = make_board(Setup(hide=("sha256sum", "shasum", "openssl", "python3")), accounts=True)
    board.write("a", "old")
    (tmp_path / "a").write_bytes(b"new")
    with link_to(board, desk) as link:
        error = refused(lambda: link.put(tmp_path / "a", "a"), "hash_unavailable")
        assert "sha256sum" in error.hint
    assert (board.home / "a").read_text() == "old"  # what cannot be verified is not installed


def test_a_disk_that_is_too_small(make_board: Callable[..., LabBoard], desk: Desk, tmp_path: Path) -> None:
    """Asked before anything is written: the last free byte belongs to whatever runs there."""
    board = make_board(Setup(home_size=4 << 20), accounts=True)
    board.write("model", "old")
    (tmp_path / "a").write_bytes(os.urandom(6_000_000))
    with link_to(board, desk) as link:
        error = refused(lambda: link.put(tmp_path / "a", "sub/model"), "write_failed")
        assert "full" in error.message
        assert error.details["needed_bytes"] == 6_000_000
        assert 0 < error.details["free_bytes"] <= 4 << 20
    assert list(board.home.rglob("*.part")) == []
    assert (board.home / "model").read_text() == "old"


def test_a_disk_that_fills_up_meanwhile(make_board: Callable[..., LabBoard], desk: Desk, tmp_path: Path) -> None:
    """SFTP calls it "Failure"."""
    board = make_board(Setup(home_size=8 << 20), accounts=True)
    board.write("model", "old")
    (tmp_path / "a").write_bytes(os.urandom(6_000_000))
    filled = False

    def fill(done: int, total: int) -> None:
        nonlocal filled
        if not filled:
            filled = True
            board.write("others", "x" * 5_000_000)

    with link_to(board, desk) as link:
        error = refused(lambda: link.put(tmp_path / "a", "model", progress=fill), "write_failed")
        assert "full" in error.message
        assert error.details["free_bytes"] < error.details["needed_bytes"]
        assert sorted(path.name for path in board.home.iterdir()) == ["model", "others"]
        assert (board.home / "model").read_text() == "old"
        (board.home / "others").unlink()
        link.put(tmp_path / "a", "model")
    assert (board.home / "model").read_bytes() == (tmp_path / "a").read_bytes()


def test_a_home_that_cannot_be_written(make_board: Callable[..., LabBoard], desk: Desk, tmp_path: Path) -> None:
    board = make_board(accounts=True)
    (tmp_path / "a").write_bytes(b"x")
    os.chown(board.home, 0, 0)
    board.home.chmod(0o755)
    with link_to(board, desk) as link:
        for target in ("a", "sub/a", "/etc/a"):
            error = refused(lambda target=target: link.put(tmp_path / "a", target), "write_failed")
            assert "permission denied" in error.message
        assert link.read_bytes("/proc/version")
    assert list(board.home.iterdir()) == []


def test_files_that_may_not_be_read(make_board: Callable[..., LabBoard], desk: Desk, tmp_path: Path) -> None:
    board = make_board(accounts=True)
    path = board.home / "secret"
    path.write_text("x")
    path.chmod(0o600)
    with link_to(board, desk) as link:
        for action in (lambda: link.read_bytes("secret"), lambda: link.get("secret", tmp_path / "a")):
            assert "permission denied" in refused(action, "read_failed").message
    assert not (tmp_path / "a").exists()


def test_an_app_that_has_the_old_model_mapped(ssh_link: SshLink, lab_board: LabBoard, tmp_path: Path) -> None:
    """Written into, the file would be cut off under it and kill it (SIGBUS)."""
    path = lab_board.write("model", "old " * 100_000)
    code = (
        "import mmap, sys; file = open(sys.argv[1], 'rb'); map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)\n"
        "print('mapped', flush=True); sys.stdin.readline(); print(map[-4:], flush=True)"
    )
    app = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with app:
        assert app.stdout is not None
        assert app.stdout.readline() == "mapped\n"
        (tmp_path / "new").write_bytes(b"new")
        ssh_link.put(tmp_path / "new", "model")
        assert app.communicate("go\n")[0] == "b'old '\n"
    assert app.returncode == 0
    assert path.read_bytes() == b"new"


def refused(action: Callable[[], object], code: str) -> LinkError:
    with pytest.raises(LinkError) as caught:
        action()
    assert caught.value.code == code, caught.value.message
    return caught.value
