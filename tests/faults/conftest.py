"""A user's folder in which a call fails, checked as a whole: words, exit code, JSON, and what the folder looks like afterwards."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Said, run


@dataclass(frozen=True)
class Place:
    """A folder with a model and data; ``home`` holds traces and temporary files, apart from it."""

    folder: Path
    home: Path

    def npz(self, **arrays: Any) -> str:
        """Data as a file of this folder."""
        np.savez(self.folder / "d.npz", **arrays)
        return "d.npz"

    def run(self, *line: str | Path, **env: str) -> Said:
        """The call, with temporary files below ``home``."""
        where = {"TMPDIR": str(self.home), "XDG_STATE_HOME": str(self.home / "state"), **env}
        return run(*line, cwd=self.folder, env=where)

    def refused(self, *line: str | Path, exit_code: int, code: str, **env: str) -> str:
        """Message and hint of a call that must fail so, in words and in JSON, and must leave the folder and ``home`` as they were."""
        before = self.state()
        plain = self.run(*line, "--quiet", **env)
        assert (plain.exit_code, plain.out) == (exit_code, ""), plain
        said = self.run(*line, "--json", **env)
        assert (said.exit_code, said.error["code"], said.err) == (exit_code, code, ""), said
        assert plain.err.splitlines()[0] == f"edgekit: {said.error['message'].splitlines()[0]}"
        assert said.error["hint"] and plain.err.rstrip().endswith(said.error["hint"])
        assert self.state() == before
        assert list(self.home.iterdir()) == []
        return f"{said.error['message']} -> {said.error['hint']}"

    def state(self) -> dict[str, tuple[str, int]]:
        """Content and time of every file of the folder, and which folders there are."""
        return {
            str(path.relative_to(self.folder)): (
                hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder",
                path.stat().st_mtime_ns if path.is_file() else 0,
            )
            for path in self.folder.rglob("*")
        }


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """An empty user's folder."""
    found = Place(tmp_path / "user's folder", tmp_path / "home")
    found.folder.mkdir()
    found.home.mkdir()
    yield found
