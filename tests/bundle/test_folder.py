"""The place of a bundle: checked before work begins, filled beside it, replaced as a whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest

from edgekit.bundle import folder
from edgekit.errors import ConversionError, EdgekitError, OutputError


def make_bundle(path: Path, mark: str = "old") -> Path:
    path.mkdir(parents=True)
    (path / "manifest.json").write_text(json.dumps({"schema": 1, "edgekit": "0.1.0", "files": {}}))
    (path / "model.tflite").write_text(mark)
    return path


def refusal(out: Path, *, force: bool = False, needed_bytes: int = 1) -> OutputError:
    with pytest.raises(OutputError) as caught:
        folder.check_target(out, force=force, needed_bytes=needed_bytes)
    assert caught.value.exit_code == 2
    return caught.value


def test_a_new_place_is_fine_and_is_not_made_by_the_check(tmp_path: Path) -> None:
    folder.check_target(tmp_path / "a" / "b" / "m.bundle", force=False, needed_bytes=1)
    assert list(tmp_path.iterdir()) == []


def test_an_earlier_bundle_needs_force(tmp_path: Path) -> None:
    out = make_bundle(tmp_path / "m.bundle")
    found = refusal(out)
    assert found.message == f"{out} is already there" and "--force" in found.hint and found.code == "output_exists"
    folder.check_target(out, force=True, needed_bytes=1)
    (tmp_path / "empty").mkdir()
    folder.check_target(tmp_path / "empty", force=True, needed_bytes=1)


@pytest.mark.parametrize("manifest", [None, "{}", '{"name": "my web app", "icons": []}', "not json", "[1]"])
def test_other_folders_are_never_replaced(tmp_path: Path, manifest: str | None) -> None:
    """Nor those of other programs that have a manifest.json."""
    out = tmp_path / "photos"
    out.mkdir()
    (out / "holiday.jpg").write_text("precious")
    if manifest is not None:
        (out / "manifest.json").write_text(manifest)
    assert "is a folder but no bundle" in refusal(out, force=True).message


def test_places_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("")
    link = tmp_path / "link"
    link.symlink_to(make_bundle(tmp_path / "m.bundle"), target_is_directory=True)
    assert "exists and is not a folder" in refusal(file, force=True).message
    assert "exists and is not a folder" in refusal(link, force=True).message
    assert f"{file} is a file" in refusal(file / "m.bundle").message
    monkeypatch.chdir(tmp_path)
    for nowhere in (".", "..", "a/..", "/"):
        assert "names no new folder" in refusal(Path(nowhere), force=True).message


def test_a_folder_that_may_not_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:  # the superuser may write everywhere: ask the check, not the kernel
        monkeypatch.setattr(os, "access", lambda *_: False)
    else:
        tmp_path.chmod(0o500)
    assert f"{tmp_path} is not writable" in refusal(tmp_path / "m.bundle").message


def test_too_little_space_is_said_before_work_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10_000_000, 8_000_000, 2_000_000))
    found = refusal(tmp_path / "m.bundle", needed_bytes=5_000_000)
    assert "has 2.0 MB free" in found.message and "needs about 5.0 MB" in found.message
    assert (found.code, found.details) == ("no_space", {"free_bytes": 2_000_000, "needed_bytes": 5_000_000})


def test_staging_and_publishing(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "er" / "m.bundle"
    with folder.staging(out) as place:
        assert place.parent == out.parent and place.name.startswith(".m.bundle.") and not out.exists()
        shutil.copytree(make_bundle(place / "made", "new"), place / "bundle")
        folder.publish(place / "bundle", out, force=False)
    assert (out / "model.tflite").read_text() == "new"
    assert os.listdir(out.parent) == ["m.bundle"]


@pytest.mark.parametrize("fault", [RuntimeError, KeyboardInterrupt, SystemExit, ConversionError])
def test_nothing_stays_behind_after_a_fault(tmp_path: Path, fault: Any) -> None:
    with pytest.raises(fault), folder.staging(tmp_path / "deep" / "er" / "m.bundle") as place:
        (place / "half").write_text("half")
        raise fault("stop")
    assert list(tmp_path.iterdir()) == []


def test_parents_that_were_there_stay(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    with pytest.raises(RuntimeError), folder.staging(tmp_path / "deep" / "er" / "m.bundle"):
        raise RuntimeError
    assert [path.name for path in tmp_path.rglob("*")] == ["deep"]


def full(path: str = "x") -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


def caused(error: EdgekitError, by: BaseException) -> EdgekitError:
    error.__cause__ = by
    return error


@pytest.mark.parametrize(
    "fault",
    [
        full(),
        OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)),
        caused(OutputError("cannot write 5 bytes"), full()),
        ConversionError("died", details={"log_tail": ["x", f"OSError: [Errno 28] {os.strerror(errno.ENOSPC)}"]}),
        ConversionError("failed", details={"trace": f"... {os.strerror(errno.ENOSPC)}"}),
    ],
    ids=["disk", "quota", "wrapped", "in a child's log", "in a child's trace"],
)
def test_a_full_disk_is_named_wherever_it_was_met(tmp_path: Path, fault: BaseException) -> None:
    with pytest.raises(OutputError, match="no space left in") as caught, folder.staging(tmp_path / "m.bundle"):
        raise fault
    assert caught.value.code == "no_space" and list(tmp_path.iterdir()) == []


def test_other_errors_pass_through(tmp_path: Path) -> None:
    """Also one that names itself as its cause: the way along the causes ends."""
    itself = ConversionError("odd")
    with pytest.raises(ConversionError, match="odd"), folder.staging(tmp_path / "m.bundle"):
        raise itself from itself
    with pytest.raises(PermissionError), folder.staging(tmp_path / "m.bundle"):
        raise PermissionError(errno.EACCES, "no")


def staged(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "staging" / "bundle", "new")


def test_replaced_as_a_whole(tmp_path: Path) -> None:
    out = make_bundle(tmp_path / "m.bundle")
    (out / "rejected.tflite").write_text("of an earlier conversion")
    folder.publish(staged(tmp_path), out, force=True)
    assert sorted(os.listdir(out)) == ["manifest.json", "model.tflite"]
    assert (out / "model.tflite").read_text() == "new"
    assert sorted(os.listdir(tmp_path)) == ["m.bundle", "staging"]


def test_the_old_bundle_comes_back_when_the_new_one_cannot_be_put_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, new = make_bundle(tmp_path / "m.bundle"), staged(tmp_path)
    rename = os.rename

    def fails_for_the_new_one(source: Any, target: Any) -> None:
        if Path(source) == new:
            raise OSError(errno.EIO, "broken")
        rename(source, target)

    monkeypatch.setattr(os, "rename", fails_for_the_new_one)
    with pytest.raises(OSError, match="broken"):
        folder.publish(new, out, force=True)
    assert (out / "model.tflite").read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["m.bundle", "staging"]


def test_what_appeared_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    """Two conversions into one place: the second to finish finds the first one's bundle."""
    new = staged(tmp_path)
    out = make_bundle(tmp_path / "m.bundle", "of somebody else")
    with pytest.raises(OutputError, match="is already there"):
        folder.publish(new, out, force=False)
    assert (out / "model.tflite").read_text() == "of somebody else"
