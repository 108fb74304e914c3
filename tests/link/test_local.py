"""The link to this machine, where it differs from the others."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from edgekit.errors import LinkError
from edgekit.link.base import detached, started_pid
from edgekit.link.local import LocalLink


def test_put_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "new").write_bytes(b"new")
    (tmp_path / "model").write_bytes(b"old")

    def disk_full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("edgekit.link.local.os.fsync", disk_full)
    with pytest.raises(LinkError, match="No space left") as caught:
        LocalLink().put(tmp_path / "new", f"{tmp_path}/model")
    assert caught.value.code == "write_failed"
    assert (tmp_path / "model").read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "new"]


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
        os.kill(pid, 0)
    finally:
        os.kill(pid, 9)


def test_detached_is_one_shell_line() -> None:
    command = detached(["python3", "a b"], cwd="/c d", log="/e")
    assert command == ["sh", "-c", "cd '/c d' && { setsid python3 'a b' </dev/null >>/e 2>&1 & echo $!; }"]
    done = LocalLink().run(["echo", "no pid"], timeout_s=60)
    with pytest.raises(LinkError):
        started_pid(done)
