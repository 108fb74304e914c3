"""Workers of the front ends for all open cases."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from open_cases import Front, front


@pytest.fixture(scope="session", params=("onnx2tf", None), ids=("onnx2tf", "all"))
def route(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """The first front end alone, and all that read ONNX; skips where one is not installed."""
    numbers = itertools.count()

    def folder(name: str) -> Path:
        return tmp_path_factory.mktemp(f"{name}{next(numbers)}")

    opened = front(request.param, folder)
    yield opened
    for session in opened.sessions.values():
        session.close()
