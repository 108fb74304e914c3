"""Which axes went where, where shapes cannot tell: channels, height and width are equal."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import networks
import numpy as np
import pytest
from numpy.typing import NDArray

from edgekit.errors import DataError, ParityError
from edgekit.intake import layout
from edgekit.values import IoSpec

TO_END, TO_FRONT = (0, 2, 3, 1), (0, 3, 1, 2)


class CubeBackend:
    """Adds to each value its position along the source's channel axis, wherever that lies in its own layout."""

    def __init__(self, *, last: bool, flipped_output: bool = False) -> None:
        self._axis = -1 if last else 1
        self._flipped = flipped_output

    def set_input(self, position: int, array: NDArray[Any]) -> None:
        self._x = array

    def invoke(self) -> None:
        weights = np.arange(1, 5, dtype=np.float32)
        self._y = self._x * (weights if self._axis == -1 else weights[:, None, None])

    def get_output(self, position: int) -> NDArray[Any]:
        return self._y.transpose(TO_FRONT) if self._flipped else self._y


def spec(name: str, shape: tuple[int, ...] = (1, 4, 4, 4), dtype: str = "float32", delivered: Any = None) -> IoSpec:
    return IoSpec(name, shape, dtype, name, delivered or shape, "float32", layout="nchw")


def truth(count: int = 2) -> tuple[list[dict[str, NDArray[Any]]], list[dict[str, NDArray[Any]]]]:
    samples = [{"x": networks.normal(1, 4, 4, 4, seed=seed)} for seed in range(count)]
    weights = np.arange(1, 5, dtype=np.float32)[:, None, None]
    return samples, [{"y": sample["x"] * weights} for sample in samples]


@pytest.mark.parametrize(
    ("backend", "expected"),
    [
        (CubeBackend(last=False), (None, None)),
        (CubeBackend(last=True), (TO_END, TO_END)),
        (CubeBackend(last=True, flipped_output=True), (TO_END, None)),
    ],
    ids=["left as it was", "channels last", "input last, output first"],
)
def test_the_order_is_found_by_running(backend: Any, expected: tuple[Any, Any]) -> None:
    inputs, outputs = layout.match(backend, [spec("x")], [spec("y")], *truth())
    assert (inputs[0].permutation, outputs[0].permutation) == expected


def test_orders_that_fit_the_shapes() -> None:
    assert layout.permutations((1, 3, 20, 30), (1, 20, 30, 3)) == [TO_END]
    assert layout.permutations((1, 20, 30, 3), (1, 3, 20, 30)) == [TO_FRONT]
    assert layout.permutations((1, 3, 20, 30), (1, 3, 20, 30)) == [None]
    assert layout.permutations((1, 4, 4, 4), (1, 4, 4, 4)) == [None, TO_END, TO_FRONT]
    assert layout.permutations((1, 3, 20, 30), (1, 30, 3, 20)) == [TO_FRONT]
    assert layout.permutations((1, 3, 20, 30), (1, 30, 20, 3)) == []
    assert layout.permutations((1, 7, 9), (1, 9, 7)) == [(0, 2, 1)]
    assert layout.permutations((3, 4), (4, 3)) == []  # never a transposed matrix
    assert layout.permutations((1, 3), (3,)) == []


def test_a_shape_that_no_order_explains_is_refused() -> None:
    with pytest.raises(ParityError, match=r"\[1, 4, 4, 4\] in the source and \[1, 64\] in the converted model"):
        layout.match(CubeBackend(last=False), [spec("x")], [spec("y", delivered=(1, 64))], *truth())  # type: ignore[arg-type]


def test_integers_do_not_become_floats_silently() -> None:
    with pytest.raises(ParityError, match="'x' is int64 in the source and float32 in the converted model"):
        layout.match(CubeBackend(last=False), [spec("x", dtype="int64")], [spec("y")], *truth())  # type: ignore[arg-type]


def test_delivered_takes_order_and_type() -> None:
    array = networks.normal(1, 2, 3, 4)
    half = dataclasses.replace(spec("x", (1, 2, 3, 4), "float16", (1, 3, 4, 2)), permutation=TO_END)
    got = layout.delivered(array.astype(np.float16), half)
    assert got.dtype == np.float32 and got.flags.c_contiguous
    np.testing.assert_array_equal(got, array.astype(np.float16).astype(np.float32).transpose(TO_END))
    narrow = IoSpec("ids", (1, 2), "int64", "ids", (1, 2), "int32")
    np.testing.assert_array_equal(layout.delivered(np.array([[1, -5]]), narrow), np.array([[1, -5]], np.int32))
    with pytest.raises(DataError, match="'ids' holds 4294967297, which does not fit into the int32"):
        layout.delivered(np.array([[1, 2**32 + 1]]), narrow)


def float_model(tmp_path: Path, frontend: str) -> tuple[Any, list[Any], list[Any]]:
    from edgekit.intake import frontends, onnx
    from edgekit.intake.session import Session

    path = networks.save(networks.cube(), tmp_path / "cube.onnx")
    samples = [{"x": networks.normal(1, 3, 3, 3, seed=seed)} for seed in range(4)]
    references = [networks.run_onnx(path, sample) for sample in samples]
    source = onnx.prepare(path, input_shapes={}, work=tmp_path)
    found = frontends.find(frontends.KINDS[frontend])
    assert found is not None
    with Session(found, tmp_path) as session:
        made = onnx.to_float(source, session, samples=samples, references=references, work=tmp_path, timeout_s=300)
    return made.model, samples, references


def test_a_cube_through_a_real_front_end_and_parity_that_notices(tmp_path: Path, frontend: str) -> None:
    """Channels, height and width are 3: the order is right, and parity refuses every wrong one and changed weights."""
    from edgekit.intake import tflite
    from edgekit.verify.parity import parity, require

    model, samples, references = float_model(tmp_path, frontend)
    assert [model.inputs[0].permutation, model.outputs[0].permutation] == [TO_END, TO_END]
    result = parity(model, samples, references, reference="truth", limit_db=80.0)
    assert result.passed and result.samples == 4
    require(result, model)
    for permutation in (None, TO_FRONT):
        wrong = dataclasses.replace(model, inputs=(dataclasses.replace(model.inputs[0], permutation=permutation),))
        found = parity(wrong, samples, references, reference="truth", limit_db=80.0)
        assert not found.passed
        with pytest.raises(ParityError, match=f"float model from {frontend} does not equal the source: output 'y'"):
            require(found, wrong)
    changed = tflite.read(model.path)
    weights = max(
        (b for b in changed.buffers if b.data is not None and len(b.data) == 4 * 81), key=lambda b: len(b.data)
    )
    values = np.frombuffer(bytes(weights.data), np.float32).copy()
    values[0] += 0.01
    weights.data = np.frombuffer(values.tobytes(), np.uint8)
    tflite.write(changed, tmp_path / "changed.tflite")
    perturbed = dataclasses.replace(model, path=tmp_path / "changed.tflite")
    found = parity(perturbed, samples, references, reference="truth", limit_db=80.0)
    # one weight of 27 of one channel: the others are exact, and the worst slice says which
    assert not found.passed and found.outputs[0].worst_slice is not None
    assert found.outputs[0].worst_slice.sqnr_db is not None and found.outputs[0].worst_slice.sqnr_db < 80
