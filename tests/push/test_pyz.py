"""The agent as one file that needs nothing of the workstation."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from edgekit import __version__
from edgekit.push.pyz import agent_name, build_agent


@pytest.fixture
def pyz(tmp_path: Path) -> Path:
    path = tmp_path / agent_name()
    path.write_bytes(build_agent())
    return path


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, *command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=60, check=True
    )


def test_it_is_small_and_the_same_each_time(pyz: Path) -> None:
    assert pyz.stat().st_size < 150_000
    first = build_agent()
    build_agent.cache_clear()
    assert build_agent() == first
    assert pyz.name == agent_name()


def test_it_holds_what_runs_on_the_board_and_nothing_else() -> None:
    names = zipfile.ZipFile(io.BytesIO(build_agent())).namelist()
    rooms = {name.split("/")[1] for name in names if name.startswith("edgekit/")}
    assert rooms == {"__init__.py", "errors.py", "values.py", "runtime", "agent"}
    assert all(name.endswith(".py") for name in names)


def test_it_runs_without_edgekit_and_without_any_package(pyz: Path, tmp_path: Path) -> None:
    # -S leaves site-packages out: no numpy, no interpreter, no edgekit.
    assert run("-S", "-E", str(pyz), "--version", cwd=tmp_path).stdout.strip() == f"edgekit agent {__version__}"
    facts = json.loads(run("-S", "-E", str(pyz), "facts", cwd=tmp_path).stdout)
    assert facts["schema"] == 1
    assert facts["cpu_count"] >= 1


def test_its_own_code_wins_over_an_installed_edgekit(pyz: Path, tmp_path: Path) -> None:
    code = f"import sys; sys.path.insert(0, {str(pyz)!r}); import edgekit.runtime.model as m; print(m.__file__)"
    assert str(pyz) in run("-c", code, cwd=tmp_path).stdout
