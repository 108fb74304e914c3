"""O8: an index input stays an integer, and names with ':' and '/' are those that data, file and manifest are addressed by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from open_cases import Front, largest_error, normal, run_bundle, sqnr_db, truth
from tiny_models import onnx_model

from edgekit.errors import DataError


def network(dtype: str = "int64") -> Any:
    nodes = [
        helper.make_node("Gather", ["table", "ids:0"], ["g"], axis=0),
        helper.make_node("ReduceMean", ["g"], ["m"], axes=[1], keepdims=0),
        helper.make_node("Add", ["m", "feat/x"], ["out/y:0"]),
    ]
    inputs = {"ids:0": [1, 6], "feat/x": [1, 8]}
    return onnx_model(nodes, inputs, {"out/y:0": [1, 8]}, {"table": normal(50, 8)}, dtypes={"ids:0": dtype})


def data(count: int, dtype: str = "int64") -> dict[str, Any]:
    rng = np.random.default_rng(5)
    return {"ids:0": rng.integers(0, 50, (count, 6)).astype(dtype), "feat/x": normal(count, 8, seed=9)}


def rows(count: int, dtype: str = "int64") -> list[dict[str, Any]]:
    arrays = data(count, dtype)
    return [{name: values[i : i + 1] for name, values in arrays.items()} for i in range(count)]


@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_float(route: Front, dtype: str) -> None:
    model = network(dtype)
    samples = rows(4, dtype)
    made = route.imported(model, samples[:3])
    assert [spec.name for spec in made.model.inputs] == ["ids:0", "feat/x"]
    assert made.model.inputs[0].dtype in ("int32", "int64") and made.model.inputs[1].dtype == "float32"
    assert largest_error(truth(model, samples[3]), made.run(samples[3])) < 1e-5


def test_int8(route: Front) -> None:
    model = network()
    bundle = route.bundle(model, data(1000))
    described = {item["name"]: item for item in bundle.manifest["inputs"]}
    assert described["ids:0"]["dtype"] in ("int32", "int64") and described["ids:0"]["quant"] is None
    assert described["feat/x"]["dtype"] == "int8"
    held_out = rows(1040)[1000:]
    expected = np.stack([truth(model, sample)["out/y:0"] for sample in held_out])
    got = np.stack([run_bundle(bundle, sample)["out/y:0"] for sample in held_out])
    assert sqnr_db(expected, got) > 30


def test_unknown_name_lists_the_valid_ones(route: Front) -> None:
    arrays = data(20)
    arrays["ids"] = arrays.pop("ids:0")
    with pytest.raises(DataError) as caught:
        route.bundle(network(), arrays)
    assert "ids:0" in caught.value.message + caught.value.hint and "feat/x" in caught.value.message + caught.value.hint
