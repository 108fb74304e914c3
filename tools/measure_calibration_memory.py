#!/usr/bin/env python3
"""Peak memory of calibration (extremes and histograms of every tensor) over 100 and over 10,000 samples.

usage: .venv/bin/python tools/measure_calibration_memory.py [--counts 100,10000]

The sample network fashion_relu6 as a verified float bundle, fed with made-up pictures one by one, each count in a process of its own.
Needs a front end for ONNX (`edgekit frontend add onnx2tf`).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


def calibrate(bundle: Path, count: int) -> float:
    """Peak resident MB of this process after calibrating on ``count`` pictures."""
    import resource
    from dataclasses import replace

    import numpy as np

    from edgekit.calibrate.ranges import observe
    from edgekit.values import FloatModel, IoSpec, SourceModel

    manifest = json.loads((bundle / "manifest.json").read_text())
    inputs = tuple(replace(IoSpec.from_json(item), quant=None) for item in manifest["inputs"])
    model = FloatModel(bundle / "model.tflite", SourceModel(bundle, "onnx", "", 0), inputs, (), "onnx2tf")
    random = np.random.default_rng(0)

    def pictures() -> Iterator[dict[str, np.ndarray]]:
        for _ in range(count):
            yield {inputs[0].name: random.uniform(-1, 1, inputs[0].source_shape).astype(np.float32)}

    ranges = observe(model, pictures(), threads=1)
    assert ranges.count == count
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", default="100,10000")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(calibrate(Path(options.child[0]), int(options.child[1])))
        return
    with tempfile.TemporaryDirectory(prefix="edgekit-memory-") as name:
        bundle = Path(name) / "float"
        model = str(ROOT / "sample_models" / "fashion_relu6.onnx")
        words = ["convert", model, "--recipe", "float32", "--out", str(bundle), "--quiet"]
        subprocess.run([sys.executable, "-m", "edgekit", *words], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        print("| samples | peak MB |\n|---|---|")
        for count in options.counts.split(","):
            command = [sys.executable, __file__, "--child", str(bundle), count]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            print(f"| {int(count):,} | {float(done.stdout):.1f} |", flush=True)


if __name__ == "__main__":
    main()
