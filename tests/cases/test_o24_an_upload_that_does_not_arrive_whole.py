"""O24: an upload that is not taken whole leaves the old file as it is, nothing beside it, and says why."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lab_fixtures import Desk
from lab_sshd import make_key, why_not
from lab_stub import Faults, StubBoard

from edgekit.errors import LinkError
from edgekit.link.boards import Board
from edgekit.link.questions import Questions
from edgekit.link.ssh import SshLink

pytestmark = [pytest.mark.timeout(60), pytest.mark.skipif(bool(why_not()), reason=why_not())]

MIB = 1 << 20
OLD = b"the old model, which works"


@pytest.fixture
def board(tmp_path: Path, desk: Desk) -> Iterator[Callable[[Faults], tuple[StubBoard, SshLink]]]:
    """``board(faults)``: a board that fails in this way, with an old model, and a link to it."""
    running: list[tuple[StubBoard, SshLink]] = []

    def make(faults: Faults) -> tuple[StubBoard, SshLink]:
        home = tmp_path / "board home"
        home.mkdir()
        (home / "model.tflite").write_bytes(OLD)
        stub = StubBoard(home, faults)
        desk.known_hosts.write_text(stub.host_key_line())
        where = Board("stub", "127.0.0.1", user="pi", port=stub.port, key=str(make_key(desk.home / "key")))
        running.append((stub, SshLink(where, questions=Questions(), retry_for_s=10)))
        return running[-1]

    yield make
    for stub, link in running:
        link.close()
        stub.close()


@pytest.fixture
def new(tmp_path: Path) -> Path:
    path = tmp_path / "new.tflite"
    path.write_bytes(os.urandom(2 * MIB))
    return path


def names(stub: StubBoard) -> list[str]:
    return sorted(path.name for path in stub.home.iterdir())


def test_the_server_takes_half_a_mib_and_fails(board: Callable[[Faults], tuple[StubBoard, SshLink]], new: Path) -> None:
    stub, link = board(Faults(room_bytes=MIB // 2))
    for _ in range(2):
        with pytest.raises(LinkError) as caught:
            link.put(new, "model.tflite")
        assert caught.value.code == "write_failed"
        assert caught.value.exit_code == 4
        assert "model.tflite" in caught.value.message
        assert (stub.home / "model.tflite").read_bytes() == OLD
        assert names(stub) == ["model.tflite"]
    stub.faults.room_bytes = None
    link.put(new, "model.tflite")
    assert (stub.home / "model.tflite").read_bytes() == new.read_bytes()


def test_the_disk_has_no_room(
    board: Callable[[Faults], tuple[StubBoard, SshLink]], new: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The board is asked after a write that failed, since SFTP does not say why."""
    stub, link = board(Faults(room_bytes=MIB // 2))
    free = iter([3 * MIB, 100])
    monkeypatch.setattr(SshLink, "free_bytes", lambda self, remote: next(free))
    with pytest.raises(
        LinkError, match=r"the disk of stub is full: .* needs 1\.\d MB more, 0\.0 MB are free"
    ) as caught:
        link.put(new, "model.tflite")
    assert caught.value.details["free_bytes"] == 100
    assert (stub.home / "model.tflite").read_bytes() == OLD
    assert names(stub) == ["model.tflite"]


def test_the_server_gives_no_sizes(board: Callable[[Faults], tuple[StubBoard, SshLink]], new: Path) -> None:
    """The hash decides, not the size."""
    stub, link = board(Faults(sizes=False))
    link.put(new, "model.tflite")
    assert (stub.home / "model.tflite").read_bytes() == new.read_bytes()
    assert names(stub) == ["model.tflite"]
    assert link.read_bytes("model.tflite") == new.read_bytes()


def test_the_connection_closes_at_one_mib(board: Callable[[Faults], tuple[StubBoard, SshLink]], new: Path) -> None:
    stub, link = board(Faults(hang_up_bytes=MIB))
    sent = link.put(new, "model.tflite")
    assert (stub.home / "model.tflite").read_bytes() == new.read_bytes()
    assert sent.sent_bytes == 2 * MIB
    assert names(stub) == ["model.tflite"]
    assert stub.faults.written_bytes < 3 * MIB  # it went on, and did not begin again


@pytest.mark.parametrize("target", ["sub/deep/model", "~/model", "~/a folder/it's a model"])
def test_where_it_goes(board: Callable[[Faults], tuple[StubBoard, SshLink]], new: Path, target: str) -> None:
    stub, link = board(Faults())
    link.put(new, target)
    assert (stub.home / target.removeprefix("~/")).read_bytes() == new.read_bytes()
    assert (stub.home / "model.tflite").read_bytes() == OLD
