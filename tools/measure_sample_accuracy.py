#!/usr/bin/env python3
"""Float and int8 accuracy of the sample networks on all 10,000 test images of Fashion-MNIST, by the command line itself.

usage: .venv/bin/python tools/measure_sample_accuracy.py [--dataset FOLDER]

Needs the data set (Debian, Ubuntu: apt-get install dataset-fashion-mnist) and a front end.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

SAMPLES = Path(__file__).resolve().parent.parent / "sample_models"
sys.path.insert(0, str(SAMPLES))

import fashion_mnist  # noqa: E402


def converted(network: str, test: Path, work: Path) -> dict[str, dict[str, object]]:
    """What the manifest says of the verification."""
    command = [
        sys.executable,
        "-m",
        "edgekit",
        "convert",
        str(SAMPLES / f"{network}.onnx"),
        "--data",
        str(SAMPLES / "calibration"),
    ]
    command += ["--eval-data", str(test), "--labels", "label", "--arrays", "raw-pixels", "--layout", "nchw"]
    command += ["--color", "gray", "--mean", "127.5", "--std", "127.5", "--out", str(work / network), "--json"]
    answer = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    if not answer["ok"]:
        raise SystemExit(answer["error"]["message"])
    verification: dict[str, dict[str, object]] = answer["manifest"]["verification"]
    return verification


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", type=Path, default=fashion_mnist.FOLDER)
    options = parser.parse_args()
    print("| network | float top-1 | int8 top-1 | difference (95 % interval) | same answer | SQNR | float operators |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="edgekit-measure-") as name:
        work = Path(name)
        test = work / "t10k.npz"
        images = fashion_mnist.read_images(options.dataset, "t10k")
        np.savez(
            test,
            image=images.reshape(-1, 1, 28, 28),
            label=fashion_mnist.read_labels(options.dataset, "t10k").astype(np.int64),
        )
        for network in ("fashion_relu6", "fashion_silu"):
            found = converted(network, test, work)
            print(row(network, found))


def row(network: str, found: dict[str, dict[str, object]]) -> str:
    """One line of the table."""
    accuracy: dict[str, dict[str, float]] = found["accuracy"]  # type: ignore[assignment]
    output = found["int8"]["outputs"][0]  # type: ignore[index]
    points = accuracy["difference_points"]
    return (
        f"| {network} | {accuracy['float']['value']:.2%} | {accuracy['int8']['value']:.2%} | {points['value']:+.2f} points "
        f"({points['low']:+.2f} to {points['high']:+.2f}) | {output['agreement']['value']:.2%} | {output['sqnr_db']:.1f} dB | "
        f"{len(found['audit']['float_operators'])} |"  # type: ignore[arg-type]
    )


if __name__ == "__main__":
    main()
