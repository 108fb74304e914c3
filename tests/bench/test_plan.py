"""What is to be measured, decided before anything is sent."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from edgekit.bench.plan import make_plan, parse_duration, store_name
from edgekit.errors import ModelFileError, UsageError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("5m", 300),
        ("5min", 300),
        ("1h30m", 5400),
        ("90", 90),
        ("0.5", 0.5),
        ("500ms", 0.5),
        (" 2 M ", 120),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "5x", "5m3", "-3s", "0s", "0", "1e3", "5,5s", "five", "3s 4"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_duration(text)
    assert "30s" in caught.value.hint


def test_a_file(models: Path) -> None:
    plan = make_plan(models / "convs.tflite", duration_s=12.0, threads=3, seed=7, device="my board/2")
    data = (models / "convs.tflite").read_bytes()
    assert re.fullmatch(r"\d{8}T\d{6}Z-convs-my_board_2", plan.id)
    request = json.loads(json.dumps(plan.request()))
    digest = hashlib.sha256(data).hexdigest()
    assert request["model"] == {
        "name": "convs",
        "kind": "tflite",
        "sha256": digest,
        "size_bytes": len(data),
        "macs": 2359296,
        "path": f"../../blobs/{digest}",
    }
    assert store_name(plan.model) == f"blobs/{digest}"
    assert (request["duration_s"], request["threads"], request["seed"]) == (12.0, 3, 7)
    assert request["float_model"] is None
    assert request["golden"] is None
    assert str(models) not in json.dumps(request)


def test_a_bundle(bundle: Callable[..., Path]) -> None:
    folder = bundle()
    plan = make_plan(folder, with_float=True)
    assert (plan.name, plan.kind) == ("dense", "bundle")
    assert plan.float_model is not None
    assert plan.float_model.path == folder / "float.tflite"
    assert plan.golden_names == {"x": "image"}
    assert plan.request()["golden"]["names"] == {"x": "image"}
    assert make_plan(folder).float_model is None


def test_sources_that_cannot_be_measured(bundle: Callable[..., Path], models: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="does not exist"):
        make_plan(tmp_path / "none.tflite")
    (tmp_path / "empty.tflite").write_bytes(b"")
    with pytest.raises(ModelFileError, match="is empty"):
        make_plan(tmp_path / "empty.tflite")
    (tmp_path / "cut.tflite").write_bytes((models / "convs.tflite").read_bytes()[:5000])
    with pytest.raises(ModelFileError, match="cut.tflite: .*truncated"):
        make_plan(tmp_path / "cut.tflite")
    with pytest.raises(UsageError, match="--with-float needs a bundle"):
        make_plan(models / "convs.tflite", with_float=True)
    folder = bundle()
    (folder / "float.tflite").unlink()
    with pytest.raises(UsageError, match="no float.tflite"):
        make_plan(folder, with_float=True)
    (folder / "model.tflite").write_bytes((models / "islands.tflite").read_bytes())
    with pytest.raises(ModelFileError) as caught:
        make_plan(folder)
    assert caught.value.code == "bundle_damaged"
    (folder / "model.tflite").rename(folder / "rejected.tflite")
    with pytest.raises(ModelFileError) as caught:
        make_plan(folder)
    assert caught.value.code == "model_rejected"


def test_numbers_that_make_no_sense(models: Path) -> None:
    for duration_s in (0.0, -1.0, float("nan")):
        with pytest.raises(UsageError, match="measures nothing"):
            make_plan(models / "convs.tflite", duration_s=duration_s)
    with pytest.raises(UsageError, match="threads"):
        make_plan(models / "convs.tflite", threads=-1)
