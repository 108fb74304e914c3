"""The agent's code that a board keeps once it compiled it: used, made anew when it is wrong, done without where it cannot be written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edgekit.push.pyz import agent_name, build_agent

COUNT_COMPILED = """
import runpy, sys
sources = []
sys.addaudithook(lambda event, data: sources.append(data[1]) if event == "compile" and "edgekit" in str(data[1]) else None)
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    print(len(sources), file=sys.stderr)
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home of pi’s"
    folder.mkdir()
    (folder / agent_name()).write_bytes(build_agent())
    return folder


def contact(home: Path) -> tuple[dict[str, Any], int]:
    """The answer to an errand, and how many of the agent's modules were compiled for it."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [
        sys.executable,
        "-S",
        "-c",
        COUNT_COMPILED,
        str(home / agent_name()),
        "do",
        "contact",
        "--home",
        str(home),
    ]
    done = subprocess.run(command, env=environment, input="{}", capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout), int(done.stderr.splitlines()[-1])


def kept(home: Path) -> Path:
    (path,) = home.glob("agent-*.code")
    return path


def test_only_the_first_errand_compiles(home: Path) -> None:
    first, compiled = contact(home)
    again, compiled_again = contact(home)
    assert compiled >= 4
    assert compiled_again == 0
    assert again.keys() == first.keys()
    assert again["missing"] == []
    assert not list(home.glob(".agent-*"))


@pytest.mark.parametrize("harm", ["half", "empty", "one bit", "zeros", "nothing but a header"])
def test_wrong_code_is_noticed_and_made_anew(home: Path, harm: str) -> None:
    contact(home)
    good = kept(home).read_bytes()
    middle = len(good) // 2
    bad = {
        "half": good[:middle],
        "empty": b"",
        "one bit": good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :],
        "zeros": bytes(len(good)),
        "nothing but a header": good[:4],
    }[harm]
    kept(home).write_bytes(bad)
    answer, compiled = contact(home)
    assert answer["missing"] == []
    assert compiled >= 4
    assert contact(home)[1] == 0


def test_code_of_another_file_is_not_used(home: Path) -> None:
    contact(home)
    os.utime(home / agent_name(), (1, 1))
    assert contact(home)[1] >= 4
    assert contact(home)[1] == 0


def test_a_folder_that_cannot_be_written_only_costs_time(home: Path) -> None:
    (home / "blobs").mkdir()
    # A folder in the place of the file: root may write everywhere, so taking the right away would prove nothing.
    blocked = home / f"{agent_name().removesuffix('.pyz')}.{sys.implementation.cache_tag}.code"
    blocked.mkdir()
    for _ in range(2):
        answer, compiled = contact(home)
        assert answer["missing"] == []
        assert compiled >= 4
    assert not list(home.glob(".agent-*"))
    assert blocked.is_dir()


def test_an_error_shows_the_line_of_the_source(home: Path) -> None:
    contact(home)
    command = [sys.executable, "-S", str(home / agent_name()), "do", "no-such-errand", "--home", str(home)]
    done = subprocess.run(command, input="{}", capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "ERRANDS[what](home, request)" in done.stderr
