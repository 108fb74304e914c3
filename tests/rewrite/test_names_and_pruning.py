"""Tensor names are unique and not empty; what nobody uses is gone and what is left still computes the same."""

from __future__ import annotations

import numpy as np
from before_after import outputs_of, reread
from tiny_models import TinyTflite, float_conv_tflite

from edgekit.intake import tflite
from edgekit.rewrite import prune, unique_names


def test_empty_and_repeated_names_become_unique_and_the_ends_keep_theirs() -> None:
    tiny = TinyTflite()
    a, b, c, d = (tiny.tensor(name, (1, 2)) for name in ("same", "", "same_2", "same"))
    tiny.operator("ABS", [a], [b])
    tiny.operator("NEG", [b], [c])
    tiny.operator("ABS", [c], [d])
    model = reread(tiny.model(tiny.graph([a], [d])))
    x = np.float32([[-1, 2]])
    before = outputs_of(model, x)[0]
    changes = unique_names.apply(model)
    names = [tensor.name for tensor in tflite.graph(reread(model)).tensors]
    assert names == ["same", "tensor_1", "same_2", "same_3"]  # same_2 was there before
    assert len(changes) == 2
    np.testing.assert_array_equal(outputs_of(model, x)[0], before)
    assert unique_names.apply(model) == ()


def test_an_output_keeps_its_name_when_an_inner_tensor_has_it_too() -> None:
    tiny = TinyTflite()
    x, inner, y = (tiny.tensor(name, (1, 2)) for name in ("x", "y", "y"))
    tiny.operator("ABS", [x], [inner])
    tiny.operator("NEG", [inner], [y])
    model = reread(tiny.model(tiny.graph([x], [y])))
    unique_names.apply(model)
    assert [tensor.name for tensor in tflite.graph(model).tensors] == ["x", "y_2", "y"]


def test_pruning_takes_what_is_unused_and_nothing_else() -> None:
    model = reread(float_conv_tflite())
    x = np.random.default_rng(1).normal(size=(1, 8, 8, 3)).astype(np.float32)
    before = outputs_of(model, x)[0]
    size = len(tflite.serialize(model))
    assert prune.apply(model) == ()
    # an orphan in front of everything, so that every index moves
    from ai_edge_litert import schema_py_generated as schema

    orphan, buffer, code = schema.TensorT(), schema.BufferT(), schema.OperatorCodeT()
    buffer.data = np.zeros(4000, np.uint8)
    orphan.name, orphan.shape, orphan.type, orphan.buffer = "orphan", [1000], 0, 1
    graph = model.subgraphs[0]
    for operator in graph.operators:
        operator.inputs = [index + 1 for index in operator.inputs]
        operator.outputs = [index + 1 for index in operator.outputs]
        operator.opcodeIndex += 1
    graph.inputs, graph.outputs = [i + 1 for i in graph.inputs], [i + 1 for i in graph.outputs]
    for tensor in graph.tensors:
        tensor.buffer += 1 if tensor.buffer else 0
    graph.tensors.insert(0, orphan)
    model.buffers.insert(1, buffer)
    code.builtinCode = schema.BuiltinOperator.NEG
    model.operatorCodes.insert(0, code)
    model = reread(model)
    np.testing.assert_array_equal(outputs_of(model, x)[0], before)
    assert prune.apply(model) == ("1 unused tensors and 1 unused buffers taken out",)
    assert len(tflite.serialize(model)) == size
    np.testing.assert_array_equal(outputs_of(reread(model), x)[0], before)
