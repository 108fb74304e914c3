#!/usr/bin/env python3
"""Time, peak memory and accuracy of `edgekit convert` against what people have without it, in one run on one machine.

usage: .venv/bin/python tools/measure_conversion.py [--model ONNX --images FOLDER] [--runs N] [--only ROUTE,ROUTE]

Routes, each from the same ONNX file and the same 100 calibration images to a full-integer .tflite:

  edgekit-direct      edgekit convert with the front end onnx2tf, verification included
  edgekit-tensorflow  the same with the front end tensorflow
  onnx2tf-int8        onnx2tf 1.28.8's own full-integer route (it writes six more variants; they are in its time)
  glued               onnx2tf 2.6.9 to float, then litert-quantizer with true minimum and maximum; nothing is verified

Default model and data: EfficientNet-Lite0 and 500 labelled pictures, if ../shared/data is there. The file names of the pictures
begin with the class index. The first 100 in name order calibrate, the other 400 judge. Peak memory is of the largest single process
of a route. Accuracy is measured apart, after the clock has stopped, by ONNX Runtime (float) and the TFLite interpreter (int8).
Needs both front ends (`edgekit frontend add ...`). This process stays small on purpose: Linux hands the peak of a parent on to
its children.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "data"
HELPER = Path(__file__).with_name("conversion_routes.py")
CALIBRATION = 100


class Route:
    """Commands to run one after the other in an empty folder; ``result`` is the int8 file that they leave there."""

    def __init__(self, name: str, commands: list[list[str]], result: str, environment: dict[str, str]) -> None:
        self.name = name
        self.commands = commands
        self.result = result
        self.environment = environment

    def run(self, folder: Path) -> tuple[float, float]:
        """Wall seconds and peak resident MB."""
        peak = 0
        started = time.monotonic()
        for command in self.commands:
            with (folder / "log.txt").open("ab") as log:
                process = subprocess.Popen(
                    command,
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, **self.environment},
                )
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
            peak = max(peak, usage.ru_maxrss)
            if process.returncode != 0:
                tail = "\n".join((folder / "log.txt").read_text(errors="replace").splitlines()[-8:])
                raise SystemExit(f"{self.name}: {command[0]} ended with status {process.returncode}\n{tail}")
        seconds = time.monotonic() - started
        if not (folder / self.result).is_file():
            raise SystemExit(f"{self.name} left no {self.result}")
        return seconds, peak / 1024


def routes(model: Path, images: Path, work: Path) -> list[Route]:
    """The four routes for this model and these pictures."""
    from edgekit.intake import frontends

    python = sys.executable
    direct, tensorflow = frontends.require(["onnx2tf"])[0].python, frontends.require(["tensorflow"])[0].python
    array = work / "calibration.npy"  # what onnx2tf takes: NHWC, normalised
    subprocess.run([python, str(HELPER), "array", str(images), str(CALIBRATION), str(array)], check=True)
    private = {"PATH": f"{direct.parent}{os.pathsep}{os.environ['PATH']}"}
    private_tf = {"PATH": f"{tensorflow.parent}{os.pathsep}{os.environ['PATH']}", "TF_CPP_MIN_LOG_LEVEL": "2"}

    def edgekit(frontend: str) -> list[list[str]]:
        words = [
            "--data",
            str(images),
            "--calibration",
            str(CALIBRATION),
            "--crop",
            "224",
            "--mean",
            "127",
            "--std",
            "128",
        ]
        return [
            [
                python,
                "-m",
                "edgekit",
                "convert",
                str(model),
                *words,
                "--frontend",
                frontend,
                "--out",
                "bundle",
                "--quiet",
            ]
        ]

    copy = ["cp", str(model), "model.onnx"]
    own = [str(tensorflow.parent / "onnx2tf"), "-i", "model.onnx", "-o", "out", "-oiqt", "-n"]
    own += ["-cind", "input", str(array), "[[[[0,0,0]]]]", "[[[[1,1,1]]]]"]
    sample = [python, str(HELPER), "sample-file", "."]
    to_float = [str(direct.parent / "onnx2tf"), "-i", "model.onnx", "-o", "out", "-tb", "flatbuffer_direct", "-n"]
    glue = [python, str(HELPER), "glue", "out/model_float32.tflite", str(images), str(CALIBRATION), "int8.tflite"]
    return [
        Route("edgekit-direct", edgekit("onnx2tf"), "bundle/model.tflite", {}),
        Route("edgekit-tensorflow", edgekit("tensorflow"), "bundle/model.tflite", {}),
        Route("onnx2tf-int8", [copy, sample, own], "out/model_full_integer_quant.tflite", private_tf),
        Route("glued", [copy, to_float, glue], "int8.tflite", private),
    ]


def judged(files: dict[str, Path], model: Path, images: Path) -> dict[str, dict[str, float]]:
    """Accuracy and agreement of each int8 file on the pictures that did not calibrate, in a child process."""
    words = [f"{name}={path}" for name, path in files.items()]
    command = [sys.executable, str(HELPER), "judge", str(model), str(images), str(CALIBRATION), *words]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, dict[str, float]] = json.loads(answer.stdout)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=SHARED / "models" / "efficientnet_lite0.onnx")
    parser.add_argument("--images", type=Path, default=SHARED / "imagenet500")
    parser.add_argument("--runs", type=int, default=3, help="of each route, in turns")
    parser.add_argument("--only", default="", help="names of routes, separated by commas")
    options = parser.parse_args()
    if not options.model.is_file() or not options.images.is_dir():
        raise SystemExit(f"{options.model} or {options.images} is not there: give --model and --images")
    with tempfile.TemporaryDirectory(prefix="edgekit-measure-") as name:
        work = Path(name)
        wanted = options.only.split(",") if options.only else []
        chosen = [route for route in routes(options.model, options.images, work) if not wanted or route.name in wanted]
        seconds: dict[str, list[float]] = {route.name: [] for route in chosen}
        peaks: dict[str, list[float]] = {route.name: [] for route in chosen}
        kept: dict[str, Path] = {}
        for turn in range(options.runs):
            for route in chosen:
                folder = work / f"{route.name}-{turn}"
                folder.mkdir()
                took, peak = route.run(folder)
                print(f"turn {turn + 1}: {route.name} {took:.1f} s, {peak:.0f} MB", file=sys.stderr)
                seconds[route.name].append(took)
                peaks[route.name].append(peak)
                kept[route.name] = Path(shutil.copy(folder / route.result, work / f"{route.name}.tflite"))
                shutil.rmtree(folder)
        show(seconds, peaks, judged(kept, options.model, options.images), options.runs)


def show(
    seconds: dict[str, list[float]], peaks: dict[str, list[float]], found: dict[str, dict[str, float]], runs: int
) -> None:
    """The result as a Markdown table, with the ratios to onnx2tf's own route and to the glued one (medians of ratios by turn)."""
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}, {runs} turns\n"
    )
    print(
        "| route | s (median) | MB | time / onnx2tf-int8 | memory / onnx2tf-int8 | time / glued | top-1 float -> int8 | same answer | float operators |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for name in seconds:
        ratios = [
            _ratio(seconds, name, "onnx2tf-int8"),
            _ratio(peaks, name, "onnx2tf-int8"),
            _ratio(seconds, name, "glued"),
        ]
        f = found[name]
        print(
            f"| {name} | {statistics.median(seconds[name]):.1f} | {statistics.median(peaks[name]):.0f} | {' | '.join(ratios)} | "
            f"{f['float']:.2f} -> {f['int8']:.2f} % of {f['count']:.0f} | {f['same']:.0f} | {f['float_operators']:.0f} |"
        )


def _ratio(values: dict[str, list[float]], name: str, other: str) -> str:
    if other not in values:
        return "-"
    return f"{statistics.median(a / b for a, b in zip(values[name], values[other], strict=True)):.2f}"


if __name__ == "__main__":
    main()
