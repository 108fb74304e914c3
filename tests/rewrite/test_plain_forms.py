"""Operators said by others: the same values in float, and operators that the int8 engine takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from before_after import kinds, outputs_of, reread
from tiny_models import TinyTflite

from edgekit.rewrite import plain_forms

X = np.random.default_rng(5).normal(size=(1, 4, 3)).astype(np.float32) * 3


def single(op: str, shape: tuple[int, ...], more: tuple[Any, ...] = (), **options: Any) -> Any:
    """``x`` (1,4,3), the operator, ``y`` of ``shape``."""
    tiny = TinyTflite()
    x, y = tiny.tensor("x", (1, 4, 3)), tiny.tensor("y", shape)
    words = {"f": "float32", "i": "int32"}
    constants = [
        tiny.tensor(f"more{index}", value.shape, words[value.dtype.kind], data=value)
        for index, value in enumerate(map(np.asarray, more))
    ]
    tiny.operator(op, [x, *constants], [y], **options)
    return reread(tiny.model(tiny.graph([x], [y])))


@pytest.mark.parametrize(
    ("model", "expected", "form"),
    [
        (single("SQUARE", (1, 4, 3)), X * X, "MUL"),
        (single("POW", (1, 4, 3), (np.float32(2.0),)), X * X, "MUL"),
        (single("NEG", (1, 4, 3)), -X, "MUL"),
        (single("SQUEEZE", (4, 3), squeezeDims=[0]), X[0], "RESHAPE"),
        (single("EXPAND_DIMS", (1, 1, 4, 3), (np.int32(0),)), X[None], "RESHAPE"),
    ],
    ids=["square", "power", "negative", "squeeze", "expand"],
)
def test_the_same_values_by_another_operator(model: Any, expected: Any, form: str) -> None:
    said = plain_forms.apply(model)
    assert len(said) == 1 and form in said[0]
    model = reread(model)
    assert kinds(model) == [form]
    np.testing.assert_array_equal(outputs_of(model, X)[0], expected.astype(np.float32))


def test_another_power_stays() -> None:
    assert plain_forms.apply(single("POW", (1, 4, 3), (np.float32(3.0),))) == ()
