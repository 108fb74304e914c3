"""Links that break at the worst moment. What a wait may take is bounded by the watchdog, and the state afterwards is whole.

No test asserts how long something took: a wait that does not end runs into the test's own time limit instead.
"""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from lab_fixtures import Desk
from lab_proxy import Proxy
from lab_sshd import LabBoard
from lab_wait import wait_until

from edgekit.errors import LinkError
from edgekit.link import watchdog
from edgekit.link.files import Files
from edgekit.link.questions import Questions
from edgekit.link.ssh import SshLink

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def patient_link(lab_board: LabBoard, desk: Desk, proxy: Proxy) -> SshLink:
    """A link through the proxy that does not try again: it shows what is noticed, and as what."""
    return SshLink(desk.add(lab_board, "patient", port=proxy.port), questions=Questions(), retry_for_s=0)


def after(seconds: float, action: Callable[[], object]) -> threading.Timer:
    timer = threading.Timer(seconds, action)
    timer.daemon = True
    timer.start()
    return timer


def lost(action: Callable[[], object], code: str = "link_lost") -> LinkError:
    with pytest.raises(LinkError) as caught:
        action()
    assert caught.value.code == code, caught.value.message
    assert caught.value.exit_code == 4
    assert caught.value.hint
    return caught.value


def test_frozen_before_the_banner(patient_link: SshLink, proxy: Proxy) -> None:
    proxy.freeze()
    error = lost(lambda: patient_link.run(["true"], timeout_s=60), "connect_timeout")
    assert "says nothing" in error.message


def test_frozen_in_the_handshake(patient_link: SshLink, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    count = proxy._count

    def freeze_after_the_banner(size: int, *, up: bool) -> None:
        count(size, up=up)
        if not up:
            proxy._clear()

    monkeypatch.setattr(proxy, "_count", freeze_after_the_banner)
    error = lost(lambda: patient_link.run(["true"], timeout_s=60), "connect_timeout")
    assert "did not finish the handshake" in error.message


def test_frozen_while_logging_in(patient_link: SshLink, lab_board: LabBoard, proxy: Proxy) -> None:
    """Every amount of bytes up to a whole log-in is a place where the link may stop."""
    patient_link.run(["true"], timeout_s=60)
    patient_link.close()
    whole = proxy.up_bytes
    count, frozen_at = proxy._count, whole + int(whole * 0.7)

    def freeze(size: int, *, up: bool) -> None:
        count(size, up=up)
        if proxy.up_bytes >= frozen_at:
            proxy._clear()

    proxy._count = freeze  # type: ignore[method-assign]
    lost(lambda: patient_link.run(["true"], timeout_s=60), "connect_timeout")


def test_frozen_in_a_silent_command(patient_link: SshLink, proxy: Proxy) -> None:
    """A peer that is frozen while its kernel still acknowledges: keepalive alone never notices."""
    patient_link.run(["true"], timeout_s=60)
    after(0.5, proxy.freeze)
    assert "nothing was heard" in lost(lambda: patient_link.run(["sleep", "600"], timeout_s=600)).message


def test_frozen_before_a_command(patient_link: SshLink, proxy: Proxy) -> None:
    patient_link.run(["true"], timeout_s=60)
    proxy.freeze()
    lost(lambda: patient_link.run(["true"], timeout_s=600))


def test_frozen_while_a_file_is_polled(patient_link: SshLink, proxy: Proxy) -> None:
    patient_link.read_bytes("/proc/version")
    proxy.freeze()
    lost(lambda: patient_link.read_bytes("/proc/version"))


def test_frozen_in_an_upload(patient_link: SshLink, lab_board: LabBoard, proxy: Proxy, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(os.urandom(30_000_000))
    proxy.bytes_per_s = 20e6
    after(1.0, proxy.freeze)
    lost(lambda: patient_link.put(tmp_path / "a", "a"))
    assert not (lab_board.home / "a").exists()


def test_frozen_in_a_download(patient_link: SshLink, lab_board: LabBoard, proxy: Proxy, tmp_path: Path) -> None:
    lab_board.write("a", "x" * 30_000_000)
    (tmp_path / "a").write_bytes(b"old")
    patient_link.home()
    proxy.bytes_per_s = 10e6
    after(1.0, proxy.freeze)
    lost(lambda: patient_link.get("a", tmp_path / "a"))
    assert (tmp_path / "a").read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "desk"]


def test_a_board_that_hangs_while_its_kernel_acknowledges(ssh_link: SshLink, lab_board: LabBoard) -> None:
    ssh_link.run(["true"], timeout_s=60)
    after(0.5, lambda: lab_board.signal_sessions(signal.SIGSTOP))
    assert "nothing was heard" in lost(lambda: ssh_link.run(["sleep", "600"], timeout_s=600)).message


def test_the_sftp_server_hangs_and_sshd_does_not(
    ssh_link: SshLink, lab_board: LabBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A card that never finishes a write: sshd answers every ping, so each answer has a deadline of its own."""
    monkeypatch.setattr("edgekit.link.files.ANSWER_TIMEOUT_S", 1.0)
    monkeypatch.setattr(ssh_link, "_retry_for_s", 0.0)
    ssh_link.home()
    leaf = lab_board.sessions()[-1]  # internal-sftp runs in the session's last process
    os.kill(leaf, signal.SIGSTOP)
    lost(lambda: ssh_link.read_bytes("/proc/version"))
    os.kill(leaf, signal.SIGCONT)
    assert ssh_link.read_bytes("/proc/version")


def test_a_slow_link_is_not_taken_for_a_dead_one(
    patient_link: SshLink, lab_board: LabBoard, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an upload the answer to a ping waits behind what lies in the buffers: far longer than silence is borne."""
    monkeypatch.setattr(watchdog, "SILENT_S", 1.0)
    data = os.urandom(1_500_000)
    (tmp_path / "a").write_bytes(data)
    patient_link.home()
    connection = patient_link.connect()
    proxy.bytes_per_s = 150e3
    patient_link.put(tmp_path / "a", "a")
    assert (lab_board.home / "a").read_bytes() == data
    assert patient_link.connect() is connection  # not one that was made anew


def test_a_command_may_be_silent_for_long(patient_link: SshLink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "SILENT_S", 0.5)
    assert patient_link.run(["sh", "-c", "sleep 6; echo done"], timeout_s=60).text == "done"


def test_sshd_is_killed_in_a_command(ssh_link: SshLink, lab_board: LabBoard) -> None:
    ssh_link.run(["true"], timeout_s=60)
    after(0.5, lambda: lab_board.signal_sessions(signal.SIGKILL))
    lost(lambda: ssh_link.run(["sleep", "600"], timeout_s=600))
    assert ssh_link.run(["echo", "back"], timeout_s=60).text == "back"


def test_a_command_that_the_link_left_alone_is_ended(patient_link: SshLink, lab_board: LabBoard, proxy: Proxy) -> None:
    """The board hears nothing of the end of its connection; the next one ends what is still running."""
    stranded = after(0.5, proxy.strand)
    lost(lambda: patient_link.run(["sh", "-c", "echo $$ >pid; sleep 601 & wait"], timeout_s=600))
    stranded.join()
    pid = int((lab_board.home / "pid").read_text())
    assert alive(pid)
    patient_link.run(["true"], timeout_s=60)
    wait_until(lambda: not alive(pid))


def test_a_command_dies_with_the_workstation(patient_link: SshLink, lab_board: LabBoard, proxy: Proxy) -> None:
    """Nobody is left to end it: its own watcher sees the channel close."""
    after(0.7, proxy.refuse)
    lost(lambda: patient_link.run(["sh", "-c", "echo $$ >pid; sleep 602 & wait"], timeout_s=600))
    wait_until(lambda: not alive(int((lab_board.home / "pid").read_text())))


def test_steps_that_may_be_done_twice_are(frail_link: SshLink, lab_board: LabBoard, proxy: Proxy) -> None:
    lab_board.write("a", "abc")
    assert frail_link.read_bytes("a") == b"abc"
    proxy.cut()
    assert frail_link.read_bytes("a") == b"abc"
    proxy.cut()
    assert frail_link.exists("a")
    proxy.refuse()
    after(2.0, proxy.restore)
    assert frail_link.names("~") == ["a"]
    assert proxy.connections == 4


def test_a_command_is_not_run_twice_unless_it_may_be(frail_link: SshLink, lab_board: LabBoard, proxy: Proxy) -> None:
    frail_link.run(["true"], timeout_s=60)
    script = ["sh", "-c", "echo x >>count; sleep 1"]
    after(0.5, proxy.cut)
    lost(lambda: frail_link.run(script, timeout_s=60))
    assert (lab_board.home / "count").read_text() == "x\n"
    after(0.5, proxy.cut)
    frail_link.run(script, timeout_s=60, idempotent=True)
    assert (lab_board.home / "count").read_text() == "x\n" * 3


def test_a_board_that_does_not_come_back(frail_link: SshLink, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frail_link, "_retry_for_s", 2.0)
    frail_link.home()
    proxy.refuse()
    error = lost(lambda: frail_link.exists("a"), "connection_refused")
    assert "systemctl enable --now ssh" in error.hint


def test_an_upload_that_is_cut_at_twenty_places(
    frail_link: SshLink, lab_board: LabBoard, proxy: Proxy, tmp_path: Path
) -> None:
    """Each time it goes on where it was, and the old file answers until the new one is whole."""
    size = 3_000_000
    lab_board.write("model", "old")
    frail_link.put(write(tmp_path / "first", os.urandom(size)), "other")
    whole = proxy.up_bytes
    for place in range(20):
        data = os.urandom(size)
        proxy.cut_after(1 + place * whole // 20)
        seen: list[bytes] = []
        before = (lab_board.home / "model").read_bytes()

        def look(done: int, total: int, seen: list[bytes] = seen) -> None:
            seen.append(hashlib.sha256((lab_board.home / "model").read_bytes()).digest())

        sent = frail_link.put(write(tmp_path / "new", data), "model", progress=look)
        assert set(seen) <= {hashlib.sha256(before).digest()}
        assert (lab_board.home / "model").read_bytes() == data, f"cut at {place}/20"
        assert sent.size_bytes == size
        assert sorted(path.name for path in lab_board.home.iterdir()) == ["model", "other"]


def test_an_upload_that_was_given_up_is_resumed_by_the_next(
    patient_link: SshLink, lab_board: LabBoard, proxy: Proxy, tmp_path: Path
) -> None:
    data = os.urandom(8_000_000)
    write(tmp_path / "new", data)
    patient_link.home()
    proxy.cut_after(5_000_000)
    refusal = threading.Thread(target=lambda: (wait_until(lambda: proxy._cut_at is None), proxy.refuse()), daemon=True)
    refusal.start()
    with pytest.raises(LinkError):
        patient_link.put(tmp_path / "new", "model")
    refusal.join()
    proxy.restore()
    parts = [path for path in lab_board.home.iterdir() if path.name.endswith(".part")]
    assert len(parts) == 1
    left = parts[0].stat().st_size
    assert left > 0
    assert patient_link.put(tmp_path / "new", "model").sent_bytes == len(data) - left
    assert (lab_board.home / "model").read_bytes() == data


def test_the_link_breaks_on_the_answer_to_the_rename(
    frail_link: SshLink, lab_board: LabBoard, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file has its name already, and nobody was told."""
    replace = Files.replace

    def replace_and_cut(self: Files, remote: str, target: str) -> None:
        replace(self, remote, target)
        monkeypatch.setattr(Files, "replace", replace)
        proxy.cut()
        self.home()

    monkeypatch.setattr(Files, "replace", replace_and_cut)
    frail_link.put(write(tmp_path / "a", b"new"), "model")
    assert (lab_board.home / "model").read_bytes() == b"new"
    assert [path.name for path in lab_board.home.iterdir()] == ["model"]
    assert Files.replace is replace


def test_the_link_stands_still_and_the_time_for_a_command_is_up(patient_link: SshLink, proxy: Proxy) -> None:
    """It was not the program that was late."""
    patient_link.run(["true"], timeout_s=60)
    after(0.3, proxy.freeze)
    lost(lambda: patient_link.run(["sleep", "600"], timeout_s=2))


def test_only_the_sftp_server_dies(ssh_link: SshLink, lab_board: LabBoard) -> None:
    ssh_link.home()
    connection = ssh_link.connect()
    os.kill(lab_board.sessions()[-1], signal.SIGKILL)
    wait_until(lambda: not connection.alive or ssh_link._files is None or not ssh_link._files.alive)
    assert ssh_link.read_bytes("/proc/version")


def test_the_socket_sends_at_once_and_is_given_up_early(ssh_link: SshLink) -> None:
    sock = ssh_link.connect().transport.sock
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert 0 < sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 8000


def test_sessions_on_a_board_stay_few(ssh_link: SshLink, lab_board: LabBoard, tmp_path: Path) -> None:
    """sshd gives ten on a connection; a link takes at most four, whatever is done with it."""
    most = 0
    open_session = ssh_link.connect().transport.open_session

    def counted(*words: object, **more: object) -> object:
        nonlocal most
        channel = open_session(*words, **more)
        most = max(most, len([one for one in ssh_link.connect().transport._channels.values() if not one.closed]))
        return channel

    ssh_link.connect().transport.open_session = counted
    write(tmp_path / "a", b"x" * 2_000_000)
    for number in range(30):
        ssh_link.put(tmp_path / "a", f"b{number % 3}")
        ssh_link.run(["true"], timeout_s=60)
    assert 1 <= most <= 4


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False
