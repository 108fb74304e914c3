"""What a push leaves behind when something goes wrong at any of its steps: the old release answers, and the next push puts all right."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from push_boards import FolderLink, TestedAgent

from edgekit.agent import store as board_store
from edgekit.errors import EdgekitError, JobError, LinkError
from edgekit.push import store
from edgekit.push.release import Pushed, push_bundle, roll_back

Make = Callable[..., Path]
STEPS = ("run", "append", "size_bytes", "make_folder", "replace", "remove", "symlink", "read_bytes")


class CutLink(FolderLink):
    """Breaks for good at its n-th step: before the step is done, or after it was done and before that is known."""

    def __init__(self, home: Path, *, at: int, after: bool) -> None:
        super().__init__(home)
        self.steps = 0
        self._at, self._after = at, after


def _cutting(name: str) -> Callable[..., Any]:
    def step(self: CutLink, *args: Any, **more: Any) -> Any:
        self.steps += 1
        lost = LinkError("the link broke", code="link_lost")
        if self.steps > self._at or (self.steps == self._at and not self._after):
            raise lost
        result = getattr(FolderLink, name)(self, *args, **more)
        if self.steps == self._at:
            raise lost
        return result

    return step


for _name in STEPS:
    setattr(CutLink, _name, _cutting(_name))


def push(home: Path, bundle: Path, **more: Any) -> Pushed:
    return push_bundle(TestedAgent(FolderLink(home)), bundle, app="app", **more)


def model(home: Path) -> bytes:
    return (home / ".edgekit/apps/app/current/model.tflite").read_bytes()


def assert_whole(home: Path, bundle: Path) -> None:
    """The app's release is this bundle, byte for byte, and nothing lies about that belongs to no release."""
    app = home / ".edgekit/apps/app"
    for name in ("model.tflite", "manifest.json", "golden.npz"):
        assert (app / "current" / name).read_bytes() == (bundle / name).read_bytes()
    assert not (app / "pending.json").exists()
    assert not [path for path in home.rglob("*") if path.name.startswith(".new-") or path.suffix == ".part"]


@pytest.fixture
def old(make_bundle: Make) -> Path:
    return make_bundle("old.bundle", size=20000)


@pytest.fixture
def new(make_bundle: Make) -> Path:
    return make_bundle("new.bundle", seed=1, size=300000)


@pytest.fixture
def home(agent: Any, old: Path) -> Path:
    """A board's home with the old release."""
    assert push_bundle(agent, old, app="app").state == "done"
    return Path(agent.link.home())


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(1, 30, 3))
def test_a_link_cut_at_any_step(home: Path, old: Path, new: Path, at: int, after: bool) -> None:
    shutil.rmtree(home / ".edgekit/blobs/none", ignore_errors=True)
    next((home / ".edgekit").glob("agent-*.pyz")).unlink()  # the agent has to be sent too
    link = CutLink(home, at=at, after=after)
    try:
        done = push_bundle(TestedAgent(link), new, app="app")
    except EdgekitError as error:
        assert (error.code, error.exit_code) == ("link_lost", 4)
        assert link.steps >= at
        assert model(home) in ((old / "model.tflite").read_bytes(), (new / "model.tflite").read_bytes())
    else:
        assert done.state == "done" and link.steps < at
    again = push(home, new)
    assert again.state in ("done", "unchanged")
    assert_whole(home, new)
    assert roll_back(TestedAgent(FolderLink(home))).state == "done"
    assert_whole(home, old)


def test_a_part_that_was_sent_is_not_sent_again(home: Path, new: Path) -> None:
    """A cut in mid-file: the next push goes on from there."""

    class Half(FolderLink):
        def append(self, local: Path, remote: str, *, offset_bytes: int, progress: Any = None) -> None:
            if local.stat().st_size < 200000:
                return super().append(local, remote, offset_bytes=offset_bytes, progress=progress)
            Path(remote).write_bytes(local.read_bytes()[:200000])
            raise LinkError("the link broke", code="link_lost", details={"final": True})

        def size_bytes(self, remote: str) -> int | None:
            if remote.endswith(".part") and os.path.exists(remote) and os.path.getsize(remote) == 200000:
                raise LinkError("the link broke", code="link_lost")
            return super().size_bytes(remote)

    with pytest.raises(LinkError):
        push_bundle(TestedAgent(Half(home)), new, app="app")
    total = sum((new / name).stat().st_size for name in ("model.tflite", "manifest.json", "golden.npz"))
    assert push(home, new).sent_bytes == total - 200000
    assert_whole(home, new)


def test_power_lost_between_the_switch_and_the_restart(home: Path, old: Path, new: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    push(home, old, restart=f"echo old >>{log}", again=True)
    # The app's command ends the process that waits for it, as a power cut would: what stays is what is on the disk.
    with pytest.raises(JobError):
        push(home, new, restart="kill -KILL $PPID")
    assert (home / ".edgekit/apps/app/pending.json").exists()
    assert model(home) == (new / "model.tflite").read_bytes()
    again = push(home, old)
    assert again.state == "unchanged"
    assert any("cut between" in note for note in again.notes)
    assert log.read_text().split() == ["old", "old"]  # restarted with the release that came back
    assert_whole(home, old)


def test_power_lost_while_the_breadcrumb_was_written(home: Path, old: Path, new: Path) -> None:
    (home / ".edgekit/apps/app/pending.json").write_text('{"from": "0001')
    assert push(home, new).state == "done"
    assert_whole(home, new)


def test_two_pushes_at_once(home: Path, old: Path, new: Path, make_bundle: Make) -> None:
    bundles = [new, make_bundle("third.bundle", seed=2, size=300000), new]
    outcomes: list[Any] = []
    threads = [threading.Thread(target=lambda one=one: outcomes.append(push(home, one))) for one in bundles]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(one.state for one in outcomes) in (["done", "done", "done"], ["done", "done", "unchanged"])
    assert_whole(home, next(one for one in bundles if (one / "model.tflite").read_bytes() == model(home)))


def test_a_dead_push_holds_no_lock(home: Path, new: Path) -> None:
    lock = home / ".edgekit/apps/app/lock"
    code = "import fcntl, sys, time; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True); time.sleep(60)"
    with subprocess.Popen(["python3", "-c", code, str(lock)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        holder.kill()
    assert push(home, new).state == "done"


def test_bytes_altered_on_the_way(home: Path, old: Path, new: Path) -> None:
    class Noisy(FolderLink):
        def append(self, local: Path, remote: str, *, offset_bytes: int, progress: Any = None) -> None:
            super().append(local, remote, offset_bytes=offset_bytes, progress=progress)
            with open(remote, "r+b") as file:
                file.write(b"?")

    with pytest.raises(EdgekitError) as caught:
        push_bundle(TestedAgent(Noisy(home)), new, app="app")
    assert caught.value.code == "bytes_altered"
    assert_whole(home, old)


def test_bytes_altered_on_the_board_later(home: Path, old: Path, new: Path) -> None:
    """A file of the store that rotted is seen before it is released, and sent once more."""
    push(home, new)
    roll_back(TestedAgent(FolderLink(home)))
    blob = (home / ".edgekit/apps/app/releases").glob("0002-*/model.tflite").__next__().resolve()
    with open(blob, "r+b") as file:
        file.seek(1000)
        file.write(b"rot")
    with pytest.raises(JobError) as caught:
        roll_back(TestedAgent(FolderLink(home)), to="2")
    assert caught.value.code == "release_damaged"
    assert_whole(home, old)
    assert push(home, new).state == "done"
    assert_whole(home, new)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A home on a disk of eight megabytes."""
    home = tmp_path / "small"
    home.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(home)]).returncode:
        pytest.skip("needs root, to mount a small disk")
    yield home
    subprocess.run(["umount", "-l", str(home)], check=True)


@pytest.mark.parametrize("left_kb", [0, 100, 290, 300, 304, 308, 312, 316, 320, 324, 332, 360])
def test_a_disk_that_fills_at_any_step(
    small_disk: Path, agent: Any, old: Path, new: Path, left_kb: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So much is left that the push ends while it sends, makes the release, writes the breadcrumb or switches."""
    assert push(small_disk, old).state == "done"
    left = os.statvfs(small_disk).f_bavail * 4096
    (small_disk / "filler").write_bytes(bytes(left - left_kb * 1024))
    with pytest.raises(JobError) as caught:
        push(small_disk, new)  # told before anything is sent
    assert (caught.value.code, caught.value.exit_code) == ("disk_full", 5)
    assert "MB are needed" in caught.value.message
    assert_whole(small_disk, old)
    monkeypatch.setattr(store, "SPARE_BYTES", -(1 << 30))
    try:
        state = push(small_disk, new).state
    except EdgekitError as error:
        assert error.code == "disk_full"
        assert error.hint
        assert_whole(small_disk, old)
    else:
        assert state == "done"
        assert_whole(small_disk, new)
    (small_disk / "filler").unlink()
    assert push(small_disk, new).state in ("done", "unchanged")
    assert_whole(small_disk, new)


def test_a_home_that_is_read_only(small_disk: Path, agent: Any, old: Path, new: Path) -> None:
    push(small_disk, old)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    try:
        with pytest.raises(JobError) as caught:
            push(small_disk, new)
        assert caught.value.code == "home_read_only"
        assert push(small_disk, old).state == "unchanged"
        assert model(small_disk) == (old / "model.tflite").read_bytes()
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)


def test_a_home_that_is_read_only_from_the_beginning(small_disk: Path, agent: Any, old: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(JobError) as caught:
        push(small_disk, old)
    assert caught.value.code == "home_read_only"


@pytest.mark.parametrize("year", [1970, 2050])
def test_a_clock_that_is_wrong_by_years(home: Path, new: Path, year: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What seems ages old is swept only when nothing names it; what seems to come from the future begins to age now."""
    now = (year - 1970) * 365.25 * 86400
    monkeypatch.setattr(time, "time", lambda: now)
    stray = home / ".edgekit/blobs" / ("0" * 64)
    stray.write_bytes(b"of a push that was cut")
    removed = board_store.sweep(str(home / ".edgekit"), agent="")
    assert [path for path in removed if "blobs/" in path] == ([] if year == 1970 else [f"blobs/{'0' * 64}"])
    assert_whole(home, home / ".edgekit/apps/app/current")
    monkeypatch.undo()
    assert push(home, new).state == "done"
    assert_whole(home, new)


def test_the_sweep_takes_what_nobody_needs(home: Path, new: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = home / ".edgekit"
    for name in ("blobs/" + "1" * 64, "blobs/.x.part", "env/old", "agent-0000.pyz"):
        path = place / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"") if "env" not in name else path.mkdir()
        os.utime(path, (0, 0))
    job = place / "jobs" / "done"
    job.mkdir(parents=True)
    (job / "status.json").write_text('{"state": "done"}')
    os.utime(job, (0, 0))
    push(home, new)
    left = {str(path.relative_to(place)) for path in place.rglob("*")}
    assert not {"blobs/" + "1" * 64, "blobs/.x.part", "env/old", "agent-0000.pyz", "jobs/done"} & left
