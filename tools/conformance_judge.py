"""The independent judge of the conformance run: a delivered file in the interpreter, against the recorded outputs of the test.

Knows nothing of edgekit. Request: ``{"tflite": PATH, "data": PATH of data.npz, "io": ...}`` with ``io`` either

- ``{"inputs": {name: permutation or null}, "outputs": {...}}``: the delivered axes are the source's, permuted so; tensors are found by
  the names of the file's signature, and nothing else is tried; or
- null: a file that says nothing. Tensors are found by name where the names are the source's, else by position, and every order of axes
  that fits the shapes is tried: the file counts as right when it is right in one of them.

Answer: ``{"verdict": "right" | "wrong" | "unusable", "why": TEXT}``. A value is right within 1e-3 of itself plus 1e-4 of the largest in its
output; integers and booleans are right when equal, NaN and infinities where the test has the same.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from conformance_resident import serve

RTOL, ATOL = 1e-3, 1e-4
Array = np.ndarray[Any, Any]


def judge(request: dict[str, Any]) -> dict[str, Any]:
    """The verdict on one file."""
    from ai_edge_litert.interpreter import Interpreter

    data = np.load(request["data"], allow_pickle=False)
    inputs = {str(name): data[f"i{k}"] for k, name in enumerate(data["in"])}
    expected = {str(name): data[f"o{k}"] for k, name in enumerate(data["out"])}
    try:
        interpreter = Interpreter(model_path=request["tflite"], num_threads=1)
        interpreter.allocate_tensors()
        problem = (_declared if request["io"] else _lenient)(interpreter, request["io"], inputs, expected)
    except Unusable as error:
        return {"verdict": "unusable", "why": str(error)}
    except (ValueError, RuntimeError, KeyError) as error:
        return {"verdict": "unusable", "why": f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"}
    return {"verdict": "wrong" if problem else "right", "why": problem}


class Unusable(Exception):
    """A file that cannot be fed, or does not run."""


def _declared(interpreter: Any, io: Any, inputs: dict[str, Array], expected: dict[str, Array]) -> str:
    signature = interpreter.get_signature_runner()
    details = signature.get_input_details()
    fed = {}
    for name, value in inputs.items():
        ordered = _as_type(_permuted(value, io["inputs"][name]), details[name]["dtype"])
        fed[name] = ordered.reshape(details[name]["shape"]) if value.size == 1 else ordered
    results = signature(**fed)
    for name, value in expected.items():
        ordered = _permuted(value, io["outputs"][name])
        if value.size == results[name].size == 1:  # a scalar may be a list of one
            ordered = ordered.reshape(results[name].shape)
        problem = difference(ordered, results[name])
        if problem:
            return f"output {name}: {problem}"
    return ""


def _lenient(interpreter: Any, _: Any, inputs: dict[str, Array], expected: dict[str, Array]) -> str:
    found_inputs = _paired(interpreter.get_input_details(), list(inputs), "inputs")
    found_outputs = _paired(interpreter.get_output_details(), list(expected), "outputs")
    orders = [_orders(value.shape, found_inputs[name]["shape"]) for name, value in inputs.items()]
    for (name, value), found in zip(inputs.items(), orders, strict=True):
        if not found:
            raise Unusable(f"input {name} of shape {list(value.shape)} became {list(found_inputs[name]['shape'])}")
    problem = ""
    for combination in itertools.islice(itertools.product(*orders), 64):
        for (name, value), order in zip(inputs.items(), combination, strict=True):
            detail = found_inputs[name]
            fed = _as_type(_permuted(value, order), detail["dtype"]).reshape(detail["shape"])
            interpreter.set_tensor(detail["index"], fed)
        interpreter.invoke()
        results = {name: interpreter.get_tensor(found_outputs[name]["index"]) for name in expected}
        problems = [p for name, value in expected.items() if (p := _best(name, value, results[name]))]
        if not problems:
            return ""
        problem = problem or problems[0]
    return problem


def _best(name: str, expected: Array, got: Array) -> str:
    """ "" when ``got`` is ``expected`` in some order of axes, else what is wrong with the first."""
    orders = _orders(expected.shape, got.shape)
    if not orders:
        return f"output {name}: shape {list(got.shape)} instead of {list(expected.shape)}"
    problems = [difference(_permuted(expected, order).reshape(got.shape), got) for order in orders]
    return "" if "" in problems else f"output {name}: {problems[0]}"


def _paired(details: list[Any], names: list[str], what: str) -> dict[str, Any]:
    """The file's tensors by source name: by their own names if all of them are known, else by position."""
    if len(details) != len(names):
        raise Unusable(f"{len(details)} {what} instead of {len(names)}")
    by_name = {_bare(detail["name"]): detail for detail in details}
    if set(by_name) == set(names):
        return by_name
    return dict(zip(names, details, strict=True))


def _bare(name: str) -> str:
    return str(name).removeprefix("serving_default_").rsplit(":", 1)[0]


def _orders(source: Any, delivered: Any) -> list[tuple[int, ...]]:
    """The orders of axes that fit; a single value fits whatever its rank."""
    source, delivered = tuple(int(n) for n in source), tuple(int(n) for n in delivered)
    if int(np.prod(source)) == int(np.prod(delivered)) == 1:
        return [tuple(range(len(source)))]
    if len(source) != len(delivered):
        return []
    rank = len(source)
    orders = [tuple(range(rank))]
    if rank >= 3:
        orders += [(0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1))]
    return [order for order in dict.fromkeys(orders) if tuple(source[axis] for axis in order) == delivered]


def _permuted(value: Array, order: Any) -> Array:
    return np.ascontiguousarray(value if order is None else value.transpose(order)).reshape(
        value.shape if order is None else tuple(value.shape[axis] for axis in order)
    )


def _as_type(value: Array, dtype: Any) -> Array:
    converted = value.astype(dtype)
    if value.dtype.kind in "iu" and not np.array_equal(converted, value):
        raise Unusable(f"an input of {value.dtype} does not fit into {np.dtype(dtype).name}")
    return converted


def difference(expected: Array, got: Array) -> str:
    """What is wrong with ``got``, or "" when it is right."""
    if expected.shape != got.shape:
        return f"shape {list(got.shape)} instead of {list(expected.shape)}"
    if expected.dtype.kind != "f":
        if got.dtype.kind == "f" and expected.dtype.kind != "f":
            return f"{got.dtype} instead of {expected.dtype}"
        different = int(np.count_nonzero(expected.astype(np.int64) != got.astype(np.int64)))
        return f"{different} of {expected.size} integers differ" if different else ""
    want, have = expected.astype(np.float64), got.astype(np.float64)
    finite = np.isfinite(want)
    same = (want == have) | (np.isnan(want) & np.isnan(have))
    if not same[~finite].all() or not np.isfinite(have[finite]).all():
        return "NaN or infinities where the test has others"
    if not finite.any():
        return ""
    error = np.abs(want[finite] - have[finite])
    allowed = RTOL * np.abs(want[finite]) + ATOL * float(np.abs(want[finite]).max())
    return (
        f"off by up to {float(error.max()):.3g} of {float(np.abs(want[finite]).max()):.3g}"
        if (error > allowed).any()
        else ""
    )


if __name__ == "__main__":
    serve(judge)
