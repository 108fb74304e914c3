"""O12: a max-pool padded with the lowest float, behind a convolution without an activation, costs int8 nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networks
import numpy as np
import pytest
from bundles import Bundle, convert
from onnx import helper
from open_cases import run_bundle, sqnr_db, truth
from tiny_models import onnx_model


@dataclass(frozen=True)
class Pool:
    """x (1,3,size,size), Conv 3x3 to 8 channels plus ``offset``, a padded MaxPool; ``pads`` as ONNX has them: top, left, bottom, right.

    ``behind``: the values go on through another convolution and an average, so that a dead scale would show in every answer.
    """

    kernel: int = 3
    stride: int = 2
    pads: tuple[int, int, int, int] = (1, 1, 1, 1)
    offset: float = 0.0
    size: int = 16
    behind: bool = False

    def network(self) -> Any:
        last = "p" if self.behind else "y"
        nodes = [
            helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1] * 4),
            helper.make_node(
                "MaxPool", ["c"], [last], kernel_shape=[self.kernel] * 2, strides=[self.stride] * 2, pads=self.pads
            ),
        ]
        if self.behind:
            nodes.append(helper.make_node("Conv", ["p", "v"], ["d"]))
            nodes.append(helper.make_node("GlobalAveragePool", ["d"], ["y"]))
        weights = {"w": networks.normal(8, 3, 3, 3, seed=1) * np.float32(0.3), "b": np.full(8, self.offset, np.float32)}
        weights |= {"v": networks.normal(5, 8, 1, 1, seed=2)} if self.behind else {}
        return onnx_model(nodes, {"x": [1, 3, self.size, self.size]}, {"y": None}, weights)


KINDS = {
    "both signs": Pool(),
    "all negative": Pool(offset=-10.0),
    "stride 1": Pool(kernel=5, stride=1, pads=(2, 2, 2, 2), size=9),
    "stride 1, all negative": Pool(kernel=5, stride=1, pads=(2, 2, 2, 2), size=9, offset=-25.0),
    "one side": Pool(kernel=2, pads=(0, 0, 1, 1), size=11, offset=-10.0),
    "other side": Pool(pads=(1, 1, 0, 0), size=12, offset=-10.0),
    "wide window": Pool(kernel=7, stride=3, pads=(3, 3, 3, 3), size=20, offset=-15.0),
    "all positive": Pool(offset=10.0),
    "network goes on": Pool(offset=-10.0, behind=True),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_the_border_costs_nothing(tmp_path: Path, any_frontend: str, kind: Pool) -> None:
    np.savez(tmp_path / "data.npz", x=networks.normal(60, 3, kind.size, kind.size, seed=2))
    path = networks.save(kind.network(), tmp_path / "net.onnx")
    made = convert(path, tmp_path / "data.npz", tmp_path / "out", frontend=any_frontend)
    assert made.manifest["verification"]["passed"] and made.manifest["verification"]["audit"]["full_integer"]
    assert made.manifest["verification"]["parity"]["outputs"][0]["max_abs_error"] < 1e-4
    samples = [{"x": networks.normal(1, 3, kind.size, kind.size, seed=100 + i)} for i in range(8)]
    expected = np.stack([truth(kind.network(), sample)["y"] for sample in samples])
    got = np.stack([run_bundle(made, sample)["y"] for sample in samples])
    assert sqnr_db(expected, got) > 35.0
    assert sqnr_db(expected - expected.mean(), got - expected.mean()) > 25.0  # an offset is easily right
    plain = np.stack([without_delegate(made, sample["x"]) for sample in samples])
    assert sqnr_db(expected, plain) > 35.0


def without_delegate(made: Bundle, x: Any) -> Any:
    """The int8 file by the plain kernels, which turn the lowest float into the highest integer where one has to be quantised."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    run = Interpreter(str(made.delivered), experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    run.allocate_tensors()
    given, taken = run.get_input_details()[0], run.get_output_details()[0]
    orders = [made.manifest[side][0]["permutation"] for side in ("inputs", "outputs")]
    x = x if orders[0] is None else x.transpose(orders[0])
    scale, zero_point = given["quantization"]
    run.set_tensor(given["index"], np.clip(np.rint(x / scale) + zero_point, -128, 127).astype(np.int8))
    run.invoke()
    scale, zero_point = taken["quantization"]
    y = (run.get_tensor(taken["index"]).astype(np.float64) - zero_point) * scale
    return y if orders[1] is None else y.transpose(np.argsort(orders[1]))
