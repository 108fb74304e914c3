"""Front ends in environments of their own: found, installed whole or not at all, removed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import fake_frontends
import pytest

from edgekit.errors import FrontendMissingError, OutputError, UsageError
from edgekit.intake import frontends

ONNX2TF = frontends.KINDS["onnx2tf"]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and an environment that is no front end itself."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(frontends, "_importable_here", lambda _: False)
    return tmp_path / "cache"


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def test_found_when_finished(cache: Path, tmp_path: Path) -> None:
    python = fake_frontends.program(tmp_path / "python", "#!/bin/sh\n")
    assert frontends.installed() == [] and frontends.find(ONNX2TF) is None
    fake_frontends.installed(cache, "onnx2tf", python)
    found = frontends.find(ONNX2TF)
    assert found is not None and found.name == "onnx2tf"
    assert found.python == cache / "edgekit" / "frontends" / frontends.folder_name(ONNX2TF) / "bin" / "python"
    assert frontends.installed() == [found] == frontends.require(["tensorflow", "onnx2tf"])
    ready = found.python.parents[1] / "ready.json"
    ready.unlink()  # an installation that did not end
    assert frontends.find(ONNX2TF) is None
    ready.write_text("{}")
    python.unlink()  # the Python it was made with is gone
    assert frontends.find(ONNX2TF) is None


def test_other_pins_are_another_environment(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_frontends.installed(cache, "onnx2tf", fake_frontends.program(tmp_path / "python", "#!/bin/sh\n"))
    monkeypatch.setattr(frontends, "REQUIREMENTS", tmp_path)
    (tmp_path / "onnx2tf.txt").write_text("onnx2tf==9.9.9\n")
    assert frontends.find(ONNX2TF) is None
    assert frontends.remove("onnx2tf") is True and listing(cache / "edgekit" / "frontends") == []
    assert frontends.remove("onnx2tf") is False


def test_edgekits_own_environment_serves_too(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontends, "_importable_here", lambda kind: kind.name == "tensorflow")
    [found] = frontends.installed()
    assert (found.name, found.python, found.folder) == ("tensorflow", Path(sys.executable), None)


def test_none_is_there(cache: Path) -> None:
    with pytest.raises(FrontendMissingError, match="looked for onnx2tf, tensorflow in") as caught:
        frontends.require(["onnx2tf", "tensorflow"])
    assert "edgekit frontend add" in caught.value.hint and " MB)" in caught.value.hint
    with pytest.raises(UsageError, match="no front end named 'keras'"):
        frontends.require(["keras"])


def test_pins_name_what_proves_them() -> None:
    for kind in frontends.KINDS.values():
        assert f"{kind.proof}=={kind.proof_version}" in kind.requirements.read_text().replace("+cpu", ""), kind.name


def fake_python(path: Path, *, pip: str, version: str = "3 13") -> Path:
    """A Python that answers for its version, makes an environment of itself, and whose pip does ``pip``."""
    return fake_frontends.program(
        path,
        f"""#!/bin/sh
case "$*" in
  *sys.version_info*) echo {version};;
  "-m venv "*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; echo made >"$3/pyvenv.cfg";;
  "-m pip "*) {pip};;
esac
""",
    )


def test_installed_once(cache: Path, tmp_path: Path) -> None:
    python = fake_python(tmp_path / "python", pip=f'echo "$*" >>{tmp_path}/pip.log')
    told: list[str] = []
    added = frontends.add("onnx2tf", python=python, progress=told.append)
    assert added == frontends.find(ONNX2TF) and "about 660 MB" in told[0] and len(told) == 2
    assert json.loads((added.python.parents[1] / "ready.json").read_text())["python"] == str(python)
    assert frontends.add("onnx2tf", python=python) == added
    [line] = (tmp_path / "pip.log").read_text().splitlines()
    assert line.endswith(f"-r {ONNX2TF.requirements}")


def test_a_failed_installation_leaves_a_log_and_nothing_else(cache: Path, tmp_path: Path) -> None:
    python = fake_python(tmp_path / "python", pip="echo 'ERROR: No matching distribution found' >&2; exit 1")
    with pytest.raises(OutputError, match="front end onnx2tf could not be installed") as caught:
        frontends.add("onnx2tf", python=python)
    error = caught.value
    assert error.code == "frontend_install_failed" and error.exit_code == 2
    assert "ERROR: No matching distribution found" in error.message
    assert listing(cache / "edgekit" / "frontends") == ["onnx2tf-install.log", "onnx2tf.lock"]
    assert f"read {cache}/edgekit/frontends/onnx2tf-install.log" in error.hint


def test_an_interrupted_installation_keeps_no_gigabytes(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(command: Any, *, output: Any) -> None:
        target = Path(command[-1])
        if "venv" in command:
            (target / "bin").mkdir(parents=True)
        else:
            raise KeyboardInterrupt

    monkeypatch.setattr(frontends, "_logged", stopped)
    with pytest.raises(KeyboardInterrupt):
        frontends.add("onnx2tf", python=fake_python(tmp_path / "python", pip="true"))
    assert frontends.find(ONNX2TF) is None
    assert listing(cache / "edgekit" / "frontends") == ["onnx2tf-install.log", "onnx2tf.lock"]


def test_two_at_a_time_install_once(cache: Path, tmp_path: Path) -> None:
    python = fake_python(tmp_path / "python", pip=f"sleep 0.3; echo x >>{tmp_path}/pip.log")
    results: list[Any] = []
    threads = [
        threading.Thread(target=lambda: results.append(frontends.add("onnx2tf", python=python))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 3 and len(set(map(str, results))) == 1
    assert (tmp_path / "pip.log").read_text() == "x\n"


def test_pythons_that_do_not_fit(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"needs Python 3.12 to 3.13, and .*old is Python 3.8"):
        frontends.add("onnx2tf", python=fake_python(tmp_path / "old", pip="true", version="3 8"))
    for broken in (tmp_path / "missing", fake_frontends.program(tmp_path / "shim", "#!/bin/sh\nexit 127\n")):
        with pytest.raises(UsageError, match="does not run or has no venv module") as caught:
            frontends.add("onnx2tf", python=broken)
        assert caught.value.code == "python_unsuitable" and "--python PATH" in caught.value.hint
    monkeypatch.setattr(frontends, "pythons_for", lambda _: [])
    with pytest.raises(UsageError, match="none was found on the path") as caught:
        frontends.add("onnx2tf")
    assert "edgekit frontend add tensorflow" in caught.value.hint


def test_a_shim_that_fails_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Version managers put programs of every name on the path, most of which only complain."""
    fake_frontends.program(tmp_path / "bin" / "python3.13", "#!/bin/sh\necho not installed >&2; exit 127\n")
    good = fake_python(tmp_path / "pyenv" / "versions" / "3.12.9" / "bin" / "python3", pip="true", version="3 12")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/nowhere")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "missing"))
    monkeypatch.setattr(frontends.subprocess, "run", with_shell(subprocess.run))
    assert frontends.pythons_for(ONNX2TF) == [good]


def with_shell(run: Any) -> Any:
    """The fakes are shell scripts, and the path of this test has no shell."""

    def running(command: Any, **given: Any) -> Any:
        return run(command, env={**os.environ, "PATH": "/bin:/usr/bin"}, **given)

    return running


def test_a_cache_that_cannot_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(frontends, "_importable_here", lambda _: False)
    with pytest.raises(OutputError, match="could not be installed") as caught:
        frontends.add("onnx2tf", python=fake_python(tmp_path / "python", pip="true"))
    assert caught.value.code == "frontend_install_failed"
