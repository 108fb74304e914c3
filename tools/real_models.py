#!/usr/bin/env python3
"""What becomes of real models: each is imported as a verified float bundle and, with real or drawn data, as full integer.

usage: .venv/bin/python tools/real_models.py [--models FOLDER] [--only NAME,NAME]

Prints a Markdown table: delivered with the parity of the worst output and slice, or refused with the message that a user would read.
Models come from --models (default: ../shared/data/models, where it is there), sample_models, and sample_models/small_networks.py.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "data"
SAMPLES = ROOT / "sample_models"


@dataclass(frozen=True)
class Case:
    """A model, and the options that its author's documentation gives."""

    name: str
    model: str
    options: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    """Options of the int8 conversion: data and preprocessing; empty where none are at hand."""
    folder: Path = ROOT


def photos(*words: str) -> tuple[str, ...]:
    """Calibrate on 60 photographs, with this preprocessing."""
    return ("--data", str(SHARED / "imagenet500"), "--calibration", "60", *words)


def cases(models: Path) -> list[Case]:
    """Every model to try."""
    digits = ("--data", str(SAMPLES / "calibration"), "--color", "gray", "--mean", "127.5", "--std", "127.5")
    face = ("--resize", "240x320", "--fit", "stretch", "--mean", "127", "--std", "128")
    text = ("--resize", "48x192", "--fit", "pad-right", "--color", "bgr", "--mean", "127.5", "--std", "127.5")
    return [
        Case("fashion_relu6.onnx", str(SAMPLES / "fashion_relu6.onnx"), (), digits),
        Case("fashion_silu.onnx", str(SAMPLES / "fashion_silu.onnx"), (), digits),
        Case("fashion_relu6.keras", str(SAMPLES / "fashion_relu6.keras"), (), digits),
        Case("fashion_relu6_savedmodel", str(SAMPLES / "fashion_relu6_savedmodel"), (), digits),
        Case(
            "efficientnet_lite0.onnx",
            str(models / "efficientnet_lite0.onnx"),
            (),
            photos("--crop", "224", "--mean", "127", "--std", "128"),
        ),
        Case(
            "FastestDet.onnx",
            str(models / "FastestDet.onnx"),
            (),
            photos("--resize", "352", "--fit", "stretch", "--color", "bgr", "--mean", "0", "--std", "255"),
        ),
        Case("RFB-320.onnx", str(models / "version-RFB-320_without_postprocessing.onnx"), (), photos(*face)),
        Case(
            "ppocr direction.onnx",
            str(models / "ch_ppocr_mobile_v2.0_cls_infer.onnx"),
            ("--input-shape", "x=1x3x48x192"),
            photos(*text),
        ),
        Case(
            "basic_pitch.onnx",
            str(models / "basic_pitch_nmp.onnx"),
            ("--input-shape", "serving_default_input_2:0=1x43844x1"),
        ),
        Case("basic_pitch.tflite", str(models / "basic_pitch_nmp.tflite"), ("--input-shape", "input_2=1x43844x1")),
        Case("magika.onnx", str(models / "magika_standard_v3_3.onnx"), ("--input-shape", "bytes=1x2048")),
        Case("silero_vad.onnx", str(models / "silero_vad_openvino_16k.onnx")),
        Case("mini-Xception.hdf5", str(models / "fer_emotion_mini_xception.hdf5")),
        Case("kws.tflite", str(models / "kws_ref_model_float32.tflite"), ("--input-shape", "input_1=1x49x10x1")),
        Case("face_detection.tflite", str(models / "face_detection_short_range.tflite")),
        Case(
            "small ViT (PyTorch)", "small_networks:vision_transformer", ("--input-shape", "x=1x3x32x32"), folder=SAMPLES
        ),
        Case("small LSTM (PyTorch)", "small_networks:lstm", ("--input-shape", "x=1x20x16"), folder=SAMPLES),
    ]


def converted(case: Case, words: list[str], out: Path) -> tuple[dict[str, Any], float]:
    """The JSON answer of one conversion, and its wall seconds."""
    started = time.monotonic()
    command = [
        sys.executable,
        "-m",
        "edgekit",
        "convert",
        case.model,
        *case.options,
        *words,
        "--out",
        str(out),
        "--json",
    ]
    done = subprocess.run(command, cwd=case.folder, capture_output=True, text=True, check=False)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer, time.monotonic() - started


def parity_words(answer: dict[str, Any]) -> str:
    """``worst output dB, worst slice dB`` of a delivered float model."""
    outputs = answer["manifest"]["verification"]["parity"]["outputs"]
    whole = [o["sqnr_db"] for o in outputs if o["sqnr_db"] is not None]
    slices = [
        o["worst_slice"]["sqnr_db"] for o in outputs if o["worst_slice"] and o["worst_slice"]["sqnr_db"] is not None
    ]
    return f"{f'{min(whole):.0f} dB' if whole else 'exact'}, {f'{min(slices):.0f} dB' if slices else '-'}"


def said(answer: dict[str, Any]) -> str:
    """An error in one cell."""
    error = answer["error"]
    return f"refused: {error['message']}".replace("|", "/").replace("\n", " ")[:300]


def int8_words(answer: dict[str, Any]) -> str:
    """What came of the integers."""
    if not answer["ok"]:
        return said(answer)
    gates = answer["manifest"]["verification"]["gates"]
    missed = [gate for gate in gates if gate["verdict"] != "passed"]
    noise = [o["sqnr_db"] for o in answer["manifest"]["verification"]["int8"]["outputs"] if o["sqnr_db"] is not None]
    worst = f"{min(noise):.1f} dB" if noise else "exact"
    return f"passed, {worst}" if not missed else f"rejected, {worst}: " + "; ".join(g["message"] for g in missed)[:260]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, default=SHARED / "models")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    wanted = options.only.split(",") if options.only else []
    print("| model | float: worst output, worst slice | route | s | full integer |")
    print("|---|---|---|---|---|")
    for case in cases(options.models):
        if (wanted and not any(word in case.name for word in wanted)) or (
            ":" not in case.model and not Path(case.model).exists()
        ):
            continue
        with tempfile.TemporaryDirectory(prefix="edgekit-real-") as name:
            answer, seconds = converted(case, ["--recipe", "float32"], Path(name) / "float")
            if not answer["ok"]:
                print(f"| {case.name} | {said(answer)} | - | {seconds:.0f} | - |", flush=True)
                continue
            integer = (
                int8_words(converted(case, list(case.data), Path(name) / "int8")[0])
                if case.data
                else "not tried: no data at hand"
            )
            route = answer["manifest"]["frontend"]["name"]
            print(f"| {case.name} | {parity_words(answer)} | {route} | {seconds:.0f} | {integer} |", flush=True)


if __name__ == "__main__":
    main()
