"""Outputs in parts, joined by the plan of a manifest."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from edgekit.errors import ModelFileError
from edgekit.runtime import Model
from edgekit.runtime.join import join
from edgekit.values import IoSpec, Joined, Piece, QuantParams, to_json

A, C = np.arange(6, dtype=np.float32).reshape(1, 2, 3), np.arange(3, dtype=np.float32).reshape(1, 1, 3) + 100


def joined(plan: Piece, *shape: int) -> Joined:
    return Joined(IoSpec("y", shape, "float32", "", shape, "float32"), plan)


def part(name: str) -> Piece:
    return Piece("output", name=name)


CONCAT = Piece("concat", numbers=(1,), of=(part("c"), part("a")))


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (part("a"), [[[0, 1, 2], [3, 4, 5]]]),
        (CONCAT, [[[100, 101, 102], [0, 1, 2], [3, 4, 5]]]),
        (Piece("transpose", numbers=(0, 2, 1), of=(CONCAT,)), [[[100, 0, 3], [101, 1, 4], [102, 2, 5]]]),
        (Piece("reshape", numbers=(9,), of=(CONCAT,)), [100, 101, 102, 0, 1, 2, 3, 4, 5]),
        (Piece("multiply", of=(part("c"),), factor=0.5), [[[50, 50.5, 51]]]),
    ],
    ids=["alone", "concat", "transposed", "reshaped", "multiplied"],
)
def test_every_step(plan: Piece, expected: object) -> None:
    wanted = np.array(expected, np.float32)
    whole = joined(plan, *wanted.shape)
    assert Joined.from_json(json.loads(json.dumps(to_json(whole)))) == whole
    (got,) = join([whole], {"a": A, "c": C})
    assert got.dtype == np.float32
    assert np.array_equal(got, wanted) and got.shape == wanted.shape


@pytest.mark.parametrize(
    "plan",
    [
        part("b"),
        Piece("add", of=(part("a"), part("c"))),
        Piece("concat", numbers=(2,), of=(part("a"), part("c"))),
        Piece("concat", numbers=(), of=(part("a"),)),
        Piece("reshape", numbers=(7,), of=(part("a"),)),
        Piece("transpose", numbers=(0, 1), of=(part("a"),)),
        Piece("transpose", numbers=(0, 2, 1), of=()),
        part("c"),
    ],
    ids=["nobody", "unknown step", "wrong axis", "no axis", "wrong size", "wrong order", "of nothing", "wrong shape"],
)
def test_a_plan_that_does_not_fit_is_refused(plan: Piece) -> None:
    with pytest.raises(ModelFileError, match="'y'.*cannot be put together") as caught:
        join([joined(plan, 1, 2, 3)], {"a": A, "c": C})
    assert caught.value.code == "bundle_damaged" and caught.value.hint


def bundle(folder: Path, model: Path, whole: Joined) -> Path:
    """The dense model, its only output a part of ``whole``."""
    shutil.copy(str(model), str(folder / "model.tflite"))
    manifest = {
        "schema": 1,
        "files": {"model.tflite": {"sha256": hashlib.sha256(model.read_bytes()).hexdigest()}},
        "inputs": to_json([IoSpec("x", (1, 4), "float32", "x", (1, 4), "int8", quant=QuantParams(0.5, -1))]),
        "outputs": to_json([IoSpec("scores/y", (1, 3), "float32", "y", (1, 3), "int8", quant=QuantParams(1.0, 3))]),
        "joins": to_json([whole]),
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_a_model_gives_the_joined_output_and_raw_the_parts(models: Path, tmp_path: Path) -> None:
    """The scores of the dense model twice, one half of them ten times as large."""
    scores = Piece("output", name="scores/y")
    twice = Piece("concat", numbers=(1,), of=(scores, Piece("multiply", of=(scores,), factor=10.0)))
    folder = bundle(tmp_path, models / "dense_int8.tflite", joined(twice, 1, 6))
    x = np.array([[1.0, 2.0, 3.0, -4.0]])
    expected = [3.0, -13.5, -2.0]  # see make_models.py
    with Model.open(folder, threads=1) as model:
        assert [spec.name for spec in model.outputs] == ["y"]
        assert [spec.name for spec in model.parts] == ["scores/y"] and model.parts[0].quant is not None
        got = model(x)
        assert got.shape == (1, 6) and np.all(np.abs(got[0, :3] - expected) <= 0.5)
        assert np.array_equal(got[0, 3:], 10 * got[0, :3])
        assert np.array_equal(model(x[0]), got[0])
        raw = model(np.array([[1, 3, 5, -9]], np.int8), raw=True)
        assert raw.dtype == np.int8 and raw.shape == (1, 3)
