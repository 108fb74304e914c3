#!/usr/bin/env python3
"""Time and peak memory of an import to float against the converter alone, in one run on one machine.

usage: .venv/bin/python tools/measure_import.py [MODEL.onnx ...] [--frontends onnx2tf,tensorflow] [--runs N]

For each model and front end, in turns:

  alone    the front end's own command line: onnx2tf -i MODEL (2.x with its direct backend; 1.x through TensorFlow)
  edgekit  edgekit convert MODEL --recipe float32 --frontend NAME: reads, converts, loads and runs the result, settles the order of
           axes, compares it with ONNX Runtime on 16 inputs, writes the bundle with its report

"import" is the part of the second that does what the first does and proves that the file runs: edgekit's own stages "read the model"
and "convert to float". Peak memory is of the largest single process. The ratios are medians of the ratios of each turn. Default models: those
of ../shared/data/models that are there, and the sample networks. Needs the front ends (`edgekit frontend add ...`).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from measure_conversion import HELPER, Route  # noqa: E402

SHARED = ROOT.parent / "shared" / "data" / "models"
NAMES = ("efficientnet_lite0.onnx", "FastestDet.onnx", "version-RFB-320_without_postprocessing.onnx")
IMPORT = ("read the model", "convert to float")
"""Beginnings of the names of edgekit's stages that together do what a converter does."""


@dataclass(frozen=True)
class Turn:
    """One model once by both: wall seconds, edgekit's import stages alone, peak resident MB."""

    alone_s: float
    edgekit_s: float
    import_s: float
    alone_mb: float
    edgekit_mb: float


def default_models() -> list[Path]:
    """Those that this machine has."""
    found = [SHARED / name for name in NAMES if (SHARED / name).is_file()]
    return [*found, *sorted((ROOT / "sample_models").glob("*.onnx"))]


def alone(model: Path, frontend: str) -> Route:
    """The front end's command line on a copy: onnx2tf overwrites its input."""
    from edgekit.intake import frontends

    folder = frontends.require([frontend])[0].python.parent
    environment = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "TF_CPP_MIN_LOG_LEVEL": "2"}
    convert = [str(folder / "onnx2tf"), "-i", "model.onnx", "-o", "out", "-n"]
    commands = [["cp", str(model), "model.onnx"]]
    if frontend == "onnx2tf":
        convert += ["-tb", "flatbuffer_direct"]
    else:
        commands.append([sys.executable, str(HELPER), "sample-file", "."])  # else it asks the network for the file
        environment |= {"TF_USE_LEGACY_KERAS": "1", "CUDA_VISIBLE_DEVICES": "-1"}
    return Route("alone", [*commands, convert], "out/model_float32.tflite", environment)


def by_edgekit(model: Path, frontend: str) -> Route:
    """The whole command, verification and report included."""
    words = [str(model), "--recipe", "float32", "--frontend", frontend, "--out", "bundle", "--quiet"]
    command = [sys.executable, "-m", "edgekit", "convert", *words]
    return Route("edgekit", [command], "bundle/model.tflite", {"PYTHONPATH": str(ROOT)})


def turn(model: Path, frontend: str, work: Path, *, edgekit_first: bool) -> Turn:
    """Both once, in folders of their own, which are removed."""
    found: dict[str, tuple[float, float]] = {}
    stages: list[dict[str, object]] = []
    routes = [alone(model, frontend), by_edgekit(model, frontend)]
    for route in reversed(routes) if edgekit_first else routes:
        folder = work / route.name
        folder.mkdir()
        found[route.name] = route.run(folder)
        if route.name == "edgekit":
            stages = json.loads((folder / "bundle" / "report.json").read_text())["stages"]
        shutil.rmtree(folder)
    import_s = sum(float(str(stage["seconds"])) for stage in stages if str(stage["name"]).startswith(IMPORT))
    return Turn(found["alone"][0], found["edgekit"][0], import_s, found["alone"][1], found["edgekit"][1])


def row(model: Path, frontend: str, turns: list[Turn]) -> str:
    """One line of the table."""

    def middle(values: list[float], digits: int) -> str:
        return f"{statistics.median(values):.{digits}f}"

    cells = [
        middle([t.alone_s for t in turns], 1),
        middle([t.edgekit_s for t in turns], 1),
        middle([t.edgekit_s / t.alone_s for t in turns], 2),
        middle([t.import_s for t in turns], 1),
        middle([t.import_s / t.alone_s for t in turns], 2),
        middle([t.alone_mb for t in turns], 0),
        middle([t.edgekit_mb for t in turns], 0),
        middle([t.edgekit_mb / t.alone_mb for t in turns], 2),
    ]
    return f"| {model.stem} | {frontend} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="*", metavar="MODEL.onnx")
    parser.add_argument("--frontends", default="onnx2tf", help="separated by commas")
    parser.add_argument("--runs", type=int, default=5, help="turns of each model")
    options = parser.parse_args()
    names, models = options.frontends.split(","), options.models or default_models()
    turns: dict[tuple[Path, str], list[Turn]] = {(model.resolve(), name): [] for model in models for name in names}
    with tempfile.TemporaryDirectory(prefix="edgekit-measure-") as work:
        for number in range(options.runs):
            for (model, name), done in turns.items():
                done.append(turn(model, name, Path(work), edgekit_first=number % 2 == 1))
                print(f"turn {number + 1}: {model.name} by {name}: {done[-1]}", file=sys.stderr)
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {options.runs} turns\n")
    print("| model | front end | alone, s | edgekit, s | ratio | import, s | ratio | alone, MB | edgekit, MB | ratio |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for (model, name), done in turns.items():
        print(row(model, name, done))


if __name__ == "__main__":
    main()
