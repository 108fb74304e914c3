"""Two real models in turns on this machine."""

from __future__ import annotations

from pathlib import Path

from edgekit.bench.compare import compare_models
from edgekit.bench.runs import read_result


def test_a_large_model_is_slower_than_a_small_one(models: Path, home: Path, tmp_path: Path) -> None:
    run, found = compare_models(
        models / "dense_int8.tflite", models / "convs.tflite", duration_s=3.0, threads=1, runs_dir=tmp_path / "runs"
    )
    assert set(read_result(run)["variants"]) == {"model", "other"}
    assert (found.a, found.b, found.how) == ("dense_int8", "convs", "in turns")
    assert found.contrast.units >= 12
    assert found.contrast.ratio > 2.0  # a hundred times the multiplications
    assert found.contrast.verdict in ("slower", "undecided")
