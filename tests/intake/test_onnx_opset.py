"""Operators that ONNX Runtime lacks in their last version are run in the version before, where only types were added."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator
from tiny_models import onnx_model

from edgekit.errors import ModelFileError
from edgekit.intake.door import DoorOptions
from edgekit.intake.onnx import open_model
from edgekit.intake.onnx_opset import as_older
from edgekit.verify.reference import OnnxReference


def roi_align(opset: int) -> Any:
    node = helper.make_node(
        "RoiAlign", ["x", "rois", "batch"], ["y"], output_height=2, output_width=2, sampling_ratio=2
    )
    inputs = {"x": [1, 2, 8, 8], "rois": [2, 4], "batch": [2]}
    return onnx_model([node], inputs, {"y": [2, 2, 2, 2]}, dtypes={"batch": "int64"}, opset=opset)


def test_the_truth_of_an_operator_that_the_runtime_has_one_version_back(tmp_path: Path) -> None:
    model = roi_align(22)
    onnx.save(model, str(tmp_path / "m.onnx"))
    with pytest.raises(ModelFileError):
        OnnxReference(tmp_path / "m.onnx", ["y"])
    door = open_model(tmp_path / "m.onnx", DoorOptions(tmp_path))
    reference = door.reference(threads=1)
    assert reference.name.endswith(" (as opset 21)")
    sample = {
        "x": np.random.default_rng(0).normal(size=(1, 2, 8, 8)).astype(np.float32),
        "rois": np.float32([[0, 0, 4, 5], [1, 2, 7, 7]]),
        "batch": np.zeros(2, np.int64),
    }
    (expected,) = ReferenceEvaluator(model).run(None, sample)  # ONNX's own, by the last version
    np.testing.assert_allclose(reference.run(sample)["y"], expected, rtol=1e-5, atol=1e-6)


def test_an_operator_that_changed_more_than_its_types_stops_the_way_down() -> None:
    assert [version for version, _ in as_older(roi_align(24))] == [23, 22, 21]
    swish = onnx_model([helper.make_node("Swish", ["x"], ["y"])], {"x": [2]}, {"y": [2]}, opset=25)
    assert [version for version, _ in as_older(swish)] == [24]
    attention = helper.make_node("Attention", ["q", "k", "v"], ["y"])  # 24 has one input more
    ends = {name: [1, 2, 3, 4] for name in "qkv"}
    assert list(as_older(onnx_model([attention], ends, {"y": [1, 2, 3, 4]}, opset=24))) == []


def test_operators_of_branches_count() -> None:
    branch = onnx.helper.make_graph(
        [helper.make_node("Swish", ["x"], ["b"])],
        "branch",
        [],
        [helper.make_tensor_value_info("b", onnx.TensorProto.FLOAT, [2])],
    )
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    model = onnx_model([node], {"c": [], "x": [2]}, {"y": [2]}, dtypes={"c": "bool"}, opset=24)
    assert list(as_older(model)) == []
