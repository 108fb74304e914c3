"""The ONNX package's own node tests as conformance cases: which are taken, and the numbers that each is judged by."""

from __future__ import annotations

import dataclasses
import functools
import random
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

TAKEN_TYPES = ("FLOAT", "INT64", "INT32", "BOOL", "UINT8", "INT8")
"""Element types that an input or output may have; at least one of them must be FLOAT."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One node test: the model, the arrays of its first data set in the model's order, and the operator that it is a test of."""

    name: str
    operator: str
    model: Any
    inputs: dict[str, np.ndarray[Any, Any]]
    outputs: dict[str, np.ndarray[Any, Any]]

    def write(self, folder: Path) -> None:
        """``model.onnx`` and ``data.npz`` (``i0``, ``i1``, ... ``o0``, ...; the names in ``in`` and ``out``)."""
        import onnx

        folder.mkdir(parents=True, exist_ok=True)
        onnx.save(self.model, str(folder / "model.onnx"))
        arrays = {f"i{k}": value for k, value in enumerate(self.inputs.values())}
        arrays |= {f"o{k}": value for k, value in enumerate(self.outputs.values())}
        names = {"in": np.array(list(self.inputs)), "out": np.array(list(self.outputs))}
        np.savez(folder / "data.npz", **arrays, **names)


def why_not(model: Any) -> str:
    """Why a test is no case for a converter of static float networks, or "" when it is one."""
    import onnx

    stored = {tensor.name for tensor in model.graph.initializer}
    inputs = [info for info in model.graph.input if info.name not in stored]
    values = [*inputs, *model.graph.output]
    if not all(info.type.HasField("tensor_type") for info in values):
        return "a sequence, an optional or a map"
    shapes = [info.type.tensor_type.shape.dim for info in values]
    if any(not size.HasField("dim_value") for shape in shapes for size in shape):
        return "an open size"
    types = {onnx.TensorProto.DataType.Name(info.type.tensor_type.elem_type) for info in values}
    if "STRING" in types:
        return "texts"
    if "FLOAT" not in types:
        return "no float32 among inputs and outputs"
    if types - set(TAKEN_TYPES):
        return "another element type"
    if any(size.dim_value == 0 for shape in shapes for size in shape):
        return "a tensor without elements"
    return "" if inputs else "no input"


@functools.cache
def all_cases() -> tuple[tuple[Case, ...], dict[str, int]]:
    """Every case, in the order of names, and how many tests were left out for which reason."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some tests divide by zero on purpose
        tests = {test.name: test for test in load_model_tests(kind="node")}
    left_out: dict[str, int] = {}
    cases = []
    for name in sorted(tests):
        reason = why_not(tests[name].model)
        if reason:
            left_out[reason] = left_out.get(reason, 0) + 1
        else:
            cases.append(_case(name, tests))
    return tuple(cases), left_out


def sample(cases: Sequence[Case], count: int, *, seed: int = 0) -> list[Case]:
    """``count`` of ``cases``, the same ones for the same seed, in their order."""
    chosen = set(random.Random(seed).sample(range(len(cases)), min(count, len(cases))))
    return [case for index, case in enumerate(cases) if index in chosen]


def _case(name: str, tests: dict[str, Any]) -> Case:
    from onnx import numpy_helper

    test = tests[name]
    stored = {tensor.name for tensor in test.model.graph.initializer}
    inputs, outputs = test.data_sets[0]

    def arrays(infos: Sequence[Any], values: Sequence[Any]) -> dict[str, np.ndarray[Any, Any]]:
        made = [value if not hasattr(value, "raw_data") else numpy_helper.to_array(value) for value in values]
        return {info.name: np.asarray(value) for info, value in zip(infos, made, strict=True)}

    fed = [info for info in test.model.graph.input if info.name not in stored]
    return Case(name, _operator(name, tests), test.model, arrays(fed, inputs), arrays(test.model.graph.output, outputs))


def _operator(name: str, tests: dict[str, Any]) -> str:
    """What the test is of: its only node, or the operator whose definition was expanded into the nodes."""
    origin = tests.get(name.split("_expanded")[0], tests[name])
    nodes = [node for node in origin.model.graph.node if node.op_type not in ("Constant", "Identity")]
    nodes = nodes or list(origin.model.graph.node)
    kind: str = nodes[0].op_type
    return f"{kind} (expanded)" if "_expanded" in name else kind
