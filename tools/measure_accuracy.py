#!/usr/bin/env python3
"""What full integers cost: EfficientNet-Lite0, a keyword net, a text classifier, an object and a face detector, each with its data.

usage: .venv/bin/python tools/measure_accuracy.py [--only NAME,NAME] [--shared FOLDER] [--bounds]

Each model is converted twice with `edgekit convert`: with true extremes and plainly rounded weights (`min-max`, what public tools do),
and with the recipe full-int8. Both are judged by the TFLite interpreter with its default kernels against the float .tflite, on data
that took no part: agreement with its 95 % interval (Wilson), SQNR in dB of all values / the mean channel / the worst channel, and what
the model is for. With --bounds also how much of the noise the weights alone and the activations alone make, and the three tensors that
cost most when only they are integers.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import accuracy_data as data
import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "data"
sys.path.insert(0, str(ROOT))
Array = NDArray[Any]


@dataclass(frozen=True)
class Case:
    """A model with the data that calibrate and judge it, and what its answers are compared by."""

    name: str
    model: str
    parts: Callable[[Path], data.Parts]
    options: tuple[str, ...] = ()
    same: str = "top-1"


CASES = (
    Case("EfficientNet-Lite0", "efficientnet_lite0.onnx", data.lite0),
    Case("keyword DS-CNN", "kws_ref_model_float32.tflite", data.kws, ("--input-shape", "input_1=1x49x10x1")),
    Case("text direction", "ch_ppocr_mobile_v2.0_cls_infer.onnx", data.text_lines, ("--input-shape", "x=1x3x48x192")),
    Case("FastestDet", "FastestDet.onnx", data.fastestdet, same="class in cells"),
    Case("RFB-320", "version-RFB-320_without_postprocessing.onnx", data.rfb320, same="faces kept"),
)


def converted(case: Case, recipe: str, work: Path, shared: Path) -> dict[str, Any]:
    """The manifest of the bundle at ``work / recipe``."""
    out = work / Path(recipe).stem
    words = ["--data", str(work / "first.npz"), "--eval-data", str(work / "others.npz"), "--evaluation", "16"]
    command = [sys.executable, "-m", "edgekit", "convert", str(shared / "models" / case.model), *case.options, *words]
    command += ["--recipe", recipe, "--out", str(out), "--allow-undecided", "--json"]
    answer = json.loads(subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT).stdout)
    if not answer["ok"]:
        raise SystemExit(f"{case.name}: {answer['error']['message']}")
    manifest: dict[str, Any] = answer["manifest"]
    return manifest


def plain_recipe(work: Path) -> str:
    """full-int8 with true extremes and no corrections, as a file."""
    text = (ROOT / "recipes" / "full-int8.toml").read_text()
    text = text.replace('ranges = "search"', 'ranges = "min-max"').replace('= "auto"', '= "off"')
    path = work / "min-max.toml"
    path.write_text(text)
    return str(path)


def outputs(path: Path, manifest: dict[str, Any], inputs: dict[str, Array]) -> list[Array]:
    """Real outputs of a file over all samples, in delivered layout, one array an output."""
    from edgekit.runtime.backend import open_backend
    from edgekit.values import IoSpec
    from edgekit.verify.accuracy import run

    specs = [IoSpec.from_json(item) for item in manifest["inputs"]]
    count = len(next(iter(inputs.values())))
    results = []
    with open_backend(path) as backend:
        for i in range(count):
            fed = []
            for spec in specs:
                value = inputs[spec.name][i : i + 1]
                fed.append(np.ascontiguousarray(value.transpose(spec.permutation) if spec.permutation else value))
            results.append(run(backend, fed))
    return [np.stack([result[o] for result in results]) for o in range(len(results[0]))]


def ratios(reference: Array, got: Array) -> tuple[float, float, float]:
    """SQNR of all values, of the mean channel and of the worst channel that speaks (1 % of the largest value)."""
    ref, error = reference.astype(np.float64), reference.astype(np.float64) - got
    axes = tuple(range(ref.ndim - 1))
    largest = np.abs(ref).max(axis=axes)
    kept = largest >= 0.01 * largest.max()
    with np.errstate(divide="ignore"):
        each = 10 * np.log10((ref**2).sum(axis=axes)[kept] / (error**2).sum(axis=axes)[kept])
        whole = 10 * np.log10((ref**2).sum() / (error**2).sum())
    return float(whole), float(each.mean()), float(each.min())


def agreement(case: Case, truth: Sequence[Array], got: Sequence[Array]) -> tuple[int, int, str]:
    """Same answers, of how many, and what else the model is judged by."""
    if case.name == "FastestDet":
        return _cells(truth, got)
    if case.name == "RFB-320":
        scores = next(o for o, values in enumerate(truth) if values.shape[-1] == 2)
        faces = truth[scores][..., 1] > 0.5
        called = got[scores][..., 1] > 0.5
        return int((called & faces).sum()), int(faces.sum()), f"{int((called & ~faces).sum())} called by int8 only"
    flat = [values[0].reshape(len(values[0]), -1).argmax(axis=1) for values in (truth, got)]
    return int((flat[0] == flat[1]).sum()), len(flat[0]), ""


def _cells(truth: Sequence[Array], got: Sequence[Array]) -> tuple[int, int, str]:
    """FastestDet, as one map of 85 channels or as its three parts: the class in cells of score above 0.1, and the boxes there."""
    maps = [_joined(values) for values in (truth, got)]
    score = maps[0][..., 0] ** 0.6 * maps[0][..., 5:].max(axis=-1) ** 0.4
    cells = score > 0.1
    same = maps[0][..., 5:].argmax(axis=-1) == maps[1][..., 5:].argmax(axis=-1)
    boxes = [m[cells][:, 1:5].astype(np.float64) for m in maps]
    db = 10 * np.log10((boxes[0] ** 2).sum() / ((boxes[0] - boxes[1]) ** 2).sum())
    return int(same[cells].sum()), int(cells.sum()), f"boxes {db:.1f} dB"


def _joined(values: Sequence[Array]) -> Array:
    """Objectness, box and classes along the last axis; parts are told apart by their number of channels."""
    return np.concatenate(sorted(values, key=lambda v: (1, 4, 80, 85).index(v.shape[-1])), axis=-1)


def row(
    case: Case, label: str, manifest: dict[str, Any], path: Path, truth: list[Array], inputs: dict[str, Array]
) -> str:
    """One line of the table."""
    from edgekit.verify.intervals import wilson

    got = outputs(path, manifest, inputs)
    same, count, more = agreement(case, truth, got)
    low, high = wilson(same, count)
    each = [" / ".join(f"{value:.1f}" for value in ratios(*pair)) for pair in zip(truth, got, strict=True)]
    right = ""
    if "label" in inputs:
        right = f"{100 * float((got[0].reshape(count, -1).argmax(axis=1) == inputs['label']).mean()):.2f} %"
    floats = len(manifest["verification"]["audit"]["float_operators"])
    cells = [
        case.name,
        label,
        f"{same} of {count} ({100 * low:.1f} to {100 * high:.1f} %)",
        "; ".join(each),
        more or right,
        str(floats),
    ]
    return f"| {' | '.join(cells)} |"


def measure(case: Case, shared: Path, *, bounds: bool) -> None:
    """Prints the rows of a model."""
    with tempfile.TemporaryDirectory(prefix="edgekit-accuracy-") as name:
        work = Path(name)
        first, others = case.parts(shared)
        np.savez(work / "first.npz", **first)
        np.savez(work / "others.npz", **{key: values for key, values in others.items() if key != "label"})
        truth: list[Array] | None = None
        for label, recipe in (("min-max", plain_recipe(work)), ("full-int8", "full-int8")):
            manifest = converted(case, recipe, work, shared)
            bundle = work / Path(recipe).stem
            path = next(bundle / name for name in ("model.tflite", "rejected.tflite") if (bundle / name).is_file())
            truth = truth if truth is not None else outputs(bundle / "float.tflite", manifest, others)
            print(row(case, label, manifest, path, truth, others), flush=True)
        if bounds and truth is not None:
            import accuracy_bounds

            float_path = work / "min-max" / "float.tflite"
            found = accuracy_bounds.forms(float_path, manifest["calibration"]["ranges"], work)
            for label, form in found:
                got = outputs(form, manifest, others)
                each = [" / ".join(f"{v:.1f}" for v in ratios(*pair)) for pair in zip(truth, got, strict=True)]
                print(f"| {case.name} | {label} | | {'; '.join(each)} | | |", flush=True)
            few = {key: values[:16] for key, values in others.items()}
            worst = accuracy_bounds.worst_tensors(
                float_path,
                manifest["calibration"]["ranges"],
                work,
                lambda form: min(
                    ratios(t[:16], g)[0] for t, g in zip(truth or [], outputs(form, manifest, few), strict=True)
                ),
            )
            print(f"| {case.name} | worst tensors alone | | {'; '.join(worst)} | | |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help=f"of {', '.join(case.name for case in CASES)}, separated by commas")
    parser.add_argument("--shared", type=Path, default=SHARED, help="the labelled data")
    parser.add_argument("--bounds", action="store_true")
    options = parser.parse_args()
    if not options.shared.is_dir():
        raise SystemExit(f"{options.shared} is not there: give --shared")
    print(
        "| model | recipe | same answer as float (95 % interval) | SQNR in dB: all / mean channel / worst channel | more | float operators |"
    )
    print("|---|---|---|---|---|---|")
    wanted = options.only.split(",") if options.only else [case.name for case in CASES]
    for case in CASES:
        if case.name in wanted:
            measure(case, options.shared, bounds=options.bounds)


if __name__ == "__main__":
    main()
