"""A small seeded sample of ``tools/fuzz.py``: damaged files end in an edgekit error of exit code 2 or 3, or are read."""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
FORMATS = ("onnx", "tflite", "keras", "h5", "savedmodel", "pt2", "npz", "npy")


@pytest.fixture(scope="module")
def fuzz() -> ModuleType:
    spec = importlib.util.spec_from_file_location("edgekit_tools_fuzz", ROOT / "tools" / "fuzz.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def options(out: Path, kind: str, **given: object) -> argparse.Namespace:
    base = {"out": out, "formats": kind, "light": 60, "whole": 0, "whole_bytes": 400_000, "seed": 1, "seeds": []}
    return argparse.Namespace(**{**base, **given})


@pytest.mark.parametrize("kind", FORMATS)
def test_damaged_files_are_refused_or_read(fuzz: ModuleType, kind: str, tmp_path: Path) -> None:
    assert fuzz.run(options(tmp_path, kind)) == 0
    entries = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert len(entries) == 60
    assert {entry["outcome"] for entry in entries} <= {"ok", "refused"}
    assert all(entry["message"] for entry in entries if entry["outcome"] == "refused")


def test_a_run_goes_on_where_it_ended(fuzz: ModuleType, tmp_path: Path) -> None:
    fuzz.run(options(tmp_path, "npy", light=5))
    first = (tmp_path / "results.jsonl").read_text()
    fuzz.run(options(tmp_path, "npy", light=8))
    assert (tmp_path / "results.jsonl").read_text().startswith(first)
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 8


def test_a_case_can_be_made_again_by_its_number(fuzz: ModuleType) -> None:
    seeds = fuzz.seeds_of("tflite", [])
    once, again = (list(fuzz.cases("tflite", 20, 4, seeds)) for _ in range(2))
    assert once == again
    assert len({data for *_, data in once}) > 15


def test_bad_ends_are_told_from_good_ones(fuzz: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that raises, dies or hangs is what the tool is there to find."""
    from edgekit.errors import EdgekitError, ModelFileError

    def ending(error: BaseException) -> str:
        def light(_: dict[str, object]) -> str:
            raise error

        monkeypatch.setattr(fuzz, "_light", light)
        return str(fuzz._judged({"whole": False})["outcome"])

    assert ending(ModelFileError("it is damaged")) == "refused"
    assert ending(EdgekitError("a fault of edgekit")) == "BAD"
    assert ending(ModelFileError("")) == "BAD"  # an error without words helps nobody
    assert ending(RecursionError()) == "BAD"
    for body, code in (("import os; os.abort()", "died"), ("import time; time.sleep(60)", "hang")):
        script = tmp_path / "worker.py"
        script.write_text(f"import sys\nsys.stdin.readline()\n{body}\n")
        monkeypatch.setattr(fuzz, "__file__", str(script))
        worker = fuzz.Worker(tmp_path / "log")
        assert worker.ask({"path": ""}, 3.0 if code == "hang" else 30.0)["code"] == code
        worker.close()


def test_restructured_models_still_parse(fuzz: ModuleType) -> None:
    import onnx

    data = (ROOT / "sample_models" / "fashion_relu6.onnx").read_bytes()
    for number in range(30):
        onnx.ModelProto.FromString(fuzz.restructured(data, random.Random(number)))
