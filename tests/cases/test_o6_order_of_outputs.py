"""O6: several outputs of one shape keep their names and their order, in float and int8, and in the file on its own."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from open_cases import Front, normal
from tiny_models import onnx_model

RULES = {"zeta": ("Add", 1.0), "alpha": ("Mul", 2.0), "mid": ("Sub", 3.0)}
EXPECTED = {"zeta": 3.0, "alpha": 4.0, "mid": -1.0}  # of x = 2


def network(order: tuple[str, ...]) -> Any:
    nodes = [helper.make_node(RULES[name][0], ["x", f"c_{name}"], [name]) for name in sorted(order)]
    constants = {f"c_{name}": np.float32([RULES[name][1]]) for name in order}
    return onnx_model(nodes, {"x": [1, 4]}, {name: [1, 4] for name in order}, constants)


def check(path: Path, order: tuple[str, ...], tolerance: float, details: dict[str, Any] | None = None) -> None:
    """By name and by position, in a new interpreter that knows the file only."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(path))
    interpreter.allocate_tensors()
    detail = interpreter.get_input_details()[0]
    scale, zero_point = detail["quantization"]
    value = np.full((1, 4), 2.0 if not scale else round(2.0 / scale) + zero_point).astype(detail["dtype"])

    def real(raw: Any, detail: Any) -> Any:
        scale, zero_point = detail["quantization"]
        return (raw.astype(np.float64) - zero_point) * scale if scale else raw

    interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    for name, output in zip(order, interpreter.get_output_details(), strict=True):
        np.testing.assert_allclose(
            real(interpreter.get_tensor(output["index"]), output), EXPECTED[name], atol=tolerance
        )
    runner = interpreter.get_signature_runner()
    results, described = runner(x=value), runner.get_output_details()
    assert set(results) == set(order)
    for name in order:
        np.testing.assert_allclose(real(results[name], described[name]), EXPECTED[name], atol=tolerance)


@pytest.mark.parametrize("order", list(itertools.permutations(RULES)), ids="-".join)
def test_float(route: Front, order: tuple[str, ...]) -> None:
    made = route.imported(network(order), [{"x": normal(1, 4, seed=seed)} for seed in range(2)])
    assert tuple(spec.name for spec in made.model.outputs) == order
    check(made.model.path, order, 1e-6)


def test_int8(route: Front) -> None:
    order = ("zeta", "alpha", "mid")
    bundle = route.bundle(network(order), {"x": np.random.default_rng(0).uniform(-4, 4, (64, 4)).astype(np.float32)})
    assert tuple(output["name"] for output in bundle.manifest["outputs"]) == order
    check(bundle.delivered, order, 0.15)
