"""The int8 engine in its child process: refusals, deaths and time that runs out become one sentence."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import fake_frontends
import networks
import numpy as np
import pytest
from bundles import Bundle

from edgekit import child
from edgekit.calibrate.ranges import Ranges
from edgekit.errors import ConversionError, UnsupportedModelError
from edgekit.intake import tflite
from edgekit.quantize import litert

RANGES = {"x": (-4.0, 4.0), "zeta": (-3.0, 5.0), "alpha": (-8.0, 8.0), "mid": (-7.0, 1.0)}


def test_a_file_from_ranges_alone(tmp_path: Path) -> None:
    """Scales are (high - low) / 255 and nothing of the engine's own; the outputs stay in their order."""
    model = fake_frontends.three_outputs(tmp_path / "float.tflite")
    path = litert.quantize(model, Ranges(RANGES, 1, {}), work=tmp_path)
    interpreter = networks.Interpreter(path)
    for detail, name in zip((*interpreter.inputs, *interpreter.outputs), ("x", "zeta", "alpha", "mid"), strict=True):
        low, high = RANGES[name]
        assert detail["name"] == name and detail["dtype"] == np.int8
        assert detail["quantization"][0] == pytest.approx((high - low) / 255, rel=1e-6)


def test_what_the_engine_refuses(tmp_path: Path) -> None:
    model = fake_frontends.three_outputs(tmp_path / "float.tflite")
    with pytest.raises(UnsupportedModelError, match="litert-quantizer refuses the model") as caught:
        litert.quantize(model, Ranges({"x": (-4.0, 4.0)}, 1, {}), work=tmp_path)  # no range for the outputs
    assert caught.value.code == "quantize_failed" and caught.value.hint and "Traceback" in caught.value.details["trace"]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            "import os, signal; print('last words', flush=True); os.kill(os.getpid(), signal.SIGABRT)",
            "was killed by SIGABRT and gave no result",
        ),
        ("print('last words')", "ended with status 0 and gave no result"),
        ("import time; print('last words', flush=True); time.sleep(60)", "did not finish within 1 s"),
    ],
    ids=["dies", "ends without a result", "hangs"],
)
def test_an_engine_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str
) -> None:
    monkeypatch.setattr(child, "command", lambda *_: [sys.executable, "-c", script])
    model = fake_frontends.three_outputs(tmp_path / "float.tflite")
    with pytest.raises(ConversionError, match=said) as caught:
        litert.quantize(model, Ranges(RANGES, 1, {}), work=tmp_path, timeout_s=1.0)
    assert type(caught.value) is ConversionError and caught.value.exit_code == 3 and caught.value.hint


def test_weights_lie_where_the_schema_wants_them(fashion: Any, any_frontend: str) -> None:
    """On 16-byte boundaries of the file: some accelerators read them in place."""
    bundle: Bundle = fashion(any_frontend)
    for path in (bundle.delivered, bundle.path / "float.tflite"):
        content = path.read_bytes()
        model = tflite.read(path)
        large = [bytes(b.data) for b in model.buffers if b.data is not None and len(b.data) > 64]
        assert large
        for data in large:
            assert content.index(data) % 16 == 0
