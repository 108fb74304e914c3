"""Names with characters that converters replace: made plain, never merged, and found again."""

from __future__ import annotations

from pathlib import Path

import networks
import numpy as np
import onnx
from onnx import helper
from tiny_models import onnx_model

from edgekit.intake.onnx_names import is_plain, make_plain


def test_plain_names_stay() -> None:
    model = networks.small_classifier()
    before = model.SerializeToString()
    assert is_plain(model)
    assert make_plain(model) == {"x": "x", "y": "y"}
    assert model.SerializeToString() == before


def test_names_that_would_become_one_stay_two(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Add", ["a:0", "a_0"], ["s um"], name="Add@0"),
        helper.make_node("Mul", ["s um", "a|0"], ["y:0"], name="Add|0"),
    ]
    model = onnx_model(nodes, {"a:0": [2], "a_0": [2], "a|0": [2]}, {"y:0": [2]})
    path = networks.save(model, tmp_path / "before.onnx")
    assert not is_plain(model)
    names = make_plain(model)
    assert is_plain(model) and len(set(names.values())) == 4 and names["a_0"] == "a_0"
    assert len({node.name for node in model.graph.node}) == 2
    onnx.checker.check_model(model)
    values = {"a:0": np.float32([1, 2]), "a_0": np.float32([10, 20]), "a|0": np.float32([3, 5])}
    expected = networks.run_onnx(path, values)["y:0"]
    renamed = networks.save(model, tmp_path / "after.onnx")
    got = networks.run_onnx(renamed, {names[name]: value for name, value in values.items()})
    np.testing.assert_array_equal(got[names["y:0"]], expected)


def test_bodies_of_control_flow_are_renamed_with_the_graph(tmp_path: Path) -> None:
    """The branches of an If read values of the graph around them."""

    def branch(name: str, operator: str) -> onnx.GraphProto:
        node = helper.make_node(operator, ["x:0", "k:0"], [f"{name}:0"])
        return helper.make_graph([node], name, [], [helper.make_tensor_value_info(f"{name}:0", 1, [2])])

    node = helper.make_node("If", ["c:0"], ["y:0"], then_branch=branch("t", "Add"), else_branch=branch("e", "Mul"))
    model = onnx_model([node], {"x:0": [2], "c:0": []}, {"y:0": [2]}, {"k:0": np.float32([5])}, dtypes={"c:0": "bool"})
    path = networks.save(model, tmp_path / "before.onnx")
    names = make_plain(model)
    assert is_plain(model)
    renamed = networks.save(model, tmp_path / "after.onnx")
    for truth in (True, False):
        values = {"x:0": np.float32([1, 2]), "c:0": np.array(truth)}
        got = networks.run_onnx(renamed, {names[name]: value for name, value in values.items()})
        np.testing.assert_array_equal(got[names["y:0"]], networks.run_onnx(path, values)["y:0"])
