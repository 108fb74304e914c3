"""The list of boards: a file that people edit, too."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import pytest
from lab_fixtures import Desk

from edgekit.errors import UsageError
from edgekit.link.boards import (
    Board,
    add_board,
    all_boards,
    boards_file,
    find_board,
    open_link,
    parse_address,
    remove_board,
    set_board,
)
from edgekit.link.local import LocalLink


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("pi@pi4.local", ("pi", "pi4.local", None)),
        ("pi4", (None, "pi4", None)),
        ("pi@10.0.0.4:2222", ("pi", "10.0.0.4", 2222)),
        ("pi@[fe80::1%eth0]:22", ("pi", "fe80::1%eth0", 22)),
        ("pi@fe80::1", ("pi", "fe80::1", None)),
    ],
)
def test_addresses(text: str, parts: tuple[str | None, str, int | None]) -> None:
    assert parse_address(text) == parts


@pytest.mark.parametrize(
    "text", ["", "pi@", "@host", "pi@host:", "pi@host:0", "pi@host:99999", "a b", "-oProxyCommand=x", "h/x"]
)
def test_words_that_are_no_address(text: str) -> None:
    with pytest.raises(UsageError, match="is not user@host"):
        parse_address(text)


def test_boards_are_kept_and_forgotten(desk: Desk) -> None:
    assert all_boards() == []
    pi = Board("pi4", "pi4.local", user="pi", port=2222, key='/keys/my "board" \\ key')
    nano = Board("nano", "fe80::1", settings={"groups": ["lab", "desk"], "require_signed": True, "note": "ä\nö"})
    add_board(pi)
    add_board(nano)
    assert all_boards() == [nano, pi]
    assert find_board("pi4") == pi
    assert (pi.address, nano.address) == ("pi@pi4.local:2222", "fe80::1")
    assert set_board("nano", note=None, slot=3).settings == {
        "groups": ["lab", "desk"],
        "require_signed": True,
        "slot": 3,
    }
    assert remove_board("pi4")
    assert not remove_board("pi4")
    assert [board.name for board in all_boards()] == ["nano"]


def test_what_others_wrote_into_the_file_stays(desk: Desk) -> None:
    boards_file().parent.mkdir(parents=True)
    text = '[groups]\nlab = ["pi4", "nano"]\n[boards."pi.4"]\nhost = "a"\n[boards.x]\nhost = "b"\nextra.deep = 1.5\n'
    boards_file().write_text(text)
    add_board(Board("y", "c"))
    expected = tomllib.loads(text)
    expected["boards"]["y"] = {"host": "c"}
    assert tomllib.loads(boards_file().read_text()) == expected


@pytest.mark.parametrize("name", ["local", "", "a b", "-x", "ä", "a,b"])
def test_names_that_are_none(desk: Desk, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be called"):
        add_board(Board(name, "host"))


def test_a_name_that_nobody_added(desk: Desk) -> None:
    add_board(Board("pi4", "host"))
    for name in ("pi5", "elsewhere"):
        with pytest.raises(UsageError) as caught:
            open_link(name)
        assert caught.value.code == "board_unknown"
        assert "boards: local, pi4" in caught.value.hint
    assert isinstance(open_link("local"), LocalLink)
    assert open_link("pi4").name == "pi4"  # connects to nothing yet


@pytest.mark.parametrize("text", ["not toml", "[boards.x]\nport = 1\n", "[boards]\nx = 3\n"])
def test_a_file_that_is_damaged(desk: Desk, text: str) -> None:
    boards_file().parent.mkdir(parents=True)
    boards_file().write_text(text)
    with pytest.raises(UsageError) as caught:
        all_boards()
    assert caught.value.code == "boards_file_invalid"
    assert boards_file().read_text() == text


def test_several_who_add_at_once(desk: Desk) -> None:
    code = "import sys; from edgekit.link.boards import *; [add_board(Board(f'b{sys.argv[1]}-{n}', 'h')) for n in range(10)]"
    children = [subprocess.Popen([sys.executable, "-c", code, str(number)]) for number in range(4)]
    assert [child.wait(60) for child in children] == [0] * 4
    assert len(all_boards()) == 40
