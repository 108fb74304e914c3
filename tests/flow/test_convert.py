"""Whole conversions by the library: names kept, gates that fail, faults that leave nothing behind."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networks
import numpy as np
import pytest
from bundles import Bundle, convert
from onnx import helper

from edgekit import flow
from edgekit.calibrate.sources import DataOptions
from edgekit.errors import DataError, OutputError, UsageError
from edgekit.quantize import litert, recipe


def request(folder: Path, model: Any, data: dict[str, Any], **given: Any) -> flow.ConvertRequest:
    """The network and its data saved into ``folder``, to be converted to ``folder/out/m.bundle``."""
    folder.mkdir(exist_ok=True)
    np.savez(folder / "d.npz", **data)
    given.setdefault("recipe", recipe.load("full-int8"))
    path = networks.save(model, folder / "net.onnx")
    return flow.ConvertRequest(model=path, data=str(folder / "d.npz"), out=folder / "out" / "m.bundle", **given)


def classifier(folder: Path, **given: Any) -> flow.ConvertRequest:
    return request(folder, networks.small_classifier(), {"x": networks.normal(80, 3, 8, 8)}, **given)


def test_outputs_of_equal_shape_keep_their_names(tmp_path: Path, frontend: str) -> None:
    """o6: declared as zeta, alpha, mid; by name and by position, float and int8, in the files read on their own."""
    asked = request(
        tmp_path,
        networks.three_outputs(),
        {"x": np.random.default_rng(0).uniform(-4, 4, (60, 1, 4)).astype(np.float32)},
        frontend=frontend,
    )
    bundle = flow.convert(asked).bundle
    manifest = json.loads((bundle / "manifest.json").read_text())
    assert [entry["name"] for entry in manifest["outputs"]] == ["zeta", "alpha", "mid"]
    x = np.full((1, 4), 2, np.float32)
    floats = networks.Interpreter(bundle / "float.tflite")
    assert [float(value[0, 0]) for value in floats.run(x)] == [3.0, 4.0, -1.0]
    named = floats.by_name(x=x)
    assert {name: float(value[0, 0]) for name, value in named.items()} == {"zeta": 3.0, "alpha": 4.0, "mid": -1.0}

    int8 = networks.Interpreter(bundle / "model.tflite")
    integers = networks.to_integers(x, int8.inputs[0])
    steps = [detail["quantization"][0] for detail in int8.outputs]
    reals = [networks.to_real(value, detail) for value, detail in zip(int8.run(integers), int8.outputs, strict=True)]
    for real, truth, step in zip(reals, (3.0, 4.0, -1.0), steps, strict=True):
        assert real[0, 0] == pytest.approx(truth, abs=1.5 * step + 4 / 127)
    by_name = int8.by_name(x=integers)
    for position, name in enumerate(("zeta", "alpha", "mid")):
        assert np.array_equal(by_name[name], int8.run(integers)[position])


def test_inputs_of_equal_shape_are_told_apart_by_name(tmp_path: Path, frontend: str) -> None:
    """Declared as right, left; y = left - 3 right; the data give them in the other order."""
    left, right = networks.normal(60, 1, 6, seed=1), networks.normal(60, 1, 6, seed=2)
    asked = request(tmp_path, networks.two_inputs(), {"left": left, "right": right}, frontend=frontend)
    bundle = flow.convert(asked).bundle
    manifest = json.loads((bundle / "manifest.json").read_text())
    assert [entry["name"] for entry in manifest["inputs"]] == ["right", "left"]
    floats = networks.Interpreter(bundle / "float.tflite")
    np.testing.assert_allclose(floats.by_name(left=left[0], right=right[0])["y"], left[0] - 3 * right[0], rtol=1e-5)
    np.testing.assert_allclose(floats.run(right[0], left[0])[0], left[0] - 3 * right[0], rtol=1e-5)
    int8 = networks.Interpreter(bundle / "model.tflite")
    integers = [networks.to_integers(v, d) for v, d in zip((right[0], left[0]), int8.inputs, strict=True)]
    got = networks.to_real(int8.by_name(right=integers[0], left=integers[1])["y"], int8.outputs[0])
    assert np.abs(got - (left[0] - 3 * right[0])).max() < 0.5 < np.abs(got - (right[0] - 3 * left[0])).max()


def test_indices_stay_integers_and_odd_names_survive(tmp_path: Path, frontend: str) -> None:
    """o8: ``ids:0`` int64 and ``feat/x`` float to ``out/y:0``; only the float input gets a scale."""
    generator = np.random.default_rng(0)
    features = generator.uniform(-2, 2, (80, 1, 8)).astype(np.float32)  # bounded: held-out samples stay in the range
    data = {"ids:0": generator.integers(0, 50, (80, 1, 6)), "feat/x": features}
    asked = request(tmp_path, networks.indices_and_features(), data, frontend=frontend, allow_undecided=True)
    result = flow.convert(asked)
    inputs = {entry["name"]: entry for entry in result.manifest["inputs"]}
    assert set(inputs) == {"ids:0", "feat/x"} and [o["name"] for o in result.manifest["outputs"]] == ["out/y:0"]
    assert inputs["ids:0"]["source_dtype"] == "int64" and inputs["ids:0"]["dtype"] in ("int32", "int64")
    assert inputs["ids:0"]["quant"] is None and inputs["feat/x"]["dtype"] == "int8"
    sample = {name: values[0] for name, values in data.items()}
    truth = networks.run_onnx(asked.model, sample)["out/y:0"]
    floats = networks.Interpreter(result.bundle / "float.tflite")
    given = {name: value.astype(d["dtype"]) for (name, value), d in zip(sample.items(), floats.inputs, strict=True)}
    np.testing.assert_allclose(floats.by_name(**given)["out/y:0"], truth, atol=1e-5)
    quality = result.manifest["verification"]["int8"]["outputs"][0]
    assert quality["sqnr_db"] > 30


@pytest.mark.parametrize("shift", [0.0, -10.0], ids=["values around zero", "all values negative"])
def test_padding_before_a_max_pool_does_not_widen_the_range(tmp_path: Path, any_frontend: str, shift: float) -> None:
    """o12: the pad value is the lowest float there is, and int8 stays close all the same."""
    model = networks.padded_max_pool(shift=shift)
    asked = request(tmp_path, model, {"x": networks.normal(64, 3, 16, 16)}, frontend=any_frontend)
    given = recipe.load("full-int8")
    result = flow.convert(asked)
    verification = result.manifest["verification"]
    assert verification["parity"]["passed"] and given.gates.parity_min_db == 80.0
    assert verification["int8"]["outputs"][0]["sqnr_db"] > 35
    ranges = result.manifest["calibration"]["ranges"]
    assert all(abs(bound) < 1e4 for entry in ranges.values() for bound in entry.values())


SINE = helper.make_node("Sin", ["c"], ["r"])


def test_an_operator_without_integer_form_fails_the_gate_by_name(tmp_path: Path, any_frontend: str) -> None:
    asked = request(
        tmp_path, networks.between_convolutions(SINE), {"x": networks.normal(60, 3, 8, 8)}, frontend=any_frontend
    )
    result = flow.convert(asked)
    assert not result.passed
    assert (result.bundle / "rejected.tflite").is_file() and not (result.bundle / "model.tflite").exists()
    gate = next(g for g in result.manifest["verification"]["gates"] if g["name"] == "full-integer")
    assert gate["verdict"] == "failed" and "SIN x1" in gate["message"]
    assert "no int8 form of SIN" in gate["message"]
    audit = result.manifest["verification"]["audit"]
    assert not audit["full_integer"] and {"SIN"} <= {entry["op"] for entry in audit["float_operators"]}
    assert "rejected.tflite" in result.manifest["files"] and "model.tflite" not in result.manifest["files"]


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_the_source_is_only_read(tmp_path: Path, frontend: str, samples: Path) -> None:
    """Neither its bytes nor its time change; front ends get a copy of their own."""
    source = tmp_path / "ein Ordner mit Ümlaut" / "net.onnx"
    source.parent.mkdir()
    shutil.copy(samples / "fashion_silu.onnx", source)
    os.utime(source, ns=(1_000_000_000, 1_000_000_000))
    source.chmod(0o444)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    data = (np.load(samples / "test.npz")["image"][:40].astype(np.float32) - 127.5) / 127.5
    np.savez(tmp_path / "d.npz", image=data)
    convert(source, tmp_path / "d.npz", source.parent / "b", frontend=frontend, allow_undecided=True)
    assert hashlib.sha256(source.read_bytes()).hexdigest() == digest
    assert source.stat().st_mtime_ns == 1_000_000_000
    assert listing(source.parent)[-1] == "net.onnx"


def test_a_fault_in_the_middle_leaves_the_earlier_bundle(
    tmp_path: Path, any_frontend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = classifier(tmp_path, force=True, frontend=any_frontend)
    asked.out.mkdir(parents=True)
    (asked.out / "manifest.json").write_text(json.dumps({"schema": 1, "edgekit": "0.1.0", "files": {}}))
    before = listing(tmp_path)

    def broken(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(litert, "quantize", broken)
    with pytest.raises(KeyboardInterrupt):
        flow.convert(asked)
    assert listing(tmp_path) == before


def test_the_earlier_bundle_is_replaced_by_a_finished_one(tmp_path: Path, any_frontend: str) -> None:
    asked = classifier(tmp_path, force=True, frontend=any_frontend, allow_undecided=True)
    asked.out.mkdir(parents=True)
    (asked.out / "manifest.json").write_text(json.dumps({"schema": 1, "edgekit": "0.1.0", "files": {}}))
    (asked.out / "stale.txt").write_text("of the earlier one")
    flow.convert(asked)
    assert "stale.txt" not in os.listdir(asked.out) and "model.tflite" in os.listdir(asked.out)
    assert os.listdir(asked.out.parent) == ["m.bundle"]


def test_a_disk_that_fills_up_on_the_way(tmp_path: Path, any_frontend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One MB, real: the check before the work is made to believe in more."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    small = tmp_path / "small"
    small.mkdir()
    import subprocess

    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"no small file system can be mounted: {mounted.stderr.decode().strip()}")
    try:
        monkeypatch.setattr(flow.folder.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 0, 10**9))  # type: ignore[attr-defined]
        model = networks.small_classifier(classes=50_000)  # 1.4 MB of weights
        asked = request(tmp_path, model, {"x": networks.normal(40, 3, 8, 8)}, frontend=any_frontend)
        with pytest.raises(OutputError, match="no space left in") as caught:
            flow.convert(flow.ConvertRequest(**{**asked.__dict__, "out": small / "deep" / "m.bundle"}))
        assert caught.value.code == "no_space"
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_plan_says_what_would_happen_and_writes_nothing(tmp_path: Path, any_frontend: str) -> None:
    asked = classifier(tmp_path, calibration_limit=30)
    before = listing(tmp_path)
    plan = flow.plan(asked)
    assert (plan.calibration_count, plan.evaluation_count, plan.labelled) == (30, 50, False)
    assert plan.frontends[0] == any_frontend and plan.recipe == "full-int8"
    assert [spec.name for spec in plan.inputs] == ["x"] and listing(tmp_path) == before


def test_the_same_data_cannot_calibrate_and_judge(tmp_path: Path) -> None:
    asked = classifier(tmp_path)
    (tmp_path / "link.npz").symlink_to(asked.data)
    for again in (asked.data, str(tmp_path / "link.npz")):
        with pytest.raises(DataError, match="--data and --eval-data are the same") as caught:
            flow.plan(flow.ConvertRequest(**{**asked.__dict__, "eval_data": again}))
        assert caught.value.code == "data_overlap"


def test_class_names_are_counted(tmp_path: Path, any_frontend: str) -> None:
    asked = classifier(tmp_path, options=DataOptions(class_names=("a", "b", "c")), frontend=any_frontend)
    with pytest.raises(DataError, match="--class-names holds 3 names, and output 'y' has 10 classes"):
        flow.convert(asked)
    assert not asked.out.parent.exists()


def test_a_front_end_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no front end named 'onx2tf'") as caught:
        flow.plan(classifier(tmp_path, frontend="onx2tf"))
    assert 'did you mean "onnx2tf"?' in caught.value.hint


def test_stages_are_told_in_order(fashion: Callable[[str], Bundle], any_frontend: str) -> None:
    assert fashion(any_frontend).stages == (
        "pre-flight",
        "read the model",
        "open the data",
        "run the source model",
        f"convert to float ({any_frontend})",
        "check parity",
        "rewrite",
        "calibrate",
        "check the data",
        "split heads",
        "quantize",
        "correct",
        "audit",
        "evaluate",
        "write the bundle",
    )
