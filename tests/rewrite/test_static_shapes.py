"""Open sizes fixed in the file: as if the interpreter had been told to resize."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from before_after import outputs_of, reread
from tiny_models import TinyTflite

from edgekit.intake import tflite
from edgekit.rewrite import static_shapes


def test_every_tensor_gets_the_size_that_the_interpreter_gives_it(tmp_path: Path) -> None:
    from ai_edge_litert.interpreter import Interpreter

    tiny = TinyTflite()
    x = tiny.tensor("x", (1, 4), signature=(-1, 4))
    doubled = tiny.tensor("doubled", (1, 4), signature=(-1, 4))
    sizes = tiny.tensor("sizes", (2,), "int32")
    flat = tiny.tensor("flat", (1, 4), signature=(-1, 4))  # a RESHAPE by sizes that are known at run time only
    tiny.operator("ADD", [x, x], [doubled])
    tiny.operator("SHAPE", [doubled], [sizes], outType=2)
    tiny.operator("RESHAPE", [doubled, sizes], [flat])
    original = tflite.serialize(tiny.model(tiny.graph([x], [flat])))
    value = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
    told = Interpreter(model_content=original)
    told.resize_tensor_input(0, (3, 4))
    told.allocate_tensors()
    told.set_tensor(0, value)
    told.invoke()

    model = tflite.read(original)
    static_shapes.set_inputs(model, {0: (3, 4)})
    path = tmp_path / "static.tflite"
    tflite.write(model, path)
    assert static_shapes.record(model, path) == ("2 tensors behind the inputs have their own size now",)
    model = reread(model)
    assert [tensor.shape for tensor in tflite.graph(model).tensors] == [(3, 4), (3, 4), (2,), (3, 4)]
    assert not any(tensor.has_open_size for tensor in tflite.graph(model).tensors)
    np.testing.assert_array_equal(outputs_of(model, value)[0], told.get_tensor(told.get_output_details()[0]["index"]))
