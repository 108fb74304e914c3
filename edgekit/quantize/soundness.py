"""Scales that no kernel can work with, and operators that need more than an interpreter: read from the file, named tensor by tensor."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgekit.intake import tflite

SMALLEST = float(np.finfo(np.float32).tiny)
"""The least normal float32: XNNPACK refuses scales below it, and kernels that divide by them give infinities."""
LARGEST = 1e30 / 255
"""A range beyond 1e30 holds no value that a network computes: it is a padding constant (-3.4e38) taken for one, and leaves all else in one step."""

BUILT_IN = frozenset(("TFLite_Detection_PostProcess",))
"""Custom operators that each interpreter brings along."""


@dataclass(frozen=True)
class Unsound:
    """What is wrong with the scale of a tensor ("scale") or with an operator ("operator"), in a sentence."""

    kind: str
    name: str
    message: str


def unsound(path: Path) -> tuple[Unsound, ...]:
    """All of the file at ``path``, in all of its graphs; none where it is sound."""
    model = tflite.read(path)
    found: list[Unsound] = []
    for number in range(len(model.subgraphs)):
        graph = tflite.graph(model, subgraph=number)
        found += [Unsound("scale", t.name, said) for t in graph.tensors if (said := _scale(t))]
        found += [Unsound("operator", o.name, said) for o in graph.operators if (said := _custom(graph, o))]
    return tuple(found)


def _scale(tensor: tflite.Tensor) -> str:
    """Of 8 and 16 bits only: a bias has the product of two scales, which no kernel reads."""
    if tensor.quant is None or tensor.dtype not in ("int8", "uint8", "int16"):
        return ""
    scales = tensor.quant.scales.astype(np.float64)
    wrong = scales[~(np.isfinite(scales) & (scales >= SMALLEST) & (scales <= LARGEST))]
    if not wrong.size:
        return ""
    many = f" in {wrong.size} of {scales.size} channels" if scales.size > 1 else ""
    return f"{tensor.name} has the scale {wrong[0]:.3g}{many}: possible are {SMALLEST:.2g} to {LARGEST:.2g}"


def _custom(graph: tflite.Graph, operator: tflite.Operator) -> str:
    name = operator.name.removeprefix("CUSTOM:")
    if not operator.is_custom or name in BUILT_IN:
        return ""
    tensor = next((graph.tensors[i].name for i in operator.outputs if i >= 0), "no tensor")
    kind = "a TensorFlow operator that needs the Flex delegate" if name.startswith("Flex") else "a custom operator"
    return f"{name}, which writes {tensor}, is {kind}: the interpreter of a board does not have it"
