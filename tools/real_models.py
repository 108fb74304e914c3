#!/usr/bin/env python3
"""What becomes of real models: each is imported as a verified float bundle and, with real or drawn data, as full integer.

usage: .venv/bin/python tools/real_models.py [--models FOLDER] [--only NAME,NAME]

Prints a Markdown table: delivered with the parity of the worst output and slice, or refused with the message that a user would read.
Models come from --models (default: ../shared/data/models, where it is there), sample_models, what sample_models/obtain.py fetched into the
cache, and sample_models/small_networks.py; data from ../shared/data, sample_models and sample_models/real_inputs.py.
"""

from __future__ import annotations

import argparse
import json
import os
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
    """A model, and the options that its author's documentation gives. ``data`` are real inputs with their preprocessing, for parity and
    for int8; empty where none are at hand. ``split`` are options of the int8 conversion alone."""

    name: str
    model: str
    options: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    split: tuple[str, ...] = ()


def photos(*words: str) -> tuple[str, ...]:
    """Photographs, with this preprocessing."""
    return ("--data", str(SHARED / "imagenet500"), *words)


def made(function: str) -> tuple[str, ...]:
    """Inputs of ``sample_models/real_inputs.py``."""
    return ("--data", f"real_inputs:{function}")


def cases(models: Path) -> list[Case]:
    """Every model to try."""
    return [*sample_cases(), *pictured(models), *others(models)]


def sample_cases() -> list[Case]:
    """Networks that lie in the checkout."""
    digits = ("--data", str(SAMPLES / "calibration"), "--color", "gray", "--mean", "127.5", "--std", "127.5")
    forms = ("fashion_relu6.onnx", "fashion_silu.onnx", "fashion_relu6.keras", "fashion_relu6_savedmodel")
    return [
        *(Case(form, str(SAMPLES / form), (), digits) for form in forms),
        Case(
            "small ViT (PyTorch)",
            "small_networks:vision_transformer",
            ("--input-shape", "x=1x3x32x32"),
            made("numbers_32x32"),
        ),
        Case("small LSTM (PyTorch)", "small_networks:lstm", ("--input-shape", "x=1x20x16"), made("numbers_20x16")),
    ]


def pictured(models: Path) -> list[Case]:
    """Networks that look at photographs."""
    sixty = ("--calibration", "60")
    rows = [
        ("efficientnet_lite0.onnx", "efficientnet_lite0.onnx", (), "--crop 224 --mean 127 --std 128"),
        ("FastestDet.onnx", "FastestDet.onnx", (), "--resize 352 --fit stretch --color bgr --mean 0 --std 255"),
        (
            "RFB-320.onnx",
            "version-RFB-320_without_postprocessing.onnx",
            (),
            "--resize 240x320 --fit stretch --mean 127 --std 128",
        ),
        (
            "ppocr direction.onnx",
            "ch_ppocr_mobile_v2.0_cls_infer.onnx",
            ("--input-shape", "x=1x3x48x192"),
            "--resize 48x192 --fit pad-right --color bgr --mean 127.5 --std 127.5",
        ),
        (
            "mini-Xception.hdf5",
            "fer_emotion_mini_xception.hdf5",
            (),
            "--resize 64 --fit stretch --color gray --mean 127.5 --std 127.5",
        ),
        (
            "face_detection.tflite",
            "face_detection_short_range.tflite",
            (),
            "--resize 128 --fit stretch --mean 127.5 --std 127.5",
        ),
    ]
    return [
        Case(name, str(models / file), options, photos(*words.split()), sixty) for name, file, options, words in rows
    ]


def others(models: Path) -> list[Case]:
    """Text, bytes and sound."""
    rows = [
        ("ppocr recognition.onnx", "ch_PP-OCRv4_rec_infer.onnx", "x=1x3x48x320", made("text_lines")),
        ("ppocr detection.onnx", "ch_PP-OCRv4_det_infer.onnx", "x=1x3x320x320", made("pages")),
        ("magika.onnx", "magika_standard_v3_3.onnx", "bytes=1x2048", made("files")),
        ("magika.onnx, no data given", "magika_standard_v3_3.onnx", "bytes=1x2048", ()),
        ("basic_pitch.onnx", "basic_pitch_nmp.onnx", "serving_default_input_2:0=1x43844x1", made("melodies_onnx")),
        ("basic_pitch.tflite", "basic_pitch_nmp.tflite", "input_2=1x43844x1", made("melodies_tflite")),
        ("silero_vad.onnx", "silero_vad_openvino_16k.onnx", "", ()),
        ("kws.tflite", "kws_ref_model_float32.tflite", "input_1=1x49x10x1", ()),
        ("okay_nabu_streaming_int8.tflite", "okay_nabu_streaming_int8.tflite", "", ()),
    ]
    return [
        Case(name, str(models / file), ("--input-shape", shape) if shape else (), data)
        for name, file, shape, data in rows
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
    done = subprocess.run(command, cwd=SAMPLES, capture_output=True, text=True, check=False)
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
    """An error in one cell: what a user reads, with its exit code's hint."""
    error = answer["error"]
    words = f"refused: {error['message']}" + (f" → {error['hint']}" if error.get("hint") else "")
    return words.replace("|", "/").replace("\n", " ")[:900]


def floor_words(answer: dict[str, Any]) -> str:
    """That a result was accepted by the noise floor, if it was."""
    outputs = answer["manifest"]["verification"]["parity"]["outputs"]
    floors = [o["floor"] for o in outputs if o.get("floor")]
    return f"; noise floor {floors[0]['worst_slice_db']:.0f} dB ({floors[0]['how']})" if floors else ""


def int8_words(answer: dict[str, Any]) -> str:
    """What came of the integers."""
    if not answer["ok"]:
        return said(answer)
    gates = answer["manifest"]["verification"]["gates"]
    missed = [gate for gate in gates if gate["verdict"] != "passed"]
    noise = [o["sqnr_db"] for o in answer["manifest"]["verification"]["int8"]["outputs"] if o["sqnr_db"] is not None]
    worst = f"{min(noise):.1f} dB" if noise else "exact"
    return f"passed, {worst}" if not missed else f"rejected, {worst}: " + "; ".join(g["message"] for g in missed)[:260]


def row(case: Case) -> str:
    """One line of the table."""
    with tempfile.TemporaryDirectory(prefix="edgekit-real-") as name:
        answer, seconds = converted(case, [*case.data, "--recipe", "float32"], Path(name) / "float")
        if not answer["ok"]:
            return f"| {case.name} | {said(answer)} | - | {seconds:.0f} | - |"
        integer = "not tried: no data at hand"
        if case.data:
            integer = int8_words(converted(case, [*case.data, *case.split], Path(name) / "int8")[0])
        route = answer["manifest"]["frontend"]["name"]
        judged = "" if case.data else ", on drawn inputs"
        found = f"{parity_words(answer)}{floor_words(answer)}{judged}"
        return f"| {case.name} | {found} | {route} | {seconds:.0f} | {integer} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, default=SHARED / "models")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    wanted = options.only.split(",") if options.only else []
    with tempfile.TemporaryDirectory(prefix="edgekit-models-") as name:
        folder = gathered(options.models, Path(name))
        print("| model | float: worst output, worst slice | route | s | full integer |")
        print("|---|---|---|---|---|")
        for case in cases(folder):
            here = not Path(case.model).is_absolute() or Path(case.model).exists()
            if here and (not wanted or any(word in case.name for word in wanted)):
                print(row(case), flush=True)


def gathered(models: Path, folder: Path) -> Path:
    """``folder`` with the models of ``models`` and those that sample_models/obtain.py fetched, as links."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "edgekit" / "sample_models"
    for place in (models, cache):
        for path in sorted(place.iterdir()) if place.is_dir() else ():
            link = folder / path.name
            if path.is_file() and not link.exists():
                link.symlink_to(path)
    return folder


if __name__ == "__main__":
    main()
