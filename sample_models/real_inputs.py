"""Real inputs for models that come without data: ``--data real_inputs:text_lines`` and so on, called from this folder.

    edgekit convert ch_PP-OCRv4_rec_infer.onnx --input-shape x=1x3x48x320 --data real_inputs:text_lines --out ocr.bundle

Text is rendered, files are Python's own, sounds are computed; the same on every machine with the same versions. Random numbers are for
the networks of ``small_networks`` alone, which were never trained on anything.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

COUNT = 96
Sample = dict[str, NDArray[np.generic]]
_VOCABULARY = """edge board camera sensor integer scale zero point measured Temperature 42 Total 12.90 Invoice No. 7731 exit
Platform 9 open closed NORTH South garden bridge window 2026 kg 3.5 m/s green light left right battery low"""


def _line(rng: np.random.Generator, words: int) -> str:
    return " ".join(rng.choice(_VOCABULARY.split(), size=words))


def text_lines() -> Iterator[Sample]:
    """Lines for the text recogniser: ``x`` 1x3x48x320, BGR, x / 127.5 - 1, padded with 0 on the right."""
    from PIL import Image, ImageDraw, ImageFont

    font, rng = ImageFont.load_default(size=30), np.random.default_rng(1)
    for _ in range(COUNT):
        text = _line(rng, 3)
        width = min(int(font.getlength(text)) + 12, 320)
        paper, ink = int(rng.integers(170, 256)), int(rng.integers(0, 90))
        picture = Image.new("L", (width, 48), paper)
        ImageDraw.Draw(picture).text((6, int(rng.integers(2, 10))), text, fill=ink, font=font)
        x = np.zeros((1, 3, 48, 320), np.float32)
        x[0, :, :, :width] = np.asarray(picture, np.float32) / 127.5 - 1.0
        yield {"x": x}


def pages() -> Iterator[Sample]:
    """Pages for the text detector: ``x`` 1x3x320x320, (x / 255 - mean) / std with ImageNet's mean and std, in BGR order."""
    from PIL import Image, ImageDraw, ImageFont

    rng = np.random.default_rng(2)
    mean, std = np.float32([0.406, 0.456, 0.485]), np.float32([0.225, 0.224, 0.229])
    for _ in range(COUNT):
        picture = Image.new("RGB", (320, 320), tuple(int(c) for c in rng.integers(160, 256, 3)))
        draw, y = ImageDraw.Draw(picture), 8
        while y < 290:
            size = int(rng.integers(12, 34))
            ink = tuple(int(c) for c in rng.integers(0, 100, 3))
            draw.text((int(rng.integers(4, 60)), y), _line(rng, 2), fill=ink, font=ImageFont.load_default(size=size))
            y += size + int(rng.integers(6, 30))
        pixels = np.asarray(picture, np.float32)[:, :, ::-1] / 255.0
        yield {"x": np.ascontiguousarray(((pixels - mean) / std).transpose(2, 0, 1)[None]).astype(np.float32)}


def files() -> Iterator[Sample]:
    """Files of this Python, the ways magika looks at them: ``bytes`` 1x2048 int32, the first and the last 1024 without white space
    around, 256 where there is none."""
    places = [Path(sysconfig.get_path("stdlib")), Path(np.__file__).parent, Path(sys.executable).resolve().parent]
    kinds = (".py", ".pyc", ".txt", ".h", ".so", ".json", ".toml", ".html", ".cfg", ".pyi", ".c", ".png", ".zip", "")
    found: dict[str, list[Path]] = {kind: [] for kind in kinds}
    for path in sorted(path for place in places for path in place.rglob("*") if path.is_file()):
        if path.suffix in found and len(found[path.suffix]) < 16 and path.stat().st_size >= 64:
            found[path.suffix].append(path)
    turns = [paths[turn] for turn in range(16) for paths in found.values() if turn < len(paths)]
    for path in turns[:COUNT]:
        with path.open("rb") as file:
            head = file.read(4096).lstrip()[:1024]
            file.seek(max(path.stat().st_size - 4096, 0), os.SEEK_SET)
            tail = file.read(4096).rstrip()[-1024:]
        codes = np.full((1, 2048), 256, np.int32)
        codes[0, : len(head)] = np.frombuffer(head, np.uint8)
        codes[0, 2048 - len(tail) :] = np.frombuffer(tail, np.uint8)
        yield {"bytes": codes}


def _melody(rng: np.random.Generator) -> NDArray[np.float32]:
    """Two seconds at 22,050 Hz: notes with overtones that fade, and a little noise."""
    seconds = np.arange(43844) / 22050.0
    sound = 0.002 * rng.standard_normal(seconds.size)
    for _ in range(int(rng.integers(2, 6))):
        pitch, start = 110.0 * 2.0 ** (rng.integers(0, 40) / 12), rng.uniform(0.0, 1.5)
        since = np.maximum(seconds - start, 0.0)
        for overtone in (1, 2, 3, 4):
            sound += (since > 0) * np.exp(-3 * since) * np.sin(2 * np.pi * pitch * overtone * since) * 0.2 / overtone
    return (0.9 * sound / np.abs(sound).max()).astype(np.float32).reshape(1, -1, 1)


def melodies() -> Iterator[Sample]:
    """For basic-pitch: notes, 1x43844x1."""
    rng = np.random.default_rng(3)
    for _ in range(COUNT // 2):
        yield {"input": _melody(rng)}


def melodies_onnx() -> Iterator[Sample]:
    """The same under the name that the ONNX form has for it."""
    yield from ({"serving_default_input_2:0": sample["input"]} for sample in melodies())


def melodies_tflite() -> Iterator[Sample]:
    """The same under the name that the TFLite form has for it."""
    yield from ({"input_2": sample["input"]} for sample in melodies())


def numbers_32x32() -> Iterator[Sample]:
    """For the small attention network: random numbers, as its weights are."""
    rng = np.random.default_rng(4)
    for _ in range(COUNT):
        yield {"x": rng.standard_normal((1, 3, 32, 32), np.float32)}


def numbers_20x16() -> Iterator[Sample]:
    """For the small recurrent network: random numbers, as its weights are."""
    rng = np.random.default_rng(5)
    for _ in range(COUNT):
        yield {"x": rng.standard_normal((1, 20, 16), np.float32)}
