"""The recipe float32: a verified float bundle, with made-up inputs where no data are given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import networks
import numpy as np
import pytest
from command_line import run
from tiny_models import TinyTflite, shared

from edgekit import flow
from edgekit.bench.plan import make_plan
from edgekit.calibrate.sources import DataOptions
from edgekit.calibrate.synthetic import COUNT, SyntheticData
from edgekit.errors import ParityError, RecipeError, UsageError
from edgekit.intake import tflite
from edgekit.quantize import recipe
from edgekit.report.bundle_view import bundle_chapter
from edgekit.runtime import Model
from edgekit.values import IoSpec, Preprocessing

FLOAT = recipe.load("float32")


def small_tflite(folder: Path) -> Path:
    """``y`` = ``x`` W + b, and ``n`` = -``k`` of integers."""
    tiny = TinyTflite()
    x, k = tiny.tensor("x", (1, 6)), tiny.tensor("k", (1, 3), "int32")
    weights = tiny.tensor("w", (4, 6), data=networks.normal(4, 6, seed=1))
    bias = tiny.tensor("b", (4,), data=networks.normal(4, seed=2))
    y, n = tiny.tensor("y", (1, 4)), tiny.tensor("n", (1, 3), "int32")
    tiny.operator("FULLY_CONNECTED", [x, weights, bias], [y])
    tiny.operator("NEG", [k], [n])
    path = folder / "small.tflite"
    tflite.write(tiny.model(tiny.graph([x, k], [y, n])), path)
    return path


def converted(model: Path, folder: Path, data: str | None = None, **given: Any) -> flow.ConvertResult:
    given.setdefault("recipe", FLOAT)
    return flow.convert(flow.ConvertRequest(model=model, data=data, out=folder / "f.bundle", **given))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> flow.ConvertResult:
    folder = tmp_path_factory.mktemp("float32")
    return converted(small_tflite(folder), folder)


def test_the_bundle_holds_the_float_model_and_says_so(small: flow.ConvertResult) -> None:
    assert small.passed
    names = sorted(path.name for path in small.bundle.iterdir())
    assert names == ["golden.npz", "manifest.json", "model.tflite", "report.html", "report.json"]
    manifest = json.loads((small.bundle / "manifest.json").read_text())
    verification = manifest["verification"]
    assert manifest["calibration"] is None and verification["int8"] is None and verification["accuracy"] is None
    assert [gate["name"] for gate in verification["gates"]] == ["parity"] and verification["passed"] is True
    assert verification["parity"]["samples"] == COUNT
    assert verification["parity"]["data"] == {"source": "synthetic inputs, seed 0", "synthetic": True}
    assert verification["audit"]["full_integer"] is False
    assert {operator["reason"] for operator in verification["audit"]["float_operators"]} == {"nothing was quantised"}
    assert [spec["dtype"] for spec in manifest["inputs"]] == ["float32", "int32"]
    assert all(spec["quant"] is None for spec in manifest["inputs"] + manifest["outputs"])


def test_golden_pairs_are_the_networks_own_arithmetic(small: flow.ConvertResult) -> None:
    with np.load(small.bundle / "golden.npz") as golden:
        assert sorted(golden) == ["float/n", "float/y", "input/k", "input/x"]
        weights, bias = networks.normal(4, 6, seed=1), networks.normal(4, seed=2)
        np.testing.assert_allclose(
            golden["float/y"][:, 0], golden["input/x"][:, 0] @ weights.T + bias, rtol=1e-4, atol=1e-5
        )
        np.testing.assert_array_equal(golden["float/n"], -golden["input/k"])


def test_the_runtime_and_the_bench_take_it(small: flow.ConvertResult) -> None:
    with Model.open(small.bundle) as model:
        result = model({"x": np.ones((1, 6), np.float32), "k": np.int32([[1, 0, 1]])})
    weights, bias = networks.normal(4, 6, seed=1), networks.normal(4, seed=2)
    np.testing.assert_allclose(result["y"].reshape(-1), weights.sum(axis=1) + bias, rtol=1e-5)
    plan = make_plan(small.bundle)
    assert plan.kind == "bundle" and plan.golden is not None and plan.float_model is None
    with pytest.raises(UsageError, match="no float.tflite"):
        make_plan(small.bundle, with_float=True)


def test_the_page_shows_what_is_there(small: flow.ConvertResult) -> None:
    chapter = bundle_chapter(json.loads((small.bundle / "report.json").read_text()))
    assert chapter.table.columns == ("float",) and [row.key for row in chapter.table.rows][0] == "size"
    ids = [section.id for section in chapter.sections]
    assert "parity" in ids and not {"int8", "accuracy", "calibration"} & set(ids)
    parity = next(section for section in chapter.sections if section.id == "parity")
    assert any("made up" in paragraph for paragraph in parity.paragraphs)
    operators = next(section for section in chapter.sections if section.id == "operators")
    assert operators.paragraphs == ("2 operators, nothing was quantised.",) and operators.grids == ()
    assert [advice.key for advice in chapter.advice] == ["not_quantised", "bench"]
    assert not any("--with-float" in advice.command for advice in chapter.advice)


def test_equal_calls_give_equal_bundles(small: flow.ConvertResult, tmp_path: Path) -> None:
    again = converted(small_tflite(tmp_path), tmp_path)
    for name in ("model.tflite", "manifest.json", "golden.npz"):
        assert (again.bundle / name).read_bytes() == (small.bundle / name).read_bytes()


def test_real_data_are_used_when_given(tmp_path: Path) -> None:
    x, k = networks.normal(30, 1, 6), np.arange(90, dtype=np.int32).reshape(30, 1, 3)
    np.savez(tmp_path / "d.npz", x=x, k=k)
    manifest = converted(small_tflite(tmp_path), tmp_path, str(tmp_path / "d.npz")).manifest
    assert manifest["verification"]["parity"]["data"] == {"source": "d.npz", "synthetic": False}
    with np.load(tmp_path / "f.bundle" / "golden.npz") as golden:
        assert all(any(np.array_equal(row, given) for given in k) for row in golden["input/k"])


def test_a_float_model_that_differs_is_not_delivered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from edgekit.rewrite import prune

    def spoilt(model: Any) -> tuple[str, ...]:
        for buffer in model.buffers:
            if buffer.data is not None and buffer.data.size == 4 * 24:
                buffer.data = (buffer.data.view(np.float32) * np.float32(1.01)).view(np.uint8)
        return ()

    monkeypatch.setattr(prune, "apply", spoilt)
    with pytest.raises(ParityError, match="does not equal the source: output 'y'"):
        converted(small_tflite(tmp_path), tmp_path)
    assert not (tmp_path / "f.bundle").exists()


@pytest.mark.parametrize(
    ("given", "option"),
    [
        ({"eval_data": "e.npz"}, "--eval-data"),
        ({"eval_labels": "label"}, "--labels"),
        ({"calibration_limit": 5}, "--calibration"),
        ({"evaluation_limit": 5}, "--evaluation"),
    ],
)
def test_options_that_nothing_would_use_are_refused(given: dict[str, Any], option: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"nothing is calibrated or judged with {option}"):
        converted(small_tflite(tmp_path), tmp_path, **given)


def test_a_recipe_that_calibrates_asks_for_data(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="full-int8 calibrates") as caught:
        converted(small_tflite(tmp_path), tmp_path, recipe=recipe.load("full-int8"))
    assert caught.value.code == "data_missing" and "--recipe float32" in caught.value.hint


def test_synthetic_inputs_fit_and_come_from_the_seed() -> None:
    specs = [
        IoSpec("f", (2, 3), "float16", tensor="f", shape=(2, 3), dtype="float32"),
        IoSpec("i", (50,), "int64", tensor="i", shape=(50,), dtype="int32"),
        IoSpec("b", (), "bool", tensor="b", shape=(), dtype="bool"),
    ]
    data = SyntheticData(specs, seed=3)
    samples = list(data.iterate())
    assert len(data) == len(samples) == 16
    for sample in samples:
        assert {name: (value.shape, value.dtype.name) for name, value in sample.items()} == {
            "f": ((2, 3), "float16"),
            "i": ((50,), "int64"),
            "b": ((), "bool"),
        }
        assert set(sample["i"]) == {0, 1}
    (again,) = SyntheticData(specs, seed=3).iterate([5])
    np.testing.assert_array_equal(again["f"], samples[5]["f"])
    (other,) = SyntheticData(specs, seed=4).iterate([5])
    assert not np.array_equal(other["f"], samples[5]["f"])


def test_a_recipe_without_quantisation_has_the_parity_gate_alone() -> None:
    assert FLOAT.quantize is None and FLOAT.calibration is None and FLOAT.gates == recipe.FloatGates(80.0)
    gates = {"parity_min_db": 60.0}
    assert recipe.parse({"name": "mine", "gates": gates}, "mine.toml").gates.parity_min_db == 60.0
    with pytest.raises(RecipeError, match="unknown key gates.sqnr_min_db"):
        recipe.parse({"name": "mine", "gates": {**gates, "sqnr_min_db": 3.0}}, "mine.toml")
    with pytest.raises(RecipeError, match="quantize is missing"):
        recipe.parse({"name": "mine", "gates": gates, "calibration": {"ranges": "min-max"}}, "mine.toml")
    with pytest.raises(RecipeError, match="gates is missing") as caught:
        recipe.parse({"name": "mine"}, "mine.toml")
    assert "float32.toml" in caught.value.hint


def test_the_command_line_needs_no_data_for_it(tmp_path: Path) -> None:
    model = small_tflite(tmp_path)
    planned = run("convert", model, "--recipe", "float32", "--out", "f.bundle", "--dry-run", cwd=tmp_path)
    assert (
        planned.exit_code == 0 and "16 samples of synthetic inputs" in planned.out and "calibration" not in planned.out
    )
    said = run("convert", model, "--recipe", "float32", "--out", "f.bundle", cwd=tmp_path)
    assert said.exit_code == 0 and "next: edgekit bench f.bundle\n" in said.out
    missing = run("convert", model, "--out", "g.bundle", "--json", cwd=tmp_path)
    assert missing.exit_code == 2 and missing.error["code"] == "data_missing"
    measured = run("bench", "f.bundle", "--duration", "1s", "--runs", "runs", cwd=tmp_path)
    assert measured.exit_code == 0, measured.err
    assert "float" in measured.out and "int8" not in measured.out


@pytest.mark.parametrize("name", ["fashion_relu6.onnx", "fashion_silu.onnx"])
def test_an_onnx_model_as_a_float_bundle(name: str, tmp_path: Path, samples: Path, any_frontend: str) -> None:
    gray = Preprocessing(color="gray", mean=(127.5,), std=(127.5,))
    data = str(samples / "calibration")
    result = converted(samples / name, tmp_path, data, options=DataOptions(preprocessing=gray), frontend=any_frontend)
    (gate,) = result.manifest["verification"]["gates"]
    assert gate["name"] == "parity" and gate["measured"] > 100


def test_keyword_spotting_from_an_old_dynamic_range_file(tmp_path: Path) -> None:
    """A file that says its operators in the old field only, with int8 weights, no signature and an open batch: to int8, all of it."""
    path, features = shared("models/kws_ref_model_float32.tflite"), shared("kws01_1000.npz")
    with np.load(features) as stored:
        x = (stored["x"].astype(np.float32) - 83) * np.float32(0.5847029089927673)
        y = stored["y"].astype(np.int64)
    calibrates = np.arange(1000) % 10 == 0
    np.savez(tmp_path / "calibration.npz", input_1=x[calibrates])
    np.savez(tmp_path / "test.npz", input_1=x[~calibrates], label=y[~calibrates])
    result = converted(
        path,
        tmp_path,
        str(tmp_path / "calibration.npz"),
        recipe=recipe.load("full-int8"),
        eval_data=str(tmp_path / "test.npz"),
        eval_labels="label",
        input_shapes={"input_1": (1, 49, 10, 1)},
    )
    verification = result.manifest["verification"]
    assert result.passed and verification["audit"]["full_integer"]
    (output,) = verification["int8"]["outputs"]
    assert output["agreement"]["same"] >= 880 and output["sqnr_db"] > 25
    assert verification["accuracy"]["int8"]["right"] >= 800
