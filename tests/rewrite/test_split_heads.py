"""A last concat taken apart where one scale would not do: what is split, what is not, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from before_after import outputs_of
from numpy.typing import NDArray
from tiny_models import TinyTflite

from edgekit.intake import tflite
from edgekit.rewrite import split_heads
from edgekit.rewrite.split_heads import LEVELS, Split
from edgekit.values import FloatModel, IoSpec, Piece, SourceModel

SHAPE = (1, 2, 3)
WIDE, NARROW = (-640.0, 0.0), (0.0, 1.0)


class Head:
    """Builds x (1,2,3), branches of it, and what joins them."""

    def __init__(self, folder: Path) -> None:
        self.tiny, self.path = TinyTflite(), folder / "head.tflite"
        self.x = self.tiny.tensor("x", SHAPE)
        self.shapes = {self.x: SHAPE}

    def new(self, name: str, shape: Sequence[int]) -> int:
        index = self.tiny.tensor(name, shape)
        self.shapes[index] = tuple(shape)
        return index

    def branch(self, kind: str, name: str) -> int:
        made = self.new(name, SHAPE)
        self.tiny.operator(kind, [self.x], [made])
        return made

    def times(self, tensor: int, factor: Any, name: str) -> int:
        factor = np.asarray(factor, np.float32)
        made = self.new(name, self.shapes[tensor])
        constant = self.tiny.tensor(f"{name}_factor", factor.shape, data=factor)
        self.tiny.operator("MUL", [tensor, constant], [made], fusedActivationFunction=0)
        return made

    def concat(self, parts: Sequence[int], axis: int, name: str = "y", activation: int = 0) -> int:
        shape = list(self.shapes.get(parts[0], SHAPE))
        shape[axis] = sum(self.shapes.get(part, SHAPE)[axis] for part in parts)
        made = self.new(name, shape)
        self.tiny.operator("CONCATENATION", parts, [made], axis=axis, fusedActivationFunction=activation)
        return made

    def reshape(self, tensor: int, shape: Sequence[int], name: str) -> int:
        made = self.new(name, shape)
        target = self.tiny.tensor(f"{name}_shape", [len(shape)], "int32", data=np.array(shape, np.int32))
        self.tiny.operator("RESHAPE", [tensor, target], [made], newShape=list(shape))
        return made

    def transpose(self, tensor: int, order: Sequence[int], name: str) -> int:
        made = self.new(name, [self.shapes[tensor][axis] for axis in order])
        axes = self.tiny.tensor(f"{name}_order", [len(order)], "int32", data=np.array(order, np.int32))
        self.tiny.operator("TRANSPOSE", [tensor, axes], [made])
        return made

    def model(self, *outputs: int) -> FloatModel:
        names = {index: item.name for index, item in enumerate(self.tiny.tensors)}
        model = self.tiny.model(self.tiny.graph([self.x], outputs))
        signature = self.tiny.schema.SignatureDefT()
        signature.signatureKey, signature.subgraphIndex = "serving_default", 0
        signature.inputs = [self._entry("x", self.x)]
        signature.outputs = [self._entry(f"out/{names[index]}", index) for index in outputs]
        model.signatureDefs = [signature]
        tflite.write(model, self.path)
        specs = tuple(
            IoSpec(f"out/{names[i]}", self.shapes[i], "float32", names[i], self.shapes[i], "float32") for i in outputs
        )
        given = IoSpec("x", SHAPE, "float32", "x", SHAPE, "float32")
        return FloatModel(self.path, SourceModel(self.path, "tflite", "", 0), (given,), specs, "none")

    def _entry(self, name: str, tensor: int) -> Any:
        entry = self.tiny.schema.TensorMapT()
        entry.name, entry.tensorIndex = name, tensor
        return entry


def samples() -> list[dict[str, NDArray[np.float32]]]:
    return [{"x": np.random.default_rng(seed).normal(0, 2, SHAPE).astype(np.float32)} for seed in range(3)]


def taken_apart(model: FloatModel, ranges: Mapping[str, Any], levels: int = LEVELS["int8"]) -> Split | None:
    to = model.path.with_name("split.tflite")
    return split_heads.split_heads(model, ranges, samples(), levels=levels, to=to)


def by_hand(piece: Piece, parts: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """The plan once more, as its description reads."""
    of = [by_hand(child, parts) for child in piece.of]
    return {
        "output": lambda: parts[piece.name],
        "concat": lambda: np.concatenate(of, piece.numbers[0]),
        "reshape": lambda: np.reshape(of[0], piece.numbers),
        "transpose": lambda: np.transpose(of[0], piece.numbers),
        "multiply": lambda: np.float32(piece.factor) * of[0],
    }[piece.op]()


def names_after(model: FloatModel, done: Split | None) -> list[str]:
    """The tensors that are outputs now, after checking that joined they are what ``model`` gives."""
    assert done is not None and done.model.answers == model.outputs
    before, after = tflite.read(model.path), tflite.read(done.model.path)
    for sample in samples():
        parts = dict(zip((s.name for s in done.model.outputs), outputs_of(after, sample["x"]), strict=True))
        for joined, expected in zip(done.model.joins, outputs_of(before, sample["x"]), strict=True):
            assert np.array_equal(by_hand(joined.plan, parts), expected)
    graph = tflite.graph(after)
    assert [spec.tensor for spec in done.model.outputs] == [graph.tensors[i].name for i in graph.outputs]
    assert graph.signatures[0].outputs == {s.name: i for s, i in zip(done.model.outputs, graph.outputs, strict=True)}
    assert not {tensor.name for tensor in graph.tensors} & done.gone
    return [spec.tensor for spec in done.model.outputs]


@pytest.mark.parametrize("axis", [1, 2, -1])
def test_each_part_is_an_output(tmp_path: Path, axis: int) -> None:
    head = Head(tmp_path)
    model = head.model(head.concat([head.branch("NEG", "boxes"), head.branch("LOGISTIC", "scores")], axis))
    done = taken_apart(model, {"boxes": WIDE, "scores": NARROW, "y": (-640, 1)})
    assert names_after(model, done) == ["boxes", "scores"]
    assert done is not None and done.gone == {"y"}
    assert [spec.name for spec in done.model.outputs] == ["out/y.part1", "out/y.part2"]
    assert [spec.slice_axis for spec in done.model.outputs] == [axis % 3] * 2
    assert done.left({"boxes": 1, "y": 2}) == {"boxes": 1}


@pytest.mark.parametrize(
    ("levels", "most", "split"),
    [
        (255, 160.0, True),  # 64 of 255 steps of 640 are 160.6
        (255, 161.0, False),
        (65535, 0.62, True),  # 64 of 65535 are 0.625
        (65535, 0.63, False),
    ],
)
def test_a_part_below_a_quarter_of_the_joint_range_is_split_off(
    tmp_path: Path, levels: int, most: float, split: bool
) -> None:
    head = Head(tmp_path)
    model = head.model(head.concat([head.branch("NEG", "boxes"), head.branch("LOGISTIC", "scores")], 1))
    ranges = {"boxes": (0.0, 640.0), "scores": (0.0, most)}
    assert (taken_apart(model, ranges, levels) is not None) == split
    assert len(split_heads.mixed_heads(model, ranges, levels=levels)) == split


def test_a_range_far_from_zero_is_as_wide_as_to_zero(tmp_path: Path) -> None:
    head = Head(tmp_path)
    model = head.model(head.concat([head.branch("NEG", "boxes"), head.branch("LOGISTIC", "scores")], 1))
    assert taken_apart(model, {"boxes": (0.0, 640.0), "scores": (600.0, 601.0)}) is None
    assert taken_apart(model, {"boxes": (0.0, 640.0), "scores": (0.0, 0.0)}) is None  # nothing to lose


def test_seen_through_views(tmp_path: Path) -> None:
    head = Head(tmp_path)
    boxes, scores = head.branch("NEG", "boxes"), head.branch("LOGISTIC", "scores")
    joined = head.concat([boxes, scores], 1, "joined")
    turned = head.transpose(joined, (0, 2, 1), "turned")
    model = head.model(head.reshape(turned, (3, 4), "y"))
    done = taken_apart(model, {"boxes": WIDE, "scores": NARROW})
    assert names_after(model, done) == ["boxes", "scores"]
    assert done is not None and done.gone == {"joined", "turned", "y"}


def test_alike_branches_of_a_mixed_head_stay_together(tmp_path: Path) -> None:
    head = Head(tmp_path)
    scores = head.concat([head.branch("LOGISTIC", "s1"), head.branch("TANH", "s2")], 2, "scores")
    wide = head.concat([head.branch("NEG", "b1"), head.branch("ABS", "b2")], 2, "wide")
    model = head.model(head.concat([scores, wide], 1))
    done = taken_apart(model, {"s1": NARROW, "s2": (-1.0, 1.0), "b1": WIDE, "b2": (0.0, 600.0)})
    assert names_after(model, done) == ["scores", "wide"]


def test_mixed_branches_are_taken_apart_too(tmp_path: Path) -> None:
    head = Head(tmp_path)
    first = head.concat([head.branch("NEG", "b1"), head.branch("LOGISTIC", "s1")], 2, "first")
    second = head.concat([head.branch("ABS", "b2"), head.branch("TANH", "s2")], 2, "second")
    model = head.model(head.concat([first, second], 1))
    done = taken_apart(model, {"b1": WIDE, "s1": NARROW, "b2": (0.0, 640.0), "s2": (-1.0, 1.0)})
    assert names_after(model, done) == ["b1", "s1", "b2", "s2"]


def test_a_last_multiplication_by_one_number_is_left_to_the_runtime(tmp_path: Path) -> None:
    head = Head(tmp_path)
    pixels = head.times(head.branch("LOGISTIC", "relative"), 640.1, "pixels")
    boxes = head.reshape(head.transpose(pixels, (0, 2, 1), "turned"), (1, 3, 2), "boxes")
    scores = head.reshape(head.branch("TANH", "t"), (1, 3, 2), "scores")
    model = head.model(head.concat([boxes, scores], 1))
    done = taken_apart(model, {"boxes": (0.0, 640.0), "scores": NARROW})
    assert names_after(model, done) == ["relative", "scores"]
    assert done is not None and [spec.slice_axis for spec in done.model.outputs] == [2, 1]


def test_a_multiplication_by_several_numbers_stays(tmp_path: Path) -> None:
    head = Head(tmp_path)
    boxes = head.times(head.branch("LOGISTIC", "relative"), [640.0, 320.0, 1.0], "boxes")
    model = head.model(head.concat([boxes, head.branch("TANH", "scores")], 1))
    done = taken_apart(model, {"boxes": (0.0, 640.0), "scores": NARROW})
    assert names_after(model, done) == ["boxes", "scores"]


def test_a_part_that_is_an_output_already_is_delivered_once(tmp_path: Path) -> None:
    head = Head(tmp_path)
    boxes, scores = head.branch("NEG", "boxes"), head.branch("LOGISTIC", "scores")
    model = head.model(scores, head.concat([boxes, scores, boxes], 1), head.branch("ABS", "other"))
    done = taken_apart(model, {"boxes": WIDE, "scores": NARROW, "other": WIDE})
    assert names_after(model, done) == ["scores", "boxes", "other"]


@pytest.mark.parametrize("why", ["read elsewhere", "fused activation", "an input", "a constant", "no range known"])
def test_what_cannot_be_taken_apart_stays_whole(tmp_path: Path, why: str) -> None:
    head = Head(tmp_path)
    parts = [head.branch("NEG", "boxes"), head.branch("LOGISTIC", "scores")]
    ranges = {"boxes": WIDE, "scores": NARROW, "x": NARROW, "k": NARROW}
    if why == "an input":
        parts.append(head.x)
    if why == "a constant":
        parts.append(head.tiny.tensor("k", SHAPE, data=np.ones(SHAPE, np.float32)))
    if why == "no range known":
        del ranges["scores"]
    outputs = [head.concat(parts, 1, activation=1 if why == "fused activation" else 0)]
    if why == "read elsewhere":
        outputs.append(head.new("again", head.shapes[outputs[0]]))
        head.tiny.operator("ABS", outputs[:1], outputs[1:])
    assert taken_apart(head.model(*outputs), ranges) is None


def test_it_is_not_used_unless_equal_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = Head(tmp_path)
    model = head.model(head.concat([head.branch("NEG", "boxes"), head.branch("LOGISTIC", "scores")], 1))
    true = split_heads.join

    def nearly(*given: Any) -> Any:
        return [np.nextafter(values, np.float32(np.inf)) for values in true(*given)]

    monkeypatch.setattr(split_heads, "join", nearly)
    assert taken_apart(model, {"boxes": WIDE, "scores": NARROW}) is None
