"""The runtime's tests need numpy and one TFLite interpreter, on any Python from 3.8 on."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.runtime.backend import available_backends

collect_ignore = ["models"]


@pytest.fixture(scope="session", autouse=True)
def _interpreter() -> None:
    if not available_backends():
        pytest.skip("no TFLite interpreter is installed (pip install ai-edge-litert)")


@pytest.fixture(scope="session")
def models() -> Path:
    """The folder with the small models; what each computes stands in its make_models.py."""
    return Path(__file__).parent / "models"
