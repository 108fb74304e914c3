"""This machine as a board: the same promises that a link over the network has to keep."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest

from edgekit.errors import LinkError, OutputError
from edgekit.link.base import Link, detached, started_pid
from edgekit.link.local import LocalLink


@pytest.fixture
def link() -> Link:
    return LocalLink()


def test_a_command_gives_both_streams_and_its_exit_code(link: Link) -> None:
    done = link.run(
        [sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"], timeout_s=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, b"out\n", b"err\n")
    assert done.text == "out"


def test_words_are_passed_as_they_are(link: Link) -> None:
    words = ["a b", "$HOME", "'", '"', "*", ";", "", "ä"]
    done = link.run([sys.executable, "-c", "import sys; print(sys.argv[1:])", *words], timeout_s=60)
    assert done.text == str(words)


def test_much_output_on_both_streams_does_not_hang(link: Link) -> None:
    code = "import sys\nfor i in range(400):\n sys.stderr.write('e'*10000); sys.stdout.write('o'*10000)"
    done = link.run([sys.executable, "-c", code], timeout_s=60)
    assert (len(done.stdout), len(done.stderr)) == (4_000_000, 4_000_000)


def test_a_program_that_does_not_exist_is_127_as_over_ssh(link: Link) -> None:
    done = link.run(["no-such-program-here"], timeout_s=60)
    assert done.returncode == 127
    assert b"no-such-program-here" in done.stderr


def test_a_command_that_takes_too_long_is_ended_with_its_children(link: Link, tmp_path: Path) -> None:
    script = f"sleep 600 & echo $! > {tmp_path}/pid; wait"
    with pytest.raises(LinkError, match="did not end within 0.5 s") as caught:
        link.run(["sh", "-c", script], timeout_s=0.5)
    assert caught.value.code == "command_timeout"
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: not alive(pid))


def test_put_makes_folders_and_keeps_the_bytes(link: Link, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(range(256)) * 5000)
    link.put(tmp_path / "a", f"{tmp_path}/x/y/b")
    assert (tmp_path / "x/y/b").read_bytes() == (tmp_path / "a").read_bytes()
    assert [path.name for path in (tmp_path / "x/y").iterdir()] == ["b"]  # no temporary file stays


def test_put_replaces_the_file_and_does_not_write_into_it(link: Link, tmp_path: Path) -> None:
    """An app that has the old model mapped must keep its old bytes."""
    (tmp_path / "new").write_bytes(b"new")
    (tmp_path / "model").write_bytes(b"old model")
    with open(tmp_path / "model", "rb") as reader:
        link.put(tmp_path / "new", f"{tmp_path}/model")
        assert reader.read() == b"old model"
    assert (tmp_path / "model").read_bytes() == b"new"


def test_put_that_fails_leaves_what_was_there(link: Link, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "new").write_bytes(b"new")
    (tmp_path / "model").write_bytes(b"old")

    def disk_full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("edgekit.link.local.os.fsync", disk_full)
    with pytest.raises(LinkError, match="No space left") as caught:
        link.put(tmp_path / "new", f"{tmp_path}/model")
    assert caught.value.code == "write_failed"
    assert (tmp_path / "model").read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "new"]


def test_put_under_a_file_is_refused(link: Link, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(LinkError) as caught:
        link.put(tmp_path / "file", f"{tmp_path}/file/below")
    assert caught.value.code == "write_failed"


def test_get_and_read(link: Link, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    link.get(f"{tmp_path}/a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"0123456789"
    assert link.read_bytes(f"{tmp_path}/a") == b"0123456789"
    assert link.read_bytes(f"{tmp_path}/a", offset=7) == b"789"
    assert link.read_bytes(f"{tmp_path}/a", offset=99) == b""
    assert link.exists(f"{tmp_path}/a")
    assert link.exists(str(tmp_path))
    assert not link.exists(f"{tmp_path}/none")


def test_what_is_missing_has_a_code(link: Link, tmp_path: Path) -> None:
    for attempt in (
        lambda: link.get(f"{tmp_path}/none", tmp_path / "b"),
        lambda: link.read_bytes(f"{tmp_path}/none"),
    ):
        with pytest.raises(LinkError) as caught:
            attempt()
        assert caught.value.code == "file_missing"
    with pytest.raises(LinkError) as caught:
        link.read_bytes(str(tmp_path))
    assert caught.value.code == "read_failed"
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(OutputError):
        link.get(f"{tmp_path}/a", tmp_path / "no" / "folder" / "b")


def test_the_home_of_the_user(link: Link, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a").write_bytes(b"mine")
    assert link.read_bytes("~/a") == b"mine"


def test_a_job_has_a_session_of_its_own_and_no_terminal(link: Link, tmp_path: Path) -> None:
    code = (
        "import os, sys; print(os.getpid(), os.getsid(0), os.getcwd()); print(repr(sys.stdin.read()));"
        "print(os.isatty(1)); sys.stderr.write('to the log too')"
    )
    pid = link.start_job([sys.executable, "-c", code], cwd=str(tmp_path), log=f"{tmp_path}/log")
    wait_until(lambda: "to the log too" in (tmp_path / "log").read_text())
    first, stdin, tty, _ = (tmp_path / "log").read_text().split("\n", 3)
    assert first == f"{pid} {pid} {tmp_path}"
    assert stdin == "''"
    assert tty == "False"


def test_a_job_with_words_that_a_shell_would_read(link: Link, tmp_path: Path) -> None:
    folder = tmp_path / "it's a $folder"
    folder.mkdir()
    link.start_job(["echo", "a  b; exit 3", "$HOME", "*"], cwd=str(folder), log=f"{folder}/log file")
    wait_until(lambda: (folder / "log file").read_text() == "a  b; exit 3 $HOME *\n")


def test_a_job_that_cannot_be_started(link: Link, tmp_path: Path) -> None:
    with pytest.raises(LinkError) as caught:
        link.start_job(["true"], cwd=f"{tmp_path}/none", log=f"{tmp_path}/log")
    assert caught.value.code == "start_failed"
    assert "none" in caught.value.details["stderr"]


def test_a_job_outlives_the_one_who_started_it(tmp_path: Path) -> None:
    code = (
        "import os, signal; from edgekit.link.local import LocalLink\n"
        f"pid = LocalLink().start_job(['sleep', '600'], cwd={str(tmp_path)!r}, log={str(tmp_path / 'log')!r})\n"
        "print(pid, flush=True)\n"
        "os.killpg(0, signal.SIGINT)"  # Ctrl-C reaches everything in the terminal's process group
    )
    link = LocalLink()
    done = link.run([sys.executable, "-c", code], timeout_s=60)
    pid = int(done.text.split()[0])
    try:
        assert alive(pid)
    finally:
        os.kill(pid, 9)


def test_detached_is_one_shell_line() -> None:
    command = detached(["python3", "a b"], cwd="/c d", log="/e")
    assert command == ["sh", "-c", "cd '/c d' && { setsid python3 'a b' </dev/null >>/e 2>&1 & echo $!; }"]
    done = LocalLink().run(["echo", "no pid"], timeout_s=60)
    with pytest.raises(LinkError):
        started_pid(done)


def test_links_can_be_used_from_several_threads_one_each(tmp_path: Path) -> None:
    results = []

    def work(number: int) -> None:
        results.append(LocalLink().run(["echo", str(number)], timeout_s=60).text)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [str(number) for number in range(8)]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(condition, timeout_s: float = 60.0) -> None:  # type: ignore[no-untyped-def]
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        try:
            if condition():
                return
        except OSError:
            pass
        time.sleep(0.02)
    raise AssertionError(f"nothing happened in {timeout_s} s")
