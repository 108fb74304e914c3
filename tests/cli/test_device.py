"""``edgekit device add``, ``list`` and ``remove``, as typed: against a board, with a terminal and without."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import command, environment, run
from lab_fixtures import Desk
from lab_sshd import LabBoard, make_key

pytestmark = pytest.mark.timeout(120)


def add(board: LabBoard, *more: str, name: str = "pi4", cwd: Path):  # type: ignore[no-untyped-def]
    return run("device", "add", name, f"{board.user}@{board.host}:{board.port}", *more, cwd=cwd)


def test_add_list_remove(lab_board: LabBoard, desk: Desk, tmp_path: Path) -> None:
    said = add(lab_board, "--key", str(lab_board.key), "--accept-new", cwd=tmp_path)
    assert said.exit_code == 0, said.err
    assert "pi4 is added" in said.out
    assert "SHA256:" in said.out
    assert desk.known_hosts.read_text().split()[1:] == lab_board.host_key_line().split()[1:]
    stored = tomllib.loads((desk.config / "boards.toml").read_text())
    address = {"host": lab_board.host, "user": lab_board.user, "port": lab_board.port, "key": str(lab_board.key)}
    assert stored == {"boards": {"pi4": address}}
    listed = run("device", "list", "--json", cwd=tmp_path).document
    assert [one["name"] for one in listed["devices"]] == ["pi4"]
    assert f"{lab_board.user}@{lab_board.host}:{lab_board.port}" in run("device", "list", cwd=tmp_path).out
    assert run("device", "remove", "pi4", cwd=tmp_path).exit_code == 0
    assert "no boards yet" in run("device", "list", cwd=tmp_path).out


def test_what_is_not_reached_is_not_added(lab_board: LabBoard, desk: Desk, tmp_path: Path) -> None:
    wrong = make_key(tmp_path / "wrong")
    cases = [
        (("--json",), "hostkey_unknown", 4),
        (("--json", "--accept-new"), "auth_refused", 4),
        (("--json", "--accept-new", "--key", str(wrong)), "auth_refused", 4),
        (("--json", "--key", str(tmp_path / "none")), "usage", 2),
    ]
    for words, code, exit_code in cases:
        said = add(lab_board, *words, cwd=tmp_path)
        assert (said.error["code"], said.exit_code) == (code, exit_code)
        assert said.error["hint"]
    assert run("device", "list", "--json", cwd=tmp_path).document["devices"] == []
    assert add(lab_board, "--no-check", cwd=tmp_path).exit_code == 0
    assert len(run("device", "list", "--json", cwd=tmp_path).document["devices"]) == 1


def test_a_changed_host_key_ends_with_the_line_to_type(lab_board: LabBoard, desk: Desk, tmp_path: Path) -> None:
    assert add(lab_board, "--key", str(lab_board.key), "--accept-new", cwd=tmp_path).exit_code == 0
    lab_board.new_host_key()
    said = add(lab_board, "--key", str(lab_board.key), "--accept-new", cwd=tmp_path)
    assert said.exit_code == 4
    assert "has changed" in said.err
    line = said.err.strip().splitlines()[-1]
    subprocess.run(["sh", "-c", line[line.index("ssh-keygen") :]], check=True, capture_output=True)
    assert add(lab_board, "--key", str(lab_board.key), "--accept-new", cwd=tmp_path).exit_code == 0


@pytest.mark.parametrize("words", [("pi4", "no/host"), ("local", "pi@pi4"), ("a b", "pi@pi4")])
def test_words_that_make_no_sense(desk: Desk, tmp_path: Path, words: tuple[str, str]) -> None:
    said = run("device", "add", *words, cwd=tmp_path)
    assert said.exit_code == 2
    assert "->" in said.err


def test_a_board_that_nobody_added(desk: Desk, tmp_path: Path) -> None:
    said = run("device", "remove", "pi4", "--json", cwd=tmp_path)
    assert (said.exit_code, said.error["code"]) == (2, "board_unknown")


def test_questions_on_a_terminal(make_board: Callable[..., LabBoard], desk: Desk, tmp_path: Path) -> None:
    """The new host key is shown and accepted, the password typed unseen; neither is asked for again, and nothing keeps the password."""
    board = make_board(accounts=True)
    words = command("device", "add", "pi4", f"{board.user}@{board.host}:{board.port}")
    screen, code = on_a_terminal(words, {"the board's key?": "y", "Password of": "raspberry"}, cwd=tmp_path)
    assert code == 0, screen
    assert "ssh-ed25519 SHA256:" in screen
    assert "raspberry" not in screen
    for path in desk.home.rglob("*"):
        assert not path.is_file() or b"raspberry" not in path.read_bytes()
    screen, code = on_a_terminal(words, {"Password of": "raspberry"}, cwd=tmp_path)
    assert code == 0, screen
    assert "the board's key?" not in screen


def test_a_host_key_that_is_declined(lab_board: LabBoard, desk: Desk, tmp_path: Path) -> None:
    words = command("device", "add", "pi4", f"{lab_board.user}@{lab_board.host}:{lab_board.port}")
    screen, code = on_a_terminal(words, {"the board's key?": "n"}, cwd=tmp_path)
    assert code == 4, screen
    assert not desk.known_hosts.exists()


def test_the_examples_of_its_help(lab_board: LabBoard, desk: Desk, tmp_path: Path) -> None:
    """Typed as they stand; ``~/.ssh/config`` leads the addresses in them to a board that is here."""
    (desk.home / ".ssh" / "config").write_text(
        "Host 192.168.1.20 nano.local\n"
        f"  HostName {lab_board.host}\n  Port {lab_board.port}\n  StrictHostKeyChecking accept-new\n"
    )
    for name in ("board", "id_ed25519"):
        shutil.copy(lab_board.key, desk.home / ".ssh" / name)
    help_text = run("device", "--help", cwd=tmp_path).out
    lines = [line.strip() for line in help_text.splitlines() if line.strip().startswith("edgekit device")]
    typed = [line for line in lines if line.split()[2] in ("add", "list", "remove")]
    assert len(typed) >= 3
    for line in typed:
        line = line.replace("jetson@", f"{lab_board.user}@").replace("pi@", f"{lab_board.user}@")
        words = [word.replace("~", str(desk.home)) for word in line.split()[1:]]
        said = run(*words, cwd=tmp_path)
        assert said.exit_code == 0, f"{line}\n{said.err}"


def on_a_terminal(words: list[str], answers: dict[str, str], *, cwd: Path) -> tuple[str, int]:
    """Runs it as somebody at a terminal would, giving each answer when its question shows; what was seen, and the exit code."""
    terminal, other_end = pty.openpty()
    person = subprocess.Popen(
        ["setsid", "--ctty", "--wait", *words],
        stdin=other_end, stdout=other_end, stderr=other_end, cwd=cwd, env=environment(cwd),
    )  # fmt: skip
    os.close(other_end)
    screen, waiting, begin = "", dict(answers), 0
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if not select.select([terminal], [], [], 1.0)[0]:
            continue
        try:
            block = os.read(terminal, 4096)
        except OSError:  # the terminal's other end is gone
            break
        if not block:
            break
        screen += block.decode()
        for question, answer in list(waiting.items()):
            if question in screen[begin:]:
                begin = len(screen)
                del waiting[question]
                os.write(terminal, answer.encode() + b"\n")
    os.close(terminal)
    assert not waiting, screen
    return screen, person.wait(30)
