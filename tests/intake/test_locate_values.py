"""A front end for Keras and SavedModels that spoils one layer: the search names that layer, by the source's own words."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow_files as files
from bundles import SAMPLES

from edgekit.errors import ParityError
from edgekit.intake import tflite
from edgekit.intake.choose import Truth, choose
from edgekit.intake.door import Delivered, DoorOptions, Sample, open_door
from edgekit.intake.layout import delivered
from edgekit.intake.tensorflow_model import TensorflowRoute
from edgekit.runtime.backend import open_backend
from edgekit.stages import Silent, Stages
from edgekit.values import FloatModel


@dataclasses.dataclass(frozen=True)
class Spoiling(TensorflowRoute):
    """The honest converter, after which the bias of the ``spoiled``-th convolution or dense layer is off by a half."""

    spoiled: int = 0

    def convert(self, samples: Sequence[Sample], references: Sequence[Sample], **given: Any) -> Delivered:
        made = super().convert(samples, references, **given)
        model = tflite.read(made.model.path)
        graph = tflite.graph(model)
        kinds = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
        operator = [item for item in graph.operators if item.name in kinds][self.spoiled]
        tensor = model.subgraphs[0].tensors[operator.inputs[2]]
        values = np.frombuffer(bytes(model.buffers[tensor.buffer].data), np.float32) + np.float32(0.5)
        model.buffers[tensor.buffer].data = np.frombuffer(values.tobytes(), np.uint8)
        tflite.write(model, made.model.path)
        return made


def tried(path: Path, work: Path, spoiled: int | None) -> FloatModel:
    work.mkdir()
    with open_door(path, DoorOptions(work)) as door:
        rng = np.random.default_rng(3)
        samples = [
            {s.name: rng.normal(size=s.source_shape).astype(s.source_dtype) for s in door.inputs} for _ in range(3)
        ]
        reference = door.reference(threads=1)
        truth = Truth(reference.name, samples, [reference.run(sample) for sample in samples])
        (honest,) = door.routes()
        assert isinstance(honest, TensorflowRoute)
        route: Any = honest if spoiled is None else Spoiling(honest.door, spoiled)
        ways: dict[str, Any] = {"limit_db": 80.0, "work": work, "timeout_s": 300, "stages": Stages(Silent())}
        return choose(door, [route], truth, **ways)[0]


FORMS = ("fashion_relu6.keras", "fashion_relu6_savedmodel")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("spoiled", "layer"), [(0, "stem"), (3, ""), (-1, "logits")])
def test_the_spoiled_layer_is_named(form: str, spoiled: int, layer: str, tmp_path: Path) -> None:
    files.python()
    if not layer:  # the format's own converter keeps the names of what it fused in the name of the result
        graph = tflite.graph_of(tried(SAMPLES / form, tmp_path / "honest", None).path)
        kinds = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
        operator = [item for item in graph.operators if item.name in kinds][spoiled]
        layer = graph.tensors[operator.outputs[0]].name
    with pytest.raises(ParityError, match="the two part at") as caught:
        tried(SAMPLES / form, tmp_path / "spoiled", spoiled)
    named = caught.value.details["located"]["note"].split("'")[1]
    assert named in layer or layer in named, (named, layer)


@pytest.mark.parametrize("form", FORMS)
def test_the_side_table_says_what_tensors_hold(form: str, tmp_path: Path) -> None:
    """On an input that the table was not made with, against the frozen graph."""
    files.python()
    made = tried(SAMPLES / form, tmp_path / "made", None)
    graph = tflite.graph_of(made.path)
    assert len(made.tensor_sources) >= 0.7 * len(graph.operators)
    sample = {made.inputs[0].name: np.random.default_rng(9).normal(size=made.inputs[0].source_shape).astype(np.float32)}
    (tmp_path / "again").mkdir()
    with open_door(SAMPLES / form, DoorOptions(tmp_path / "again")) as door:
        values = {node["name"]: node["array"] for node in door.inside(sample)}  # type: ignore[attr-defined]
    by_name = {tensor.name: tensor.index for tensor in graph.tensors}
    with open_backend(made.path, delegate=False, preserve_all_tensors=True) as backend:
        backend.set_input(0, delivered(sample[made.inputs[0].name], made.inputs[0]))
        backend.invoke()
        for tensor, name in made.tensor_sources.items():
            got = backend.read_tensor(by_name[tensor])
            np.testing.assert_allclose(got, values[name].reshape(got.shape), rtol=1e-3, atol=1e-4, err_msg=tensor)
