"""Where a conversion from Keras or a SavedModel goes wrong: the first layer whose value no tensor of the result holds.

The frozen graph keeps the names of layers as scopes, and every value in it is known on real samples. What the converted model computed
rightly is recognised by value, whatever its tensors are called; what is left between that and a wrong output holds the fault.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.errors import EdgekitError
from edgekit.intake import tflite
from edgekit.intake.locate import CLEARLY_WRONG_DB, Parting
from edgekit.intake.matching import MATCHING_SAMPLES, by_value, equal_values, inner_tensors
from edgekit.intake.onnx_cut import NodeWords
from edgekit.intake.tensorflow_model import TensorflowRoute
from edgekit.values import FloatModel

Sample = Mapping[str, NDArray[Any]]
_COURTESY = (EdgekitError, OSError, ValueError, KeyError, IndexError, RuntimeError, TypeError, MemoryError)
_NO_WORK = frozenset(("Identity", "IdentityN", "NoOp", "Placeholder", "StopGradient"))


@dataclasses.dataclass(frozen=True)
class Inside:
    """The graph of the source in order of computation, and the value of each node for each sample (nodes without one left out)."""

    nodes: tuple[Mapping[str, Any], ...]
    values: tuple[dict[str, NDArray[Any]], ...]

    @classmethod
    def of(cls, route: TensorflowRoute, samples: Sequence[Sample]) -> Inside:
        """Raises what the worker answers."""
        seen = [route.door.inside(sample) for sample in samples]
        values = tuple({n["name"]: n["array"] for n in nodes if n["array"] is not None} for nodes in seen)
        plain = tuple({key: value for key, value in node.items() if key != "array"} for node in seen[0])
        return cls(plain, values)

    def ancestors(self, names: set[str]) -> set[str]:
        """The nodes that ``names`` are computed from, themselves included."""
        found = set(names)
        for node in reversed(self.nodes):
            if node["name"] in found:
                found.update(node["reads"])
        return found


def tensor_sources(route: TensorflowRoute, made: FloatModel, samples: Sequence[Sample]) -> dict[str, str]:
    """Tensors of ``made`` that hold a value of the source: tensor to the node that computes it. Empty where that cannot be found out."""
    try:
        chosen = samples[:MATCHING_SAMPLES]
        inside, graph = Inside.of(route, chosen), tflite.graph_of(made.path)
        telling = {node["name"] for node in inside.nodes if node["operator"] not in _NO_WORK}
        values = [{name: value for name, value in one.items() if name in telling} for one in inside.values]
        known = by_value([inner_tensors(made, sample) for sample in chosen], values, known={})
        return dict(sorted((graph.tensors[index].name, name) for index, name in known.items()))
    except _COURTESY:
        return {}


def locate(route: TensorflowRoute, made: FloatModel, samples: Sequence[Sample], *, limit_db: float) -> Parting | None:
    """The first layer where ``made`` and the source part; None when that cannot be found. Never raises."""
    try:
        chosen = samples[:MATCHING_SAMPLES]
        inside, tensors = Inside.of(route, chosen), [inner_tensors(made, sample) for sample in chosen]
        for threshold in (CLEARLY_WRONG_DB, limit_db):
            found = _first(inside, equal_values(tensors, inside.values, threshold), len(route.door.output_names))
            if found:
                return _parting(inside, found)
    except _COURTESY:
        return None  # the search is a courtesy: the first error stands without it
    return None


def _first(inside: Inside, equal: set[str], outputs: int) -> list[Mapping[str, Any]]:
    """The nodes of the first layer of which something is wrong, in order: nothing before them is, and they lead to a wrong output."""
    inputs = {node["name"] for node in inside.nodes if node["operator"] == "Placeholder"}
    ends = [node["name"] for node in inside.nodes if not _read(inside, node["name"])][-outputs:]
    wrong = {name for name in ends if name in inside.values[0]} - equal
    suspects = inside.ancestors(wrong) - inside.ancestors(equal) - inputs
    ordered = [node for node in inside.nodes if node["name"] in suspects and node["operator"] not in _NO_WORK]
    if not ordered:
        return []
    layer = layer_of(ordered[0]["name"])
    return [node for node in ordered if layer_of(node["name"]) == layer]


def _read(inside: Inside, name: str) -> bool:
    return any(name in node["reads"] for node in inside.nodes)


def layer_of(name: str) -> str:
    """The scope that a node lies in: a layer of Keras, as ``functional_1/stem_1`` of ``functional_1/stem_1/Relu``."""
    return name.rpartition("/")[0] or name


def _parting(inside: Inside, nodes: Sequence[Mapping[str, Any]]) -> Parting:
    shown = nodes if len(nodes) < 3 else [nodes[0], *nodes[1:-1], nodes[-1]]
    words = tuple(
        NodeWords(
            name=node["name"],
            operator=node["operator"],
            attributes={},
            inputs=tuple(_shaped(inside, name) for name in node["reads"]),
            outputs=(_shaped(inside, node["name"]),),
        )
        for node in shown
    )
    note = f"layer {layer_of(nodes[0]['name'])!r}, by the values of the frozen graph"
    return Parting("differs", words, nodes[-1]["name"], None, None, 0, note)


def _shaped(inside: Inside, name: str) -> str:
    value = inside.values[0].get(name)
    return name if value is None else f"{name} {list(np.shape(value))}"
