"""The door for SavedModels: signatures, names and values against numpy."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import tensorflow_files as files

from edgekit.intake.savedmodel import digest_of_folder


def test_several_signatures_are_asked_about(tmp_path: Path) -> None:
    error = files.refusal(files.model("several"), tmp_path)
    assert (error.code, error.exit_code) == ("signature_needed", 2)
    assert "project (add, x) -> (sum/of it:0, twice)" in error.message
    assert "--signature many, or --signature project" in error.hint


def test_a_chosen_signature_keeps_its_names(tmp_path: Path) -> None:
    passed = files.through(files.model("several"), tmp_path, signature="project")
    assert {s.name: s.dtype for s in passed.model.inputs} == {"x": "float32", "add": "int32"}
    assert {s.name for s in passed.model.outputs} == {"sum/of it:0", "twice"}
    square = files.weights()["square"]
    for sample, result in zip(passed.samples, passed.delivered(), strict=True):
        np.testing.assert_allclose(result["sum/of it:0"], sample["x"] @ square + sample["add"], rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(result["twice"], sample["x"] * 2)
    assert any("signature project" in note for note in passed.notes)


def test_twelve_outputs_keep_their_order(tmp_path: Path) -> None:
    passed = files.through(files.model("many"), tmp_path)
    assert [s.name for s in passed.model.outputs] == [f"output_{i}" for i in range(12)]
    for sample, result in zip(passed.samples, passed.delivered(), strict=True):
        for step in range(12):
            np.testing.assert_allclose(result[f"output_{step}"], sample["x"] + step, rtol=1e-6)


def test_an_unknown_signature_and_none_at_all(tmp_path: Path) -> None:
    unknown = files.refusal(files.model("several"), tmp_path / "unknown", signature="serve")
    assert unknown.code == "signature_unknown"
    assert "many, project" in unknown.hint
    none = files.refusal(files.model("none"), tmp_path / "none")
    assert none.code == "signature_missing"
    assert "model.export" in none.hint


def test_the_export_of_keras_needs_no_choice(tmp_path: Path) -> None:
    passed = files.through(files.model("exported"), tmp_path)
    assert passed.parity.passed
    assert passed.model.inputs[0].shape == (1, 8, 8, 3)


def test_open_sizes_and_strings(tmp_path: Path) -> None:
    error = files.refusal(files.model("open"), tmp_path / "open")
    assert "--input-shape x=1x128x4" in error.hint
    passed = files.through(files.model("open"), tmp_path / "fixed", input_shapes={"x": (1, 3, 4)})
    assert passed.model.outputs[0].shape == (1, 3, 4)
    words = files.refusal(files.model("words"), tmp_path / "words")
    assert "'text' is a string" in words.message


def test_the_digest_covers_names_and_contents(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        (folder / "variables").mkdir(parents=True)
        (folder / "saved_model.pb").write_bytes(b"graph")
        (folder / "variables" / "data").write_bytes(b"numbers")
    assert digest_of_folder(one) == digest_of_folder(two)
    assert digest_of_folder(one)[1] == 12
    (two / "variables" / "data").write_bytes(b"Numbers")
    changed = digest_of_folder(two)[0]
    assert changed != digest_of_folder(one)[0]
    shutil.move(one / "variables" / "data", one / "variables" / "date")
    assert digest_of_folder(one)[0] not in (changed, digest_of_folder(two)[0])
