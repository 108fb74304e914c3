"""The ends in the source's order of axes: the same numbers, turned back."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from before_after import kinds, outputs_of, reread
from tiny_models import TinyTflite

from edgekit.intake import tflite
from edgekit.rewrite import transpose_ends
from edgekit.values import IoSpec


def described(
    name: str, tensor: str, delivered: tuple[int, ...], permutation: tuple[int, ...] | None, dtype: str = "float32"
) -> IoSpec:
    """A spec whose source shape leads to ``delivered`` by ``permutation``."""
    source = delivered if permutation is None else tuple(delivered[i] for i in np.argsort(permutation))
    return IoSpec(name, source, dtype, tensor=tensor, shape=delivered, dtype=dtype, permutation=permutation)


def negated(shape: tuple[int, ...], dtype: str = "float32") -> Any:
    """``y`` = -``x``, with a signature in the source's names."""
    tiny = TinyTflite()
    x, y = tiny.tensor("x", shape, dtype), tiny.tensor("y", shape, dtype)
    tiny.operator("NEG", [x], [y])
    model = tiny.model(tiny.graph([x], [y]))
    signature, entries = tiny.schema.SignatureDefT(), []
    for name, index in (("image", x), ("map", y)):
        entry = tiny.schema.TensorMapT()
        entry.name, entry.tensorIndex = name, index
        entries.append(entry)
    signature.signatureKey, signature.subgraphIndex = "serving_default", 0
    signature.inputs, signature.outputs = entries[:1], entries[1:]
    model.signatureDefs = [signature]
    return reread(model)


@pytest.mark.parametrize("order", [(0, 2, 3, 1), (0, 3, 1, 2)])
@pytest.mark.parametrize("cube", [False, True])
def test_maps_come_and_go_in_the_sources_order(order: tuple[int, ...], cube: bool) -> None:
    shape = (1, 3, 3, 3) if cube else (1, 5, 6, 3)
    model = negated(shape)
    specs = described("image", "x", shape, order), described("map", "y", shape, order)
    (inputs, outputs), changes = transpose_ends.apply(model, specs[:1], specs[1:])
    model = reread(model)
    assert kinds(model) == ["TRANSPOSE", "NEG", "TRANSPOSE"] and len(changes) == 2
    source = np.random.default_rng(1).normal(size=specs[0].source_shape).astype(np.float32)
    np.testing.assert_array_equal(outputs_of(model, source)[0], -source)
    graph = tflite.graph(model)
    for spec, index, old in ((inputs[0], graph.inputs[0], specs[0]), (outputs[0], graph.outputs[0], specs[1])):
        assert spec == dataclasses.replace(
            old, tensor=graph.tensors[index].name, shape=old.source_shape, permutation=None
        )
        assert graph.tensors[index].shape == old.source_shape
    (signature,) = graph.signatures
    assert signature.inputs == {"image": graph.inputs[0]} and signature.outputs == {"map": graph.outputs[0]}


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_any_order_is_undone_on_both_sides_separately(order: tuple[int, ...]) -> None:
    shape = (2, 3, 4)
    source = np.arange(24, dtype=np.float32)
    model = negated(shape)
    spec = described("image", "x", shape, order)
    plain = described("map", "y", shape, None)
    (_, outputs), _ = transpose_ends.apply(model, [spec], [plain])
    assert outputs == (plain,)
    given = source.reshape(spec.source_shape)
    np.testing.assert_array_equal(outputs_of(reread(model), given)[0], -given.transpose(order))


@pytest.mark.parametrize("order", [(0, 2, 3, 4, 1), (0, 2, 3, 4, 5, 1)])
def test_more_axes_get_a_version_that_knows_them(order: tuple[int, ...]) -> None:
    shape = (1, 2, 3, 2, 3, 2)[: len(order)]
    model = negated(shape)
    spec = described("image", "x", shape, order)
    transpose_ends.apply(model, [spec], [described("map", "y", shape, order)])
    assert model.operatorCodes[-1].version > 1
    source = np.random.default_rng(2).normal(size=spec.source_shape).astype(np.float32)
    np.testing.assert_array_equal(outputs_of(reread(model), source)[0], -source)


def test_integers_are_turned_too() -> None:
    model = negated((1, 2, 3, 4), "int32")
    order = (0, 2, 3, 1)
    specs = [described(n, t, (1, 2, 3, 4), order, "int32") for n, t in (("image", "x"), ("map", "y"))]
    transpose_ends.apply(model, specs[:1], specs[1:])
    source = np.arange(24, dtype=np.int32).reshape(specs[0].source_shape)
    np.testing.assert_array_equal(outputs_of(reread(model), source)[0], -source)


def test_nothing_to_turn_changes_nothing() -> None:
    model = negated((1, 4))
    before = tflite.serialize(model)
    ends, changes = transpose_ends.apply(
        model, [described("image", "x", (1, 4), None)], [described("map", "y", (1, 4), None)]
    )
    assert changes == () and ends[0][0].tensor == "x"
    assert tflite.serialize(model) == before
