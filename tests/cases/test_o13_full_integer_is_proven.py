"""O13: what was asked for at the ends is in the file, nothing between them is float, and what is not so is said by name."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import networks
import numpy as np
import pytest
from bundles import Bundle, convert
from onnx import helper
from open_cases import run_bundle, sqnr_db, truth
from tiny_models import onnx_model

from edgekit.quantize import recipe


def classifier() -> Any:
    """x (1,3,16,16), Conv 3x3 to 8, Relu, GlobalAveragePool, Flatten, Gemm to 5."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "v", "d"], ["y"]),
    ]
    weights = {"w": networks.normal(8, 3, 3, 3, seed=1), "b": networks.normal(8, seed=2)}
    weights |= {"v": networks.normal(8, 5, seed=3), "d": networks.normal(5, seed=4)}
    return onnx_model(nodes, {"x": [1, 3, 16, 16]}, {"y": None}, weights)


def two_ends() -> Any:
    """Two inputs of different ranges, two outputs, one of which another operator reads too."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Conv", ["z", "v"], ["d"]),
        helper.make_node("Add", ["c", "d"], ["y"]),
        helper.make_node("LeakyRelu", ["y"], ["u"], alpha=0.1),
    ]
    weights = {"w": networks.normal(4, 3, 1, 1, seed=1), "v": networks.normal(4, 3, 1, 1, seed=2)}
    return onnx_model(nodes, {"x": [1, 3, 6, 6], "z": [1, 3, 6, 6]}, {"y": None, "u": None}, weights)


NETWORKS = {
    "classifier": (classifier, ("int8", "uint8", "float32")),
    "two inputs and outputs": (two_ends, ("int8", "uint8")),
}


def samples(network: Any, count: int, seed: int) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    made = {}
    for number, entry in enumerate(network.graph.input):
        shape = [count, *(size.dim_value for size in entry.type.tensor_type.shape.dim[1:])]
        made[entry.name] = (generator.uniform(-2.1, 2.6, shape) * 5**number).astype(np.float32)
    return made


def made_with(ends: str, network: Any, work: Path, frontend: str) -> Bundle:
    path = networks.save(network, work / "net.onnx")
    np.savez(work / "data.npz", **samples(network, 60, 1))
    basis = recipe.load("full-int8")
    asked = replace(basis, quantize=replace(basis.quantize or recipe.Quantization(), io=ends))
    return convert(path, work / "data.npz", work / ends, frontend=frontend, recipe=asked)


@pytest.mark.parametrize(("network", "asked"), NETWORKS.values(), ids=NETWORKS)
def test_the_ends_are_as_asked_and_nothing_else_is_float(
    tmp_path: Path, any_frontend: str, network: Any, asked: tuple[str, ...]
) -> None:
    made = {ends: made_with(ends, network(), tmp_path, any_frontend) for ends in asked}
    test = samples(network(), 8, 2)
    steps = {s["name"]: s["quant"]["scale"] for s in made["int8"].manifest["outputs"]}
    for ends, bundle in made.items():
        assert bundle.manifest["verification"]["passed"], bundle.manifest["verification"]["gates"]
        interpreter = networks.Interpreter(bundle.delivered)
        details = (*interpreter.inputs, *interpreter.outputs)
        assert {detail["dtype"].__name__ for detail in details} == {ends}
        kinds = Counter(
            {item["op"]: item["float_count"] for item in bundle.manifest["verification"]["audit"]["operators"]}
        )
        if ends == "float32":
            count = len(network().graph.input), len(network().graph.output)
            assert (+kinds) == {"QUANTIZE": count[0], "DEQUANTIZE": count[1]}
        else:
            assert not +kinds and bundle.manifest["verification"]["audit"]["full_integer"]
    for number in range(8):
        sample = {name: values[number : number + 1] for name, values in test.items()}
        expected = truth(network(), sample)
        got = {ends: run_bundle(bundle, sample) for ends, bundle in made.items()}
        for name, values in expected.items():
            assert np.abs(got["uint8"][name] - got["int8"][name]).max() <= steps[name]
            assert all(sqnr_db(values, found[name]) > 25 for found in got.values())
