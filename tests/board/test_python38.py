"""The board's code runs on Python 3.8: its own tests are run there, with tflite-runtime as the interpreter."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BOARD_TESTS = ("tests/runtime", "tests/agent")


@pytest.mark.timeout(900)
def test_runtime_and_agent_under_python_38() -> None:
    python = os.environ.get("EDGEKIT_BOARD_PYTHON")
    if not python:
        pytest.skip("no Python 3.8 for the board's code: tools/test makes one where python3.8 is found")
    version = subprocess.run(
        [python, "-c", "import sys; print(sys.version_info[:2])"], capture_output=True, text=True, check=True
    )
    assert version.stdout.strip() == "(3, 8)"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *BOARD_TESTS]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout and " failed" not in done.stdout
