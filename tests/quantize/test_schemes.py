"""Each recipe on a real network: the file is what the recipe's contract says, in the bare interpreter too, and the contract can fail."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import networks
import pytest
from bundles import SAMPLES, convert

from edgekit.calibrate.sources import DataOptions
from edgekit.errors import UsageError
from edgekit.quantize import recipe
from edgekit.quantize.audit import audit
from edgekit.quantize.contract import breaches, contract, weight_types
from edgekit.values import Preprocessing

OPTIONS = DataOptions(
    preprocessing=Preprocessing(color="gray", mean=(127.5,), std=(127.5,)), raw_pixel_arrays=True, layout="nchw"
)
EXPECTED = {
    "int8-float-io": ("float32", "int8", 30.0),
    "int16x8": ("int16", "int8", 38.0),
    "dynamic": ("float32", "int8", 30.0),
    "float16": ("float32", "float16", 60.0),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_the_sample_network(tmp_path: Path, any_frontend: str, name: str) -> None:
    end, weights, least_db = EXPECTED[name]
    bundle = convert(
        SAMPLES / "fashion_relu6.onnx",
        SAMPLES / "test.npz",
        tmp_path / "b",
        eval_data=str(SAMPLES / "test.npz") if name in ("dynamic", "float16") else None,
        recipe=recipe.load(name),
        options=OPTIONS,
        eval_labels="label",
        evaluation_limit=200,
        frontend=any_frontend,
    )
    assert bundle.manifest["verification"]["passed"]
    interpreter = networks.Interpreter(bundle.delivered)
    ends = {detail["dtype"].__name__ for detail in (*interpreter.inputs, *interpreter.outputs)}
    assert ends == {end}
    assert weight_types(bundle.delivered)[weights] == 18  # convolutions, depthwise ones and the dense layer
    assert bundle.manifest["verification"]["int8"]["outputs"][0]["sqnr_db"] > least_db
    size, floats = bundle.delivered.stat().st_size, (bundle.path / "float.tflite").stat().st_size
    assert size < 0.6 * floats
    assert (bundle.manifest["calibration"] is None) == (name in ("dynamic", "float16"))
    for other in EXPECTED:
        wanted = contract(recipe.load(other).quantize or recipe.Quantization())
        kept = not breaches(wanted, audit(bundle.delivered), weight_types(bundle.delivered))
        assert kept == (other == name or (name, other) == ("int8-float-io", "dynamic")), other


def test_recipes_that_calibrate_nothing_want_data_to_judge_on(tmp_path: Path, any_frontend: str) -> None:
    from edgekit import flow

    asked = flow.ConvertRequest(
        model=SAMPLES / "fashion_relu6.onnx",
        data=None,
        out=tmp_path / "b",
        recipe=recipe.load("dynamic"),
        frontend=any_frontend,
    )
    with pytest.raises(UsageError, match="data to judge the result on") as caught:
        flow.convert(asked)
    assert caught.value.code == "data_missing"


def test_a_weight_type_that_is_not_there_is_a_breach(fashion: object, samples: Path) -> None:
    wanted = contract(recipe.load("float16").quantize or recipe.Quantization())
    from edgekit.quantize.audit import Audit, IoType

    found = Audit(1, (), (), (IoType("x", "float32"),), False, 0)
    assert breaches(wanted, found, Counter({"float32": 3})) == ("no weight is float16",)
