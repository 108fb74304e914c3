"""What the int8 engine leaves float, operator by operator: one tiny float .tflite each, quantised and audited, before and after edgekit.

    python tools/quantiser_gaps.py             # a table in Markdown: see docs/int8_gaps.md

"engine" is the file as the engine writes it; "edgekit" the file after the rewrites and the closing of islands. The ratio is that of the
integer file against the float one on other inputs than those of calibration.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[1] / "tests" / "intake")]

from tiny_models import TinyTflite  # noqa: E402

from edgekit.calibrate.ranges import Ranges, observe  # noqa: E402
from edgekit.intake import tflite  # noqa: E402
from edgekit.quantize import close_islands, litert, litert_worker  # noqa: E402
from edgekit.quantize.audit import audit  # noqa: E402
from edgekit.rewrite import clip_by_relu6, fuse_activations, pad_for_max_pool, pad_with_zero, plain_forms, prune  # noqa: E402
from edgekit.runtime.backend import open_backend  # noqa: E402
from edgekit.values import FloatModel, IoSpec, SourceModel  # noqa: E402
from edgekit.verify.accuracy import run  # noqa: E402
from edgekit.verify.measures import ratio_db  # noqa: E402

SHAPE = (1, 8, 8, 4)
LOWEST = float(np.finfo(np.float32).min)
PADS = np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32)
AXES = np.array([1, 2], np.int32)


@dataclass(frozen=True)
class Case:
    """One operator: the shape and type of its output, its further inputs, its options; ``positive`` for inputs above zero."""

    name: str
    op: str
    out: tuple[int, ...] = SHAPE
    more: tuple[Any, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()
    dtype: str = "float32"
    positive: bool = False
    twice: bool = False
    outputs: int = 1
    first: bool = False


def _options(**values: Any) -> tuple[tuple[str, Any], ...]:
    return tuple(values.items())


ALPHA = np.full((1, 1, 4), 0.2, np.float32)
WEIGHT = np.random.default_rng(7).normal(size=(1, 8, 4, 5)).astype(np.float32)
CASES = (
    *(Case(op, op) for op in ("RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1", "ELU", "ABS", "EXP", "NEG", "SQUARE", "HARD_SWISH")),
    *(Case(op, op) for op in ("LOGISTIC", "TANH", "GELU", "SIN", "COS", "FLOOR", "CEIL", "ROUND", "L2_NORMALIZATION")),
    *(Case(op, op, positive=True) for op in ("LOG", "SQRT", "RSQRT")),
    Case("LEAKY_RELU", "LEAKY_RELU", options=_options(alpha=0.1)),
    Case("PRELU", "PRELU", more=(ALPHA,)),
    Case("SOFTMAX", "SOFTMAX", options=_options(beta=1.0)),
    Case("LOG_SOFTMAX", "LOG_SOFTMAX"),
    *(Case(op, op, twice=True) for op in ("ADD", "SUB", "MUL", "MINIMUM", "MAXIMUM", "SQUARED_DIFFERENCE")),
    *(Case(f"{op} by a constant", op, more=(np.float32(0.3),)) for op in ("MINIMUM", "MAXIMUM", "DIV")),
    Case("POW by 2", "POW", more=(np.float32(2.0),), positive=True),
    Case("PADV2, lowest float", "PADV2", (1, 10, 10, 4), (PADS, np.float32([LOWEST]))),
    Case("PADV2, 0.5", "PADV2", (1, 10, 10, 4), (PADS, np.float32([0.5]))),
    Case("PAD", "PAD", (1, 10, 10, 4), (PADS,)),
    Case("MIRROR_PAD", "MIRROR_PAD", (1, 10, 10, 4), (PADS,)),
    *(Case(op, op, (1, 4), (AXES,)) for op in ("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD")),
    Case("DEPTH_TO_SPACE", "DEPTH_TO_SPACE", (1, 16, 16, 1), options=_options(blockSize=2)),
    Case("SPACE_TO_DEPTH", "SPACE_TO_DEPTH", (1, 4, 4, 16), options=_options(blockSize=2)),
    Case("RESIZE_BILINEAR", "RESIZE_BILINEAR", (1, 16, 16, 4), (np.array([16, 16], np.int32),)),
    Case("RESIZE_NEAREST_NEIGHBOR", "RESIZE_NEAREST_NEIGHBOR", (1, 16, 16, 4), (np.array([16, 16], np.int32),)),
    Case("SPACE_TO_BATCH_ND", "SPACE_TO_BATCH_ND", (4, 4, 4, 4), (np.int32([2, 2]), np.zeros((2, 2), np.int32))),
    Case("TILE", "TILE", (1, 8, 16, 4), (np.int32([1, 1, 2, 1]),)),
    Case("REVERSE_V2", "REVERSE_V2", more=(np.int32([1]),)),
    Case("SQUEEZE", "SQUEEZE", (8, 8, 4), options=_options(squeezeDims=[0])),
    Case("EXPAND_DIMS", "EXPAND_DIMS", (1, 1, 8, 8, 4), (np.int32(0),)),
    Case("GATHER", "GATHER", (1, 3, 8, 4), (np.int32([0, 2, 5]),), _options(axis=1)),
    Case("STRIDED_SLICE", "STRIDED_SLICE", (1, 4, 8, 4), (np.int32([0, 0, 0, 0]), np.int32([1, 8, 8, 4]), np.int32([1, 2, 1, 1]))),
    Case("SPLIT_V", "SPLIT_V", (1, 4, 8, 4), (np.int32([4, 4]), np.int32(1)), _options(numSplits=2), outputs=2),
    Case("SPLIT", "SPLIT", (1, 4, 8, 4), (np.int32(1),), _options(numSplits=2), outputs=2, first=True),
    Case("UNPACK", "UNPACK", (1, 8, 4), options=_options(axis=1, num=8), outputs=8),
    Case("PACK", "PACK", (1, 2, 8, 8, 4), options=_options(axis=1, valuesCount=2), twice=True),
    Case("TRANSPOSE", "TRANSPOSE", (1, 4, 8, 8), (np.int32([0, 3, 1, 2]),)),
    Case("BATCH_MATMUL by a constant", "BATCH_MATMUL", (1, 8, 8, 5), (WEIGHT,)),
    Case("ARG_MAX", "ARG_MAX", (1, 8, 8), (np.int32(3),), _options(outputType=2), dtype="int32"),
    Case("CUMSUM", "CUMSUM", more=(np.int32(1),)),
)  # fmt: skip


def network(case: Case) -> Any:
    """Input x, MUL by a constant (so that the operator stands inside), the operator, output y."""
    tiny = TinyTflite()
    x, inside = tiny.tensor("x", SHAPE), tiny.tensor("inside", SHAPE)
    factor = tiny.tensor("factor", (1, 1, 1, 4), data=np.float32([1.0, 0.5, 1.5, 0.8]).reshape(1, 1, 1, 4))
    tiny.operator("MUL", [x, factor], [inside])
    kinds = {np.dtype(np.float32): "float32", np.dtype(np.int32): "int32"}
    more = [
        tiny.tensor(f"more{i}", np.shape(value), kinds[np.asarray(value).dtype], data=np.asarray(value))
        for i, value in enumerate(case.more)
    ]
    results = [tiny.tensor(f"y{i}", case.out, case.dtype) for i in range(case.outputs)]
    inputs = [inside, x] if case.twice else [*more, inside] if case.first else [inside, *more]
    tiny.operator(case.op, inputs, results, **dict(case.options))
    ends = results
    if case.dtype == "float32" and case.outputs == 1:  # one more operator behind it, so that it stands inside
        ends = [tiny.tensor("end", case.out)]
        tiny.operator("MUL", [results[0], tiny.tensor("last", (1,), data=np.float32([0.7]))], ends)
    model = tiny.model(tiny.graph([x], ends))
    model.signatureDefs = [_signature(tiny.schema, x, ends)]
    return tflite.read(tflite.serialize(model))


def _signature(schema: Any, x: int, ends: list[int]) -> Any:
    def entry(name: str, tensor: int) -> Any:
        made = schema.TensorMapT()
        made.name, made.tensorIndex = name, tensor
        return made

    signature = schema.SignatureDefT()
    signature.signatureKey, signature.subgraphIndex = "serving_default", 0
    signature.inputs = [entry("x", x)]
    signature.outputs = [entry(f"end{i}", tensor) for i, tensor in enumerate(ends)]
    return signature


def samples(case: Case, count: int, seed: int) -> list[dict[str, Any]]:
    values = np.random.default_rng(seed).normal(size=(count, *SHAPE)).astype(np.float32) * 2
    return [{"x": np.abs(value) + 0.1 if case.positive else value} for value in values]


def described(path: Path, case: Case) -> FloatModel:
    """The file as the calibration takes it."""
    with open_backend(path, threads=1) as backend:
        ends = [
            tuple(IoSpec(d.name, d.shape, d.dtype, d.name, d.shape, d.dtype) for d in side)
            for side in (backend.inputs, backend.outputs)
        ]
    return FloatModel(path, SourceModel(path, "tflite", "", 0), *ends, frontend="")


def attempt(case: Case, work: Path, *, ours: bool) -> str:
    """A cell of the table."""
    model = network(case)
    original, path = work / "original.tflite", work / "float.tflite"
    tflite.write(model, original)
    if ours:
        for step in (pad_with_zero, pad_for_max_pool, plain_forms, clip_by_relu6, fuse_activations, prune):
            step.apply(model)
    tflite.write(model, path)
    try:
        ranges: Ranges = observe(described(path, case), samples(case, 30, 0), threads=1)
        made = work / "int8.tflite"
        by_tensor = {name: list(limits) for name, limits in ranges.by_tensor.items()}
        request = {"float": str(path), "int8": str(made), "ranges": by_tensor, "scheme": asdict(litert.FULL_INT8)}
        litert_worker.quantize(request)  # the tiny files need no child process
        if ours:
            close_islands.close_islands(made, ranges.by_tensor)
        found = audit(made)
        ratio = compared(original, made, case)
    except Exception as error:
        return f"fails: {type(error).__name__}: {' '.join(str(error).split())[:60]}"
    floats = sum(o.op not in ("QUANTIZE", "DEQUANTIZE") for o in found.float_operators)
    state = "int8" if found.full_integer else f"{floats} float" if floats else "float borders"
    return (
        f"{state}, {ratio:.1f} dB"
        if np.isfinite(ratio)
        else f"{state}, {'exact' if ratio > 0 else 'nothing in common'}"
    )


def compared(original: Path, made: Path, case: Case) -> float:
    signal = noise = 0.0
    with open_backend(original, threads=1) as plain, open_backend(made, threads=1) as quantised:
        for sample in samples(case, 10, 1):
            for expected, got in zip(run(plain, [sample["x"]]), run(quantised, [sample["x"]]), strict=True):
                padding = np.abs(expected.astype(np.float64)) > 1e30
                expected = np.where(padding, 0.0, expected)
                signal += float((expected.astype(np.float64) ** 2).sum())
                noise += float(((np.where(padding, 0.0, got) - expected).astype(np.float64) ** 2).sum())
    return ratio_db(signal, noise)


def main() -> None:
    """Prints the table."""
    print("| operator | engine | edgekit |\n|---|---|---|")
    chosen = sys.argv[1:]
    for case in CASES:
        if chosen and case.op not in chosen:
            continue
        with tempfile.TemporaryDirectory() as folder:
            cells = [attempt(case, Path(folder), ours=ours) for ours in (False, True)]
        print(f"| {case.name} | {cells[0]} | {cells[1]} |", flush=True)


if __name__ == "__main__":
    main()
