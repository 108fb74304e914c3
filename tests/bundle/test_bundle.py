"""What a bundle says of itself, checked against the files in it; the same inputs give the same bytes."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networks
import numpy as np
import pytest
from bundles import SAMPLES, Bundle, convert

from edgekit.bundle.golden import write_npz
from edgekit.values import IoSpec


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_files_and_their_sums(fashion: Callable[[str], Bundle], frontend: str) -> None:
    bundle = fashion(frontend)
    names = {path.name for path in bundle.path.iterdir()}
    files = {"model.tflite", "float.tflite", "golden.npz", "labels.txt"}
    assert names == files | {"manifest.json", "report.html", "report.json"}
    assert set(bundle.manifest["files"]) == files
    for name, entry in bundle.manifest["files"].items():
        assert entry == {"sha256": sha256(bundle.path / name), "size_bytes": (bundle.path / name).stat().st_size}
    source = SAMPLES / "fashion_relu6.onnx"
    assert bundle.manifest["model"] == {
        "name": "fashion_relu6",
        "format": "onnx",
        "sha256": sha256(source),
        "size_bytes": source.stat().st_size,
    }
    assert (bundle.path / "labels.txt").read_text() == (SAMPLES / "class_names.txt").read_text()


def test_inputs_and_outputs_are_those_of_the_file(fashion: Callable[[str], Bundle], frontend: str) -> None:
    bundle = fashion(frontend)
    interpreter = networks.Interpreter(bundle.delivered)
    for written, details in (
        (bundle.manifest["inputs"], interpreter.inputs),
        (bundle.manifest["outputs"], interpreter.outputs),
    ):
        for entry, detail in zip(written, details, strict=True):
            spec = IoSpec.from_json(entry)
            assert spec.quant is not None
            assert (spec.tensor, list(spec.shape), spec.dtype) == (detail["name"], detail["shape"].tolist(), "int8")
            assert (spec.quant.scale, spec.quant.zero_point) == detail["quantization"]
    image, logits = IoSpec.from_json(bundle.manifest["inputs"][0]), IoSpec.from_json(bundle.manifest["outputs"][0])
    assert (image.name, image.source_shape, image.permutation, image.layout) == (
        "image",
        (1, 1, 28, 28),
        (0, 2, 3, 1),
        "nchw",
    )
    assert (logits.name, logits.source_shape, logits.permutation) == ("logits", (1, 10), None)


def test_the_manifest_holds_no_time_and_no_place(fashion: Callable[[str], Bundle], frontend: str) -> None:
    bundle = fashion(frontend)
    text = (bundle.path / "manifest.json").read_text()
    assert not re.search(r"\b20\d\d-\d\d-\d\d\b|\d\d:\d\d:\d\d|_utc|seconds", text)
    for value in strings(json.loads(text)):
        assert not value.startswith(("/home", "/tmp", "/root", str(Path.cwd()))), value
        assert str(bundle.path.parent) not in value and str(SAMPLES) not in value
    assert bundle.manifest["schema"] == 1 and bundle.manifest["edgekit"]
    assert {"python", "onnx", "onnxruntime", "litert-quantizer", "frontend onnx2tf"} <= set(bundle.manifest["versions"])


def strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [item for pair in value.items() for part in pair for item in strings(part)]
    if isinstance(value, list):
        return [item for part in value for item in strings(part)]
    return [value] if isinstance(value, str) else []


def test_golden_pairs_come_out_again(fashion: Callable[[str], Bundle], frontend: str) -> None:
    bundle = fashion(frontend)
    golden = np.load(bundle.path / "golden.npz")
    assert sorted(golden) == ["float/logits", "input/image", "int8/logits"]
    assert golden["input/image"].shape == (4, 1, 28, 28, 1) and golden["input/image"].dtype == np.float32
    int8, floats = networks.Interpreter(bundle.delivered), networks.Interpreter(bundle.path / "float.tflite")
    for position in range(4):
        image = golden["input/image"][position]
        got = int8.run(networks.to_integers(image, int8.inputs[0]))[0]
        np.testing.assert_array_equal(got, golden["int8/logits"][position])
        np.testing.assert_allclose(floats.run(image)[0], golden["float/logits"][position], atol=1e-4)
    assert len({row.argmax() for row in golden["float/logits"]}) > 1  # not four of a kind


def test_the_runtime_reads_what_was_written(fashion: Callable[[str], Bundle], any_frontend: str) -> None:
    """The app's class opens the bundle by its manifest and gives the golden answers."""
    from edgekit.runtime import Model

    bundle = fashion(any_frontend)
    golden = np.load(bundle.path / "golden.npz")
    with Model.open(bundle.path, threads=1) as model:
        assert [spec.name for spec in (*model.inputs, *model.outputs)] == ["image", "logits"]
        quant = model.outputs[0].quant
        assert quant is not None
        for position in range(4):
            expected = quant.scale * (golden["int8/logits"][position].astype(np.float32) - quant.zero_point)
            np.testing.assert_allclose(model(golden["input/image"][position]), expected, rtol=1e-6)


def test_calibration_is_recorded(fashion: Callable[[str], Bundle], any_frontend: str) -> None:
    """The digest is that of all calibration inputs in name order, recomputed here."""
    from PIL import Image

    record = fashion(any_frontend).manifest["calibration"]
    digest = hashlib.sha256()
    for file in sorted((SAMPLES / "calibration").glob("*.png")):
        picture = (np.asarray(Image.open(file), np.float32) - 127.5) / 127.5
        digest.update(b"image" + picture.astype(np.float32).tobytes())
    assert record["digest"] == digest.hexdigest()
    assert (record["source"], record["count"], record["indices"]) == ("calibration", 200, None)


def test_equal_conversions_give_equal_bytes(tmp_path: Path, any_frontend: str) -> None:
    """Twice from two places, into folders of other names."""
    contents = []
    for place in ("one", "another"):
        folder = tmp_path / place
        folder.mkdir()
        networks.save(networks.small_classifier(), folder / "net.onnx")
        np.savez(folder / "d.npz", x=networks.normal(60, 3, 8, 8))
        made = convert(folder / "net.onnx", folder / "d.npz", folder / f"{place}.bundle", allow_undecided=True, seed=5)
        contents.append({p.name: p.read_bytes() for p in made.path.iterdir() if not p.name.startswith("report")})
    assert contents[0] == contents[1]
    record = made.manifest["calibration"]
    assert record["split_seed"] == 5 and record["count"] == 30
    assert record["indices"] == sorted(np.random.default_rng(5).permutation(60)[:30].tolist())
    assert set(contents[0]) == {made.delivered.name, "float.tflite", "golden.npz", "manifest.json"}


def test_the_archive_depends_on_the_arrays_alone(tmp_path: Path) -> None:
    arrays = {"b/x": np.arange(6, dtype=np.int8).reshape(2, 3).T, "a": np.float32([1.5])}
    write_npz(tmp_path / "1.npz", arrays)
    write_npz(tmp_path / "2.npz", dict(reversed(arrays.items())))
    assert (tmp_path / "1.npz").read_bytes() == (tmp_path / "2.npz").read_bytes()
    loaded = np.load(tmp_path / "1.npz")
    for name, array in arrays.items():
        np.testing.assert_array_equal(loaded[name], array)


def test_what_compression_makes_no_smaller_is_stored_as_it_is(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).normal(size=(3, 5000)).astype(np.float32)
    write_npz(tmp_path / "a.npz", {"noise": noise, "flat": np.zeros_like(noise)})
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        sizes = {info.filename: info.compress_size / info.file_size for info in archive.infolist()}
    assert sizes["noise.npy"] == 1 and sizes["flat.npy"] < 0.1
    np.testing.assert_array_equal(np.load(tmp_path / "a.npz")["noise"], noise)


@pytest.mark.parametrize("name", ["report.html", "report.json"])
def test_the_report_is_there(fashion: Callable[[str], Bundle], any_frontend: str, name: str) -> None:
    bundle = fashion(any_frontend)
    text = (bundle.path / name).read_text()
    assert "fashion_relu6" in text
    if name == "report.json":
        report = json.loads(text)
        assert report["manifest"] == bundle.manifest and report["kind"] == "bundle"
        assert [stage["name"] for stage in report["stages"]][:4] == [
            "pre-flight",
            "read the model",
            "open the data",
            "run the source model",
        ]
