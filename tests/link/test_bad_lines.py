"""Lines that swallow packets without a word, which no stream proxy can play: cut for good, cut for a while, power cuts, loss and delay."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lab_fixtures import Desk
from lab_net import Line, board_on_a_line, why_not
from lab_sshd import LabBoard
from lab_sshd import why_not as why_no_board

from edgekit.errors import LinkError
from edgekit.link.boards import Board
from edgekit.link.questions import Questions
from edgekit.link.ssh import SshLink

pytestmark = [
    pytest.mark.timeout(100),
    pytest.mark.skipif(bool(why_no_board() or why_not()), reason=why_no_board() or why_not()),
]


@pytest.fixture
def far(desk: Desk) -> Iterator[tuple[LabBoard, Line]]:
    with board_on_a_line() as (board, line):
        desk.trust(board)
        yield board, line


def link_to(board: LabBoard, *, retry_for_s: float = 0) -> SshLink:
    where = Board("board", board.host, user=board.user, key=str(board.key))
    return SshLink(where, questions=Questions(), retry_for_s=retry_for_s)


def lost(action: Callable[[], object], code: str = "link_lost") -> None:
    with pytest.raises(LinkError) as caught:
        action()
    assert caught.value.code == code, caught.value.message


def after(seconds: float, action: Callable[[], object]) -> threading.Timer:
    timer = threading.Timer(seconds, action)
    timer.start()
    return timer


def cut(line: Line) -> None:
    line.up = False


def mend(line: Line) -> None:
    line.up = True


def test_nobody_there(far: tuple[LabBoard, Line]) -> None:
    board, line = far
    line.up = False
    lost(lambda: line.at_the_desk(lambda: link_to(board).run(["true"], timeout_s=30)), "connect_timeout")


def test_cut_for_good_in_a_silent_command(far: tuple[LabBoard, Line]) -> None:
    board, line = far
    link = link_to(board)
    line.at_the_desk(link.connect)
    after(0.5, lambda: cut(line))
    lost(lambda: line.at_the_desk(lambda: link.run(["sleep", "600"], timeout_s=600)))
    link.close()


def test_cut_for_good_in_an_upload(far: tuple[LabBoard, Line], tmp_path: Path) -> None:
    board, line = far
    (tmp_path / "a").write_bytes(os.urandom(20_000_000))
    link = link_to(board)
    line.at_the_desk(link.home)
    line.bytes_per_s = 2e6
    after(1.0, lambda: cut(line))
    lost(lambda: line.at_the_desk(lambda: link.put(tmp_path / "a", "a")))
    assert not (board.home / "a").exists()
    link.close()


def test_cut_for_good_in_a_download(far: tuple[LabBoard, Line], tmp_path: Path) -> None:
    board, line = far
    board.write("a", "x" * 20_000_000)
    link = link_to(board)
    line.at_the_desk(link.home)
    line.bytes_per_s = 2e6
    after(1.0, lambda: cut(line))
    lost(lambda: line.at_the_desk(lambda: link.get("a", tmp_path / "a")))
    assert not (tmp_path / "a").exists()
    link.close()


def test_cut_for_a_while_is_borne(far: tuple[LabBoard, Line], tmp_path: Path) -> None:
    """TCP sends again what was swallowed: nobody needs to connect anew."""
    board, line = far
    data = os.urandom(6_000_000)
    (tmp_path / "a").write_bytes(data)
    link = link_to(board)
    connection = line.at_the_desk(link.connect)
    line.bytes_per_s = 2e6
    timers = [after(1.0, lambda: cut(line)), after(3.5, lambda: mend(line))]
    sent = line.at_the_desk(lambda: link.put(tmp_path / "a", "a"))
    assert (board.home / "a").read_bytes() == data
    assert sent.sent_bytes == len(data)
    assert link.connect() is connection
    for timer in timers:
        timer.join()
    link.close()


def test_cut_for_longer_is_mended(far: tuple[LabBoard, Line], tmp_path: Path) -> None:
    board, line = far
    data = os.urandom(6_000_000)
    (tmp_path / "a").write_bytes(data)
    link = link_to(board, retry_for_s=40)
    line.at_the_desk(link.home)
    line.bytes_per_s = 2e6
    timers = [after(1.0, lambda: cut(line)), after(14.0, lambda: mend(line))]
    line.at_the_desk(lambda: link.put(tmp_path / "a", "a"))
    assert (board.home / "a").read_bytes() == data
    assert [path.name for path in board.home.iterdir()] == ["a"]
    for timer in timers:
        timer.join()
    link.close()


def test_the_power_fails_in_a_command(far: tuple[LabBoard, Line]) -> None:
    """No FIN, no RST; when the board is back it knows nothing of the connection."""
    board, line = far
    link = link_to(board, retry_for_s=30)
    line.at_the_desk(link.connect)
    timers = [after(0.5, lambda: line.power_off(board))]
    lost(lambda: line.at_the_desk(lambda: link.run(["sleep", "600"], timeout_s=600)))
    timers[0].join()
    line.power_on(board)
    assert line.at_the_desk(lambda: link.run(["echo", "back"], timeout_s=30)).text == "back"
    link.close()


def test_the_power_fails_in_an_upload(far: tuple[LabBoard, Line], tmp_path: Path) -> None:
    board, line = far
    data = os.urandom(8_000_000)
    (tmp_path / "a").write_bytes(data)
    link = link_to(board, retry_for_s=40)
    line.at_the_desk(link.home)
    line.bytes_per_s = 2e6

    def fail_and_return() -> None:
        line.power_off(board)
        line.power_on(board)

    timer = after(1.5, fail_and_return)
    line.at_the_desk(lambda: link.put(tmp_path / "a", "a"))
    timer.join()
    assert (board.home / "a").read_bytes() == data
    link.close()


def test_delay_and_loss(far: tuple[LabBoard, Line], tmp_path: Path) -> None:
    board, line = far
    line.delay_s, line.loss = 0.03, 0.02
    data = os.urandom(400_000)
    (tmp_path / "a").write_bytes(data)
    link = link_to(board)

    def work() -> None:
        assert link.run(["echo", "in"], timeout_s=60).text == "in"
        link.put(tmp_path / "a", "a")
        link.get("a", tmp_path / "b")

    line.at_the_desk(work)
    assert (board.home / "a").read_bytes() == (tmp_path / "b").read_bytes() == data
    link.close()
