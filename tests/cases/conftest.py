"""One worker of each front end for all open cases."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from open_cases import Front, front


@pytest.fixture(scope="session", params=("onnx2tf", "tensorflow"))
def route(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """Each front end that reads ONNX, alone; skips where it is not installed."""
    numbers = itertools.count()

    def folder(name: str) -> Path:
        return tmp_path_factory.mktemp(f"{name}{next(numbers)}")

    opened = front(request.param, folder)
    yield opened
    opened.session.close()
