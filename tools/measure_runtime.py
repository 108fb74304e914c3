#!/usr/bin/env python3
"""What edgekit's own code costs at run time, in one run: the wrapper and the agent against bare calls of the interpreter.

usage: .venv/bin/python tools/measure_runtime.py BUNDLE [--threads N] [--turns N]

Prints, for the bundle's int8 model: median of bare quantise/set/invoke/get/dequantise against edgekit.runtime.Model (float in, float
out) in alternating blocks; median of a bare set/invoke loop against what `edgekit bench` measures, alternating; and the size of agent.pyz.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def block_ns(call: Callable[[], Any], seconds: float) -> list[int]:
    """Nanoseconds of each call within ``seconds``."""
    end = time.monotonic() + seconds
    samples = []
    while time.monotonic() < end:
        started = time.perf_counter_ns()
        call()
        samples.append(time.perf_counter_ns() - started)
    return samples


def bare_calls(path: Path, threads: int) -> tuple[Callable[[], Any], Callable[[], Any], Any]:
    """(float in, float out by hand; set and invoke only; the input) without any of edgekit's code."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path), num_threads=threads)
    interpreter.allocate_tensors()
    given, result = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
    (scale, zero), (out_scale, out_zero) = given["quantization"], result["quantization"]
    x = np.random.default_rng(0).uniform(-1, 1, given["shape"]).astype(np.float32)
    integers = np.clip(np.rint(x / np.float32(scale)) + zero, -128, 127).astype(np.int8)

    def float_to_float() -> Any:
        q = np.clip(np.rint(x / np.float32(scale)) + zero, -128, 127).astype(np.int8)
        interpreter.set_tensor(given["index"], q)
        interpreter.invoke()
        return (interpreter.get_tensor(result["index"]).astype(np.float32) - out_zero) * np.float32(out_scale)

    def invoke() -> None:
        interpreter.set_tensor(given["index"], integers)
        interpreter.invoke()
        interpreter.get_tensor(result["index"])

    return float_to_float, invoke, x


def agent_median_ns(bundle: Path, threads: int, runs: Path, seconds: float) -> float:
    """The median that a benchmark by the agent finds."""
    from edgekit.bench import run_benchmark

    folder = run_benchmark(bundle, duration_s=seconds, threads=threads, runs_dir=runs)
    return float(np.median(np.fromfile(folder / "latencies.bin", dtype="<i8")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=7)
    options = parser.parse_args()
    from edgekit.push.pyz import build_agent
    from edgekit.runtime import Model

    float_to_float, invoke, x = bare_calls(options.bundle / "model.tflite", options.threads)
    with Model.open(options.bundle, threads=options.threads) as model:
        pairs = []
        for _ in range(options.turns):
            pairs.append(
                (statistics.median(block_ns(lambda: model(x), 1.0)), statistics.median(block_ns(float_to_float, 1.0)))
            )
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {options.threads} thread(s), medians of {options.turns} turns"
    )
    ours, bare = statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)
    added = statistics.median(a - b for a, b in pairs)
    print(f"wrapper  {ours / 1e3:.1f} us, bare {bare / 1e3:.1f} us: {added / 1e3:+.1f} us, {added / bare:+.1%}")
    with tempfile.TemporaryDirectory(prefix="edgekit-measure-") as name:
        both = []
        for _ in range(options.turns):
            both.append(
                (
                    agent_median_ns(options.bundle, options.threads, Path(name), 3.0),
                    statistics.median(block_ns(invoke, 3.0)),
                )
            )
    ratio = statistics.median(a / b for a, b in both)
    print(
        f"agent    {statistics.median(a for a, _ in both) / 1e3:.1f} us, bare loop {statistics.median(b for _, b in both) / 1e3:.1f} us: ratio {ratio:.3f}"
    )
    print(f"agent.pyz {len(build_agent()) / 1000:.0f} kB")


if __name__ == "__main__":
    main()
