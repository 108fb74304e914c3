"""Conversions in tests: the sample networks, front ends that may be missing, and what came out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "sample_models"
ONNX_FRONTENDS = ("onnx2tf", "tensorflow")


@dataclass(frozen=True)
class Bundle:
    """A finished bundle and what it says of itself."""

    path: Path
    manifest: dict[str, Any]
    stages: tuple[str, ...]

    @property
    def delivered(self) -> Path:
        """The int8 file, passed or not."""
        found = [self.path / name for name in ("model.tflite", "rejected.tflite") if (self.path / name).is_file()]
        assert len(found) == 1
        return found[0]


def require_frontend(name: str) -> None:
    """Skips the test when the front end is not installed."""
    from edgekit.intake import frontends

    if name not in {found.name for found in frontends.installed()}:
        pytest.skip(f"the front end {name} is not installed: edgekit frontend add {name}")


def convert(model: Path, data: str | Path, out: Path, **given: Any) -> Bundle:
    """``edgekit convert`` by the library, with the recipe full-int8 unless another one is given."""
    from edgekit import flow
    from edgekit.quantize import recipe

    given.setdefault("recipe", recipe.load("full-int8"))
    result = flow.convert(flow.ConvertRequest(model=model, data=str(data), out=out, **given))
    manifest = json.loads((result.bundle / "manifest.json").read_text())
    return Bundle(result.bundle, manifest, tuple(record.name for record in result.stages))
