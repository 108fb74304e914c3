"""The plan of the arena against the interpreter's own: the addresses of its tensors, without a delegate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import TinyTflite, float_conv_tflite, shared

from edgekit.intake import tflite
from edgekit.intake.arena import Life, arena_peak, lives, planned_bytes


def graph_of(model: Any) -> tflite.Graph:
    return tflite.graph(tflite.read(tflite.serialize(model)))


def measured_bytes(path: Path) -> int:
    """From the lowest to the highest byte that the interpreter gave to an activation."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(model_path=str(path), experimental_op_resolver_type=resolver)
    interpreter.allocate_tensors()
    low, high = [], []
    for life in lives(tflite.graph(tflite.read(path))) or ():
        view = interpreter.tensor(life.tensor)()
        low.append(view.__array_interface__["data"][0])
        high.append(low[-1] + view.nbytes)
        del view
    return max(high) - min(low)


def chain(sizes: list[int]) -> Any:
    """ABS after ABS has one size only, so the sizes change through TILE."""
    tiny = TinyTflite()
    previous = first = tiny.tensor("t0", (sizes[0],))
    for number, (size, last) in enumerate(zip(sizes[1:], sizes, strict=False), start=1):
        times = tiny.tensor(f"n{number}", (1,), "int32", data=np.array([size // last], np.int32))
        result = tiny.tensor(f"t{number}", (size,))
        tiny.operator("TILE", [previous, times], [result])
        previous = result
    return tiny.model(tiny.graph([first], [previous]))


def test_the_peak_by_hand() -> None:
    found = arena_peak(graph_of(float_conv_tflite()))
    assert found is not None
    # the input's 768 bytes throughout, convolution 256 and its flat copy 256
    assert (found.peak_bytes, found.operator, found.tensor) == (1280, "RESHAPE", "flat")
    assert [(item.tensor, item.producer, item.size_bytes) for item in found.holders] == [
        ("x", "input", 768),
        ("conv", "CONV_2D", 256),
        ("flat", "RESHAPE", 256),
    ]


@pytest.mark.parametrize("sizes", [[8, 16, 64], [100, 300, 600, 1200], [7, 7, 49, 343]])
def test_the_plan_is_the_interpreters(sizes: list[int], tmp_path: Path) -> None:
    path = tmp_path / "chain.tflite"
    tflite.write(chain(sizes), path)
    found = arena_peak(tflite.graph(tflite.read(path)))
    assert found is not None
    assert found.planned_bytes == measured_bytes(path)
    assert found.peak_bytes <= found.planned_bytes < found.peak_bytes + 64 * len(sizes)


def test_a_real_network(tmp_path: Path) -> None:
    path = shared("models/kws_ref_model.tflite")
    found = arena_peak(tflite.graph(tflite.read(path)))
    assert found is not None
    assert found.planned_bytes == measured_bytes(path)


def test_two_that_never_meet_share_their_place() -> None:
    apart = [Life(0, "a", 100, 0, 1, False), Life(1, "b", 100, 2, 3, False), Life(2, "c", 64, 1, 2, False)]
    assert planned_bytes(apart) == 128 + 64


def test_a_variable_lives_throughout() -> None:
    tiny = TinyTflite()
    x, y, z, state = (tiny.tensor(name, (16,)) for name in ("x", "y", "z", "state"))
    tiny.tensors[state].isVariable = True
    tiny.operator("ABS", [x], [y])
    tiny.operator("ADD", [y, state], [z])
    found = lives(graph_of(tiny.model(tiny.graph([x], [z]))))
    assert found is not None
    assert {life.name: (life.first, life.last) for life in found} == {
        "x": (0, 1), "y": (0, 1), "z": (1, 1), "state": (0, 1),
    }  # fmt: skip


def test_a_size_that_depends_on_the_data_has_no_peak() -> None:
    tiny = TinyTflite()
    x = tiny.tensor("x", (4,))
    y = tiny.tensor("y", (1,), signature=(-1,))
    tiny.operator("ABS", [x], [y])
    assert arena_peak(graph_of(tiny.model(tiny.graph([x], [y])))) is None
