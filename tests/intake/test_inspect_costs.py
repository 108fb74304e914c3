"""What operators cost, by hand, and the page that shows it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from tiny_models import TinyTflite, conv_onnx, float_conv_tflite, onnx_model

from edgekit.errors import OutputError
from edgekit.intake import tflite
from edgekit.intake.inspect import Inspection, inspect_model
from edgekit.intake.inspect_costs import OperatorCost, by_kind
from edgekit.report.inspect_view import write_inspection
from edgekit.values import to_json


def inspected(model: Any, folder: Path) -> Inspection:
    if isinstance(model, onnx.ModelProto):
        path = folder / "net.onnx"
        onnx.save(model, str(path))
    else:
        path = folder / "net.tflite"
        tflite.write(model, path)
    return inspect_model(path, run_interpreter=False)


def test_a_tflite_graph_by_hand(tmp_path: Path) -> None:
    costs = inspected(float_conv_tflite(), tmp_path).costs
    assert [(cost.operator, cost.name, cost.macs, cost.moved_bytes) for cost in costs] == [
        ("CONV_2D", "conv", 4 * 4 * 4 * 27, 4 * (192 + 108 + 4 + 64)),  # input, weights, bias, result
        ("RESHAPE", "flat", 0, 4 * (64 + 64) + 2 * 4),
        ("FULLY_CONNECTED", "y", 640, 4 * (64 + 640 + 10 + 10)),
    ]
    assert costs[0].macs_per_byte == pytest.approx(1728 / 1472)


def test_an_onnx_graph_by_hand(tmp_path: Path) -> None:
    found = inspected(conv_onnx(), tmp_path)
    assert [(cost.operator, cost.macs, cost.moved_bytes) for cost in found.costs] == [
        ("Conv", 6912, 4 * (192 + 108 + 4 + 256)),
        ("Relu", 0, 4 * (256 + 256)),
        ("GlobalAveragePool", 0, 4 * (256 + 4)),
        ("Flatten", 0, 0),  # a view
        ("Gemm", 40, 4 * (4 + 40 + 10 + 10)),
    ]
    assert sum(cost.macs or 0 for cost in found.costs) == found.macs.total


def test_integers_move_fewer_bytes_and_a_tensor_read_twice_counts_once(tmp_path: Path) -> None:
    tiny = TinyTflite()
    x, y = (tiny.tensor(name, (100,), "int8", scale=0.1) for name in "xy")
    tiny.operator("ADD", [x, x], [y])
    assert inspected(tiny.model(tiny.graph([x], [y])), tmp_path).costs[0].moved_bytes == 200


def test_an_open_size_is_unknown_with_the_reason(tmp_path: Path) -> None:
    found = inspected(conv_onnx(batch="N"), tmp_path)
    assert found.costs[0].macs is None and found.costs[0].moved_bytes is None
    assert "open" in found.costs[0].reason
    assert found.costs_by_kind[0].macs_per_byte is None


def test_sums_by_kind_are_unknown_as_soon_as_one_member_is() -> None:
    costs = [OperatorCost(0, "A", "", 10, 5), OperatorCost(1, "A", "", None, 5), OperatorCost(2, "B", "", 4, 2)]
    sums = {item.operator: (item.count, item.macs, item.moved_bytes, item.macs_per_byte) for item in by_kind(costs)}
    assert sums == {"A": (2, None, 10, None), "B": (1, 4, 2, 2.0)}


def test_the_page_is_offline_and_shows_every_operator(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["<b>odd & name"], name="<script>alert(1)</script>")]
    for model in (float_conv_tflite(), onnx_model(nodes, {"x": [1, 4]}, {"<b>odd & name": [1, 4]})):
        found = inspected(model, tmp_path)
        out = tmp_path / "page.html"
        write_inspection(json.loads(json.dumps(to_json(found))), out)
        page = out.read_text()
        assert "<script>alert" not in page and "<b>odd" not in page
        assert not re.search(r"""(src|href)=["']?(https?:)?//""", page)
        for cost in found.costs:
            assert cost.operator in page
        assert len(page) < 100_000


def test_the_page_says_what_cannot_be_converted(tmp_path: Path) -> None:
    tiny = TinyTflite()
    x, y = tiny.tensor("x", (4,)), tiny.tensor("y", (4,))
    tiny.operator("CUSTOM:FlexErf", [x], [y])
    found = inspected(tiny.model(tiny.graph([x], [y])), tmp_path)
    write_inspection(to_json(found), tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "This model cannot be converted" in page and "Flex delegate" in page


def test_a_page_that_cannot_be_written_is_an_output_error(tmp_path: Path) -> None:
    found = inspected(float_conv_tflite(), tmp_path)
    with pytest.raises(OutputError):
        write_inspection(to_json(found), tmp_path / "net.tflite" / "page.html")


def test_constants_of_a_shape_are_bytes_too(tmp_path: Path) -> None:
    nodes = [helper.make_node("Add", ["x", "c"], ["y"])]
    found = inspected(onnx_model(nodes, {"x": [2, 3]}, {"y": [2, 3]}, {"c": np.ones((3,), np.float32)}), tmp_path)
    assert found.costs[0].moved_bytes == 4 * (6 + 3 + 6)
