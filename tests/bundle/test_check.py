"""A bundle checked again: every file and every number of the manifest that is altered is found, and a lock repeats to the same bytes."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bundles import Bundle

from edgekit.bundle import check, lock, manifest, measure
from edgekit.errors import ConversionError, ModelFileError, UsageError


@pytest.fixture
def bundle(fashion: Callable[[str], Bundle], any_frontend: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(fashion(any_frontend).path, tmp_path / "b"))


def failed(folder: Path) -> set[str]:
    found = check.check(folder)
    assert found.passed == all(item.passed for item in found.checks)
    return {item.name for item in found.checks if not item.passed}


def test_a_bundle_as_it_was_made_holds(bundle: Path) -> None:
    found = check.check(bundle)
    assert found.passed and found.delivered and len(found.checks) == 8 and found.notes == ()


@pytest.mark.parametrize(
    "name", ["model.tflite", "float.tflite", "golden.npz", "labels.txt", "manifest.json", "report.json", "report.html"]
)
def test_any_file_that_is_altered_or_missing_is_found(bundle: Path, name: str) -> None:
    content = bytearray((bundle / name).read_bytes())
    kept = bytes(content)
    position = len(content) // 2
    while not chr(content[position]).isdigit() and name.endswith((".json", ".html")):
        position += 1
    content[position] = ord("8") if content[position] != ord("8") else ord("3")
    (bundle / name).write_bytes(content)
    try:
        assert failed(bundle)
    except ModelFileError:
        assert name == "manifest.json"
    (bundle / name).write_bytes(kept)
    assert not failed(bundle)
    (bundle / name).unlink()
    if name == "manifest.json":
        with pytest.raises(ModelFileError):
            check.check(bundle)
    else:
        assert failed(bundle)


def numbers(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from numbers(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from numbers(item, (*path, index))
    elif isinstance(value, (int, float)):
        yield path


def altered(document: dict[str, Any], path: tuple[Any, ...]) -> dict[str, Any]:
    changed = copy.deepcopy(document)
    place = changed
    for key in path[:-1]:
        place = place[key]
    old = place[path[-1]]
    place[path[-1]] = (not old) if isinstance(old, bool) else old + 1
    return changed


def test_every_number_of_the_manifest_is_under_its_seal(bundle: Path) -> None:
    document = json.loads((bundle / "manifest.json").read_text())
    paths = list(numbers(document))
    assert len(paths) > 200
    assert all(manifest.seal(altered(document, path)) != document["seal"] for path in paths)
    first = altered(document, paths[len(paths) // 2])
    (bundle / "manifest.json").write_text(json.dumps(first))
    assert {"manifest", "report"} <= failed(bundle)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (("verification", "int8", "outputs", 0, "sqnr_db"), "gates"),
        (("verification", "gates", 0, "measured"), "gates"),
        (("verification", "audit", "operators_total"), "operators"),
        (("inputs", 0, "quant", "zero_point"), "ends"),
        (("files", "model.tflite", "size_bytes"), "files"),
        (("verification", "passed"), "gates"),
    ],
)
def test_what_can_be_computed_again_is_found_under_a_forged_seal_too(
    bundle: Path, path: tuple[Any, ...], name: str
) -> None:
    document = altered(json.loads((bundle / "manifest.json").read_text()), path)
    document["seal"] = manifest.seal(document)
    (bundle / "manifest.json").write_text(json.dumps(document))
    assert name in failed(bundle)


def test_another_model_with_a_forged_manifest_gives_other_golden_answers(bundle: Path) -> None:
    from edgekit.intake import tflite

    model = tflite.read(bundle / "model.tflite")
    tensor = next(t for t in model.subgraphs[0].tensors if t.name == b"logits" or t.name == "logits")
    tensor.quantization.zeroPoint[0] += 40
    tflite.write(model, bundle / "model.tflite")
    document = json.loads((bundle / "manifest.json").read_text())
    document["files"]["model.tflite"] = manifest.file_entry(bundle / "model.tflite")
    document["seal"] = manifest.seal(document)
    (bundle / "manifest.json").write_text(json.dumps(document))
    assert {"golden", "ends"} & failed(bundle)


def test_measured_again_on_the_same_data_the_numbers_are_the_same(bundle: Path, samples: Path, tmp_path: Path) -> None:
    import numpy as np

    from edgekit.calibrate.split import spread
    from edgekit.values import to_json

    data, chosen = np.load(samples / "test.npz"), list(spread(range(1000), 300, seed=0))
    np.savez(tmp_path / "same.npz", image=data["image"][chosen], label=data["label"][chosen])
    found = measure.measure(bundle, data=str(tmp_path / "same.npz"), labels="label")
    said = json.loads((bundle / "manifest.json").read_text())["verification"]
    assert found.same_data and found.passed and found.count == 300
    assert to_json(found.evaluation.int8) == said["int8"]
    assert to_json(found.evaluation.accuracy)["int8"] == said["accuracy"]["int8"]
    assert to_json(found.evaluation.accuracy)["difference_points"] == said["accuracy"]["difference_points"]
    np.savez(tmp_path / "other.npz", image=data["image"][:50], label=data["label"][:50])
    assert not measure.measure(bundle, data=str(tmp_path / "other.npz"), labels="label").same_data


def test_a_lock_says_what_differs() -> None:
    files = {"model.tflite": {"sha256": "a" * 64, "size_bytes": 1}}
    one = {"files": files, "versions": {"numpy": "2.0"}, "calibration": {"digest": "d" * 64, "ranges": {"x": 1}}}
    other = copy.deepcopy(one)
    lock.require_same(one, other)
    other["versions"]["numpy"] = "2.1"  # type: ignore[index]
    lock.require_same(one, other)  # the same bytes, whatever made them
    other["files"]["model.tflite"]["sha256"] = "b" * 64  # type: ignore[index]
    other["calibration"]["digest"] = "e" * 64  # type: ignore[index]
    with pytest.raises(ConversionError) as caught:
        lock.require_same(one, other)
    assert caught.value.code == "lock_differs"
    assert "numpy 2.1 instead of 2.0" in caught.value.message and "the calibration data" in caught.value.message


def test_a_folder_that_is_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        check.check(tmp_path)
    (tmp_path / "manifest.json").write_text('{"schema": 1}')
    with pytest.raises(ModelFileError, match="no manifest of edgekit"):
        check.check(tmp_path)
