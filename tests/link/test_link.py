"""What every link promises, kept by the one to this machine and by the one over SSH alike."""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from lab_fixtures import Ground
from lab_wait import wait_until

from edgekit.errors import LinkError, OutputError, UsageError
from edgekit.link.base import Link

PYTHON = "python3"

pytestmark = pytest.mark.skipif(shutil.which(PYTHON) is None, reason="needs a python3 in the path")


def test_a_command_gives_both_streams_and_its_exit_code(link: Link) -> None:
    done = link.run(
        [PYTHON, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"], timeout_s=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, b"out\n", b"err\n")
    assert done.text == "out"


def test_words_are_passed_as_they_are(link: Link) -> None:
    words = ["a b", "$HOME", "'", '"', "*", ";", "", "ä", "\\", "a\\'b", "two\nlines\n", "!x", "`id`", "-n", "%s", "~"]
    done = link.run([PYTHON, "-c", "import sys; print(ascii(sys.argv[1:]))", *words], timeout_s=60)
    assert done.text == ascii(words)


def test_a_program_is_run_and_no_builtin_of_a_shell(link: Link) -> None:
    assert link.run(["echo", "a\\nb"], timeout_s=60).text == "a\\nb"
    assert link.run(["exit", "0"], timeout_s=60).returncode == 127


def test_its_input_is_what_was_given_and_nothing_else(link: Link) -> None:
    data = bytes(range(256)) * 5000
    done = link.run([PYTHON, "-c", "import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())"],
                    timeout_s=60, stdin=data)  # fmt: skip
    assert done.text == hashlib.sha256(data).hexdigest()
    assert link.run(["cat"], timeout_s=60).stdout == b""
    assert link.run([PYTHON, "-"], timeout_s=60, stdin=b"print(6 * 7)\n").text == "42"


def test_input_that_nobody_reads(link: Link) -> None:
    assert link.run(["true"], timeout_s=60, stdin=b"x" * 8_000_000).returncode == 0


def test_much_output_on_both_streams_does_not_hang(link: Link) -> None:
    code = "import sys\nfor i in range(400):\n sys.stderr.write('e'*10000); sys.stdout.write('o'*10000)"
    done = link.run([PYTHON, "-c", code], timeout_s=60)
    assert (len(done.stdout), len(done.stderr)) == (4_000_000, 4_000_000)


def test_a_program_that_does_not_exist_is_127(link: Link) -> None:
    done = link.run(["no-such-program-here"], timeout_s=60)
    assert done.returncode == 127
    assert b"no-such-program-here" in done.stderr


def test_a_program_that_was_killed_has_the_signal_as_its_code(link: Link) -> None:
    done = link.run(["sh", "-c", "kill -9 $$"], timeout_s=60)
    assert (done.returncode, done.stderr) == (-9, b"")


def test_a_command_that_takes_too_long_is_ended_with_its_children(ground: Ground) -> None:
    script = f"echo before; sleep 600 & echo $! > {ground.folder}/pid; wait"
    with pytest.raises(LinkError, match="did not end within 1 s") as caught:
        ground.link.run(["sh", "-c", script], timeout_s=1)
    assert caught.value.code == "command_timeout"
    assert caught.value.details["stdout_tail"] == "before\n"
    pid = int((ground.folder / "pid").read_text())
    wait_until(lambda: not alive(pid))
    assert ground.link.run(["true"], timeout_s=60).returncode == 0


def test_a_program_that_prints_without_end_is_ended(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgekit.link.base.MOST_OUTPUT_BYTES", 1 << 20)
    with pytest.raises(LinkError, match="printed more than 1 MiB") as caught:
        link.run(["sh", "-c", "while :; do echo yes yes yes yes; done"], timeout_s=60)
    assert caught.value.code == "output_too_large"
    assert caught.value.details["stdout_tail"].endswith("yes yes yes\n")


def test_put_makes_folders_and_keeps_the_bytes(ground: Ground, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(range(256)) * 5000)
    sent = ground.link.put(tmp_path / "a", f"{ground.folder}/x/y/b")
    assert (ground.folder / "x/y/b").read_bytes() == (tmp_path / "a").read_bytes()
    assert [path.name for path in (ground.folder / "x/y").iterdir()] == ["b"]  # no temporary file stays
    assert sent.sha256 == hashlib.sha256((tmp_path / "a").read_bytes()).hexdigest()
    assert sent.size_bytes == sent.sent_bytes == 1_280_000


def test_put_of_an_empty_file(ground: Ground, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    assert ground.link.put(tmp_path / "a", f"{ground.folder}/b").sent_bytes == 0
    assert (ground.folder / "b").read_bytes() == b""


def test_put_says_how_far_it_is(ground: Ground, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 3_000_000)
    told: list[tuple[int, int]] = []
    ground.link.put(tmp_path / "a", f"{ground.folder}/b", progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (3_000_000, 3_000_000)
    assert told == sorted(told)
    assert len(told) > 2


def test_put_replaces_the_file_and_does_not_write_into_it(ground: Ground, tmp_path: Path) -> None:
    """An app that has the old model mapped must keep its old bytes."""
    (tmp_path / "new").write_bytes(b"new")
    with open(ground.write("model", b"old model"), "rb") as reader:
        ground.link.put(tmp_path / "new", f"{ground.folder}/model")
        assert reader.read() == b"old model"
    assert (ground.folder / "model").read_bytes() == b"new"


def test_put_goes_on_where_an_earlier_one_stopped(ground: Ground, tmp_path: Path) -> None:
    data = os.urandom(2_000_000)
    (tmp_path / "a").write_bytes(data)
    ground.write(part_name("b", data), data[:1_500_000])
    assert ground.link.put(tmp_path / "a", f"{ground.folder}/b").sent_bytes == 500_000
    assert (ground.folder / "b").read_bytes() == data
    assert [path.name for path in ground.folder.iterdir()] == ["b"]


@pytest.mark.parametrize("left", [b"other bytes" * 1000, b"x" * 3_000_000], ids=["altered", "too long"])
def test_a_part_that_is_not_what_it_should_be_is_sent_anew(ground: Ground, tmp_path: Path, left: bytes) -> None:
    data = os.urandom(2_000_000)
    (tmp_path / "a").write_bytes(data)
    ground.write(part_name("b", data), left)
    assert ground.link.put(tmp_path / "a", f"{ground.folder}/b").sent_bytes == 2_000_000
    assert (ground.folder / "b").read_bytes() == data


def test_put_without_resume_takes_nothing_that_lies_there(ground: Ground, tmp_path: Path) -> None:
    data = os.urandom(100_000)
    (tmp_path / "a").write_bytes(data)
    ground.write(part_name("b", data), data[:50_000])
    assert ground.link.put(tmp_path / "a", f"{ground.folder}/b", resume=False).sent_bytes == 100_000


def test_bytes_that_were_altered_on_the_way_are_refused(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The board's storage gives back other bytes than it was given."""
    (tmp_path / "a").write_bytes(b"right" * 100_000)
    ground.write("b", b"old")
    append = type(ground.link).append

    def bad_disk(self: Link, local: Path, remote: str, **words: object) -> None:
        append(self, local, remote, **words)  # type: ignore[arg-type]
        with open(remote, "r+b") as file:
            file.seek(1000)
            file.write(b"!")

    monkeypatch.setattr(type(ground.link), "append", bad_disk)
    with pytest.raises(LinkError, match="other bytes arrived") as caught:
        ground.link.put(tmp_path / "a", f"{ground.folder}/b")
    assert caught.value.code == "bytes_altered"
    assert (ground.folder / "b").read_bytes() == b"old"
    assert [path.name for path in ground.folder.iterdir()] == ["b"]


def test_two_who_put_the_same_file_at_once(ground: Ground, tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    (tmp_path / "a").write_bytes(data)
    part = ground.folder / part_name("b", data)
    replace = type(ground.link).replace

    def other_is_faster() -> None:
        os.replace(part, ground.folder / "b")

    class Slow(type(ground.link)):  # type: ignore[misc]
        pass

    ground.link.__class__ = Slow
    Slow.replace = lambda self, remote, target: (other_is_faster(), replace(self, remote, target))  # type: ignore[attr-defined]
    assert ground.link.put(tmp_path / "a", f"{ground.folder}/b").size_bytes == 3_000_000
    assert (ground.folder / "b").read_bytes() == data
    assert [path.name for path in ground.folder.iterdir()] == ["b"]


def test_put_under_a_file_is_refused(ground: Ground, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    ground.write("file", b"")
    with pytest.raises(LinkError) as caught:
        ground.link.put(tmp_path / "file", f"{ground.folder}/file/below")
    assert caught.value.code == "write_failed"


def test_put_onto_a_folder_is_refused(ground: Ground, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    ground.write("folder/inside", b"y")
    with pytest.raises(LinkError) as caught:
        ground.link.put(tmp_path / "file", f"{ground.folder}/folder")
    assert caught.value.code == "write_failed"
    assert sorted(path.name for path in ground.folder.iterdir()) == ["folder"]
    assert (ground.folder / "folder/inside").read_bytes() == b"y"


def test_a_local_file_that_is_not_there(ground: Ground, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="none"):
        ground.link.put(tmp_path / "none", f"{ground.folder}/b")


def test_get_and_read(ground: Ground, tmp_path: Path) -> None:
    link, a = ground.link, ground.write("a", b"0123456789")
    link.get(str(a), tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"0123456789"
    assert link.read_bytes(str(a)) == b"0123456789"
    assert link.read_bytes(str(a), offset=7) == b"789"
    assert link.read_bytes(str(a), offset=99) == b""
    assert link.exists(str(a))
    assert link.exists(str(ground.folder))
    assert not link.exists(f"{ground.folder}/none")
    assert not link.exists(f"{a}/below")
    assert link.size_bytes(str(a)) == 10
    assert link.size_bytes(f"{ground.folder}/none") is None


def test_large_files_come_whole(ground: Ground, tmp_path: Path) -> None:
    data = os.urandom(9_000_001)
    ground.write("a", data)
    told: list[tuple[int, int]] = []
    ground.link.get(f"{ground.folder}/a", tmp_path / "b", progress=lambda done, total: told.append((done, total)))
    assert (tmp_path / "b").read_bytes() == data
    assert told[-1] == (9_000_001, 9_000_001)
    assert ground.link.read_bytes(f"{ground.folder}/a", offset=4_000_000) == data[4_000_000:]


def test_files_that_do_not_know_their_size(ground: Ground, tmp_path: Path) -> None:
    """Everything under /proc says that it is empty."""
    assert ground.link.read_bytes("/proc/version") == Path("/proc/version").read_bytes()
    ground.link.get("/proc/version", tmp_path / "version")
    assert (tmp_path / "version").read_bytes() == Path("/proc/version").read_bytes()


def test_what_is_missing_has_a_code(ground: Ground, tmp_path: Path) -> None:
    link = ground.link
    attempts: list[Callable[[], object]] = [
        lambda: link.get(f"{ground.folder}/none", tmp_path / "b"),
        lambda: link.read_bytes(f"{ground.folder}/none"),
        lambda: link.sha256(f"{ground.folder}/none"),
        lambda: link.replace(f"{ground.folder}/none", f"{ground.folder}/b"),
    ]
    for attempt in attempts:
        with pytest.raises(LinkError) as caught:
            attempt()
        assert caught.value.code == "file_missing"
    for attempt in (lambda: link.read_bytes(str(ground.folder)), lambda: link.get(str(ground.folder), tmp_path / "b")):
        with pytest.raises(LinkError) as caught:
            attempt()
        assert caught.value.code == "read_failed"
    ground.write("a", b"abc")
    with pytest.raises(OutputError):
        link.get(f"{ground.folder}/a", tmp_path / "no" / "folder" / "b")
    assert not (tmp_path / "b").exists()


def test_hashes_are_computed_on_the_board(ground: Ground) -> None:
    name = "odd \\ name\nwith 'all' \"sorts\""
    ground.write(name, b"some bytes")
    assert ground.link.sha256(f"{ground.folder}/{name}") == hashlib.sha256(b"some bytes").hexdigest()


def test_paths_without_a_root_lie_in_the_home(ground: Ground, tmp_path: Path) -> None:
    ground.write("a", b"mine")
    assert ground.link.home() == str(ground.home)
    assert ground.link.absolute("~") == str(ground.home)
    for path in ("~/ground/a", "ground/a"):
        assert ground.link.absolute(path) == str(ground.folder / "a")
        assert ground.link.read_bytes(path) == b"mine"
    (tmp_path / "b").write_bytes(b"new")
    ground.link.put(tmp_path / "b", "~/ground/sub/b")
    assert (ground.folder / "sub/b").read_bytes() == b"new"
    assert ground.link.names("~/ground") == ["a", "sub"]


def test_names_folders_and_links(ground: Ground) -> None:
    link, folder = ground.link, ground.folder
    ground.write("one/model", b"1")
    ground.write("two/model", b"2")
    link.make_folder(f"{folder}/three/deep")
    link.make_folder(f"{folder}/three/deep")
    assert link.names(str(folder)) == ["one", "three", "two"]
    assert link.names(f"{folder}/none") == link.names(f"{folder}/one/model") == []
    link.symlink("one", f"{folder}/current")
    assert link.read_symlink(f"{folder}/current") == "one"
    assert (folder / "current/model").read_bytes() == b"1"
    link.symlink("two", f"{folder}/current")
    assert link.read_bytes(f"{folder}/current/model") == b"2"
    assert link.read_symlink(f"{folder}/one") is None
    assert link.read_symlink(f"{folder}/none") is None
    assert link.size_bytes(f"{folder}/current/model") == 1
    link.remove(f"{folder}/current")
    link.remove(f"{folder}/current")
    assert link.names(str(folder)) == ["one", "three", "two"]
    assert (folder / "two/model").read_bytes() == b"2"


def test_replace_is_one_step_over_what_is_there(ground: Ground) -> None:
    ground.write("a", b"new")
    with open(ground.write("b", b"old"), "rb") as reader:
        ground.link.replace(f"{ground.folder}/a", f"{ground.folder}/b")
        assert reader.read() == b"old"
    assert (ground.folder / "b").read_bytes() == b"new"
    assert ground.link.names(str(ground.folder)) == ["b"]


def test_append_writes_where_it_is_told(ground: Ground, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    ground.write("b", b"abcd")
    ground.link.append(tmp_path / "a", f"{ground.folder}/b", offset_bytes=4)
    assert (ground.folder / "b").read_bytes() == b"abcd456789"


def test_free_space_is_what_the_system_says(ground: Ground) -> None:
    free = ground.link.free_bytes(str(ground.folder))
    seen = os.statvfs(ground.folder)
    assert free is not None
    assert abs(free - seen.f_bavail * seen.f_frsize) < 2 << 30  # others use the disk too
    assert ground.link.free_bytes(f"{ground.folder}/not/yet/there") is not None


def test_a_job_has_a_session_of_its_own_and_no_terminal(ground: Ground) -> None:
    code = (
        "import os, sys; print(os.getpid(), os.getsid(0), os.getcwd()); print(repr(sys.stdin.read()));"
        "print(os.isatty(1)); sys.stderr.write('to the log too')"
    )
    pid = ground.link.start_job([PYTHON, "-c", code], cwd=str(ground.folder), log=f"{ground.folder}/log")
    wait_until(lambda: "to the log too" in (ground.folder / "log").read_text())
    first, stdin, tty, _ = (ground.folder / "log").read_text().split("\n", 3)
    assert first == f"{pid} {pid} {ground.folder}"
    assert stdin == "''"
    assert tty == "False"


def test_a_job_with_words_that_a_shell_would_read(ground: Ground) -> None:
    folder = ground.folder / "it's a $folder"
    ground.link.make_folder(str(folder))
    ground.link.start_job(["echo", "a  b; exit 3", "$HOME", "*"], cwd=str(folder), log=f"{folder}/log file")
    wait_until(lambda: (folder / "log file").read_text() == "a  b; exit 3 $HOME *\n")


def test_a_job_in_the_home(ground: Ground) -> None:
    ground.link.start_job(["pwd"], cwd="~/ground", log="~/ground/log")
    wait_until(lambda: (ground.folder / "log").read_text() == f"{ground.folder}\n")


def test_a_job_that_cannot_be_started(ground: Ground) -> None:
    with pytest.raises(LinkError) as caught:
        ground.link.start_job(["true"], cwd=f"{ground.folder}/none", log=f"{ground.folder}/log")
    assert caught.value.code == "start_failed"
    assert "none" in caught.value.details["stderr"]


def test_a_job_that_prints_outlives_the_link(ground: Ground) -> None:
    script = "while :; do echo still here; sleep 0.1; done"
    pid = ground.link.start_job(["sh", "-c", script], cwd=str(ground.folder), log=f"{ground.folder}/log")
    try:
        ground.link.close()
        size = (ground.folder / "log").stat().st_size
        wait_until(lambda: (ground.folder / "log").stat().st_size > size + 30)
        assert ground.link.read_bytes(f"/proc/{pid}/stat")  # the link can be used again
    finally:
        os.kill(pid, 9)


def test_one_link_and_several_threads_take_turns(ground: Ground) -> None:
    ground.write("a", b"x" * 100_000)
    results: list[tuple[str, int]] = []

    def work(number: int) -> None:
        for _ in range(5):
            text = ground.link.run(["echo", str(number)], timeout_s=60).text
            results.append((text, len(ground.link.read_bytes(f"{ground.folder}/a"))))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == sorted((str(number), 100_000) for number in range(8) for _ in range(5))


def part_name(name: str, data: bytes) -> str:
    """How an unfinished upload of these bytes is called."""
    return f".{name}.{hashlib.sha256(data).hexdigest()[:32]}.part"


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False
