"""A fault is planted into a conversion; the search has to come back with that node and no other."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from tiny_models import onnx_model

from edgekit.errors import ConversionError, ParityError
from edgekit.intake import frontends, locate
from edgekit.intake.choose import Truth, choose
from edgekit.intake.door import Delivered, DoorOptions, Sample
from edgekit.intake.onnx import OnnxRoute, OnnxSource, open_model
from edgekit.runtime.backend import open_backend
from edgekit.stages import Silent, Stages
from edgekit.verify.measures import sqnr_db

LIMIT_DB = 80.0


def network(odd: str, *, before: int = 6, after: int = 6, **attributes: Any) -> Any:
    """Convolutions with ReLU in a row, ``odd`` in the place of one of those, and a second branch that goes past it."""
    rng = np.random.default_rng(3)
    nodes, constants, last = [], {}, "x"
    for number in range(before + after):
        constants[f"w{number}"] = (rng.normal(size=(4, 4, 3, 3)) / 6).astype(np.float32)
        nodes.append(
            helper.make_node("Conv", [last, f"w{number}"], [f"c{number}"], name=f"conv {number}", pads=[1] * 4)
        )
        last = f"c{number}"
        if number == before:
            nodes.append(helper.make_node(odd, [last], ["odd out"], name="deep/odd one", **attributes))
            last = "odd out"
            continue
        nodes.append(helper.make_node("Relu", [last], [f"r{number}"], name=f"relu {number}"))
        last = f"r{number}"
    nodes.append(helper.make_node("GlobalAveragePool", ["r0"], ["side"], name="side branch"))
    nodes.append(helper.make_node("GlobalAveragePool", [last], ["y"], name="end"))
    return onnx_model(nodes, {"x": [1, 4, 10, 10]}, {"y": [1, 4, 1, 1], "side": [1, 4, 1, 1]}, constants)


@dataclasses.dataclass(frozen=True)
class Sabotaged(OnnxRoute):
    """A front end with a fault: it leaves ELU out, or refuses SELU (saying nothing of where)."""

    words: str = "it cannot"
    second_attempt: None = None

    def convert(self, samples: Sequence[Sample], references: Sequence[Sample], **given: Any) -> Delivered:
        model = onnx.load(str(self.onnx.plain))
        for node in model.graph.node:
            if node.op_type == "Selu":
                raise ConversionError(f"the front end failed: {self.words}")
            if node.op_type == "Elu":
                node.op_type = "Identity"
                del node.attribute[:]
        wrong = given["work"] / "sabotaged.onnx"
        onnx.save(model, str(wrong))
        source = dataclasses.replace(self.onnx, plain=wrong)
        honest = OnnxRoute(source, self.frontend, self.session)
        return honest.convert(samples, references, **given)


def opened(model: Any, folder: Path, frontend: str) -> tuple[OnnxSource, Truth]:
    path = folder / "net.onnx"
    onnx.save(model, str(path))
    door = open_model(path, DoorOptions(folder, frontend=frontend))
    reference = door.reference(threads=1)
    rng = np.random.default_rng(7)
    samples = [{"x": rng.normal(size=(1, 4, 10, 10)).astype(np.float32)} for _ in range(2)]
    return door, Truth(reference.name, samples, [reference.run(sample) for sample in samples])


def chosen(model: Any, folder: Path, frontend: str, **given: Any) -> ConversionError:
    """The error of a choice among one sabotaged route."""
    door, truth = opened(model, folder, frontend)
    found = frontends.find(frontends.kind_named(frontend))
    assert found is not None
    route = Sabotaged(door, found, **given)
    with pytest.raises(ConversionError) as caught:
        choose(door, [route], truth, limit_db=LIMIT_DB, work=folder, timeout_s=120, stages=Stages(Silent()))
    return caught.value


def test_values_that_part_are_led_back_to_the_node(frontend: str, tmp_path: Path) -> None:
    error = chosen(network("Elu", alpha=1.5), tmp_path, frontend)
    assert isinstance(error, ParityError)
    located = error.details["located"]
    assert [node["name"] for node in located["nodes"]] == ["deep/odd one"]
    assert (located["nodes"][0]["operator"], located["nodes"][0]["attributes"]) == ("Elu", {"alpha": 1.5})
    assert (located["what"], located["tensor"]) == ("differs", "odd out")
    assert 0 < located["max_abs_error"] < 1
    assert located["conversions"] <= locate.CONVERSIONS
    assert "the two part at node 'deep/odd one' (Elu, alpha=1.5): value 'odd out' differs by up to" in error.message
    assert error.hint.startswith("Elu: ")


def test_a_node_that_cannot_be_converted_is_found_by_halving(any_frontend: str, tmp_path: Path) -> None:
    error = chosen(network("Selu"), tmp_path, any_frontend)
    located = error.details["located"]
    assert (located["what"], [node["name"] for node in located["nodes"]]) == ("fails", ["deep/odd one"])
    assert located["nodes"][0]["inputs"] == ("c6 [1, 4, 10, 10]",)
    assert located["conversions"] <= 5  # 26 nodes
    assert "everything before node 'deep/odd one' (Selu) can be converted" in error.message


def test_a_name_in_the_last_words_shortens_the_search(any_frontend: str, tmp_path: Path) -> None:
    model = network("Selu")
    next(node for node in model.graph.node if node.op_type == "Selu").name = "deep/odd"
    error = chosen(model, tmp_path, any_frontend, words="NotImplementedError: no rule. op=deep/odd reason=none")
    assert [node["name"] for node in error.details["located"]["nodes"]] == ["deep/odd"]
    assert error.details["located"]["conversions"] == 2


def test_without_time_the_first_error_stands(any_frontend: str, tmp_path: Path) -> None:
    door, truth = opened(network("Selu"), tmp_path, any_frontend)
    found = frontends.find(frontends.kind_named(any_frontend))
    assert found is not None
    ways = {"limit_db": LIMIT_DB, "work": tmp_path, "timeout_s": 120, "stages": Stages(Silent()), "locate_s": 0}
    with pytest.raises(ConversionError) as caught:
        choose(door, [Sabotaged(door, found)], truth, **ways)
    assert caught.value.message == "the front end failed: it cannot"
    assert "located" not in caught.value.details


def test_the_search_itself_never_fails(any_frontend: str, tmp_path: Path) -> None:
    """Not with a sample that does not fit, nor where nothing can be written."""
    door, truth = opened(network("Selu"), tmp_path, any_frontend)
    found = frontends.find(frontends.kind_named(any_frontend))
    assert found is not None
    error = ConversionError("it cannot")
    sought: Callable[..., Any] = locate.locate
    ways = {"limit_db": LIMIT_DB, "tick": lambda: None}
    assert sought(Sabotaged(door, found), error, None, [{"x": np.zeros(3, np.float32)}], work=tmp_path, **ways) is None
    assert sought(Sabotaged(door, found), error, None, truth.samples, work=tmp_path / "nowhere", **ways) is None


def test_tensors_that_kept_their_names_are_those_values(tmp_path: Path, any_frontend: str) -> None:
    """The side table, against both runtimes: each tensor holds what the source computes under that name."""
    from edgekit.intake.layout import delivered, permutations, permuted
    from edgekit.intake.onnx_cut import Cuttable

    model = network("Elu", alpha=1.0)
    door, truth = opened(model, tmp_path, any_frontend)
    found = frontends.find(frontends.kind_named(any_frontend))
    assert found is not None
    ways = {"limit_db": LIMIT_DB, "work": tmp_path, "timeout_s": 120, "stages": Stages(Silent())}
    made, _, _ = choose(door, [OnnxRoute(door, found)], truth, **ways)
    if any_frontend == "onnx2tf":
        assert len(made.tensor_sources) >= 8
    sample = truth.samples[1]  # not the one that the table was made with
    values = Cuttable(model).all_values(sample, tmp_path)
    with open_backend(made.path, delegate=False, preserve_all_tensors=True) as backend:
        backend.set_input(0, delivered(sample["x"], made.inputs[0]))
        backend.invoke()
        by_name = {detail.name: detail for detail in backend.tensor_details()}
        for tensor, value in made.tensor_sources.items():
            got = backend.read_tensor(by_name[tensor].index)
            ratios = [
                sqnr_db(permuted(values[value], order), got) for order in permutations(values[value].shape, got.shape)
            ]
            assert max(ratios) > LIMIT_DB, (tensor, value)
