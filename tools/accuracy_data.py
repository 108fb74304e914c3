"""Inputs for tools/measure_accuracy.py: each model's calibration and evaluation arrays from the labelled data of ../shared/data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

Array = NDArray[Any]
Parts = tuple[dict[str, Array], dict[str, Array]]
KWS_SCALE, KWS_ZERO = np.float32(0.5847029089927673), 83
FONTS = Path("/usr/share/fonts/truetype/dejavu")
WORDS = ("invoice", "total", "amount", "street", "number", "signature", "order", "customer", "quantity", "delivery", "4711", "2026",
         "Tuesday", "mountain", "window", "garden", "paper", "school", "river", "station", "bridge")  # fmt: skip


def _picture(path: Path, size: tuple[int, int] | None, box: tuple[int, int, int, int] | None = None) -> Array:
    image = Image.open(path).convert("RGB")
    image = image.crop(box) if box else image.resize(size, Image.Resampling.BILINEAR) if size else image
    return np.asarray(image, np.float32)


def _stacked(paths: list[Path], prepare: Callable[[Path], Array]) -> Array:
    return np.stack([prepare(path).transpose(2, 0, 1) for path in paths])


def lite0(shared: Path) -> Parts:
    """100 pictures calibrate, 400 judge, labelled by their class index."""
    paths = sorted((shared / "imagenet500").glob("*.jpg"))
    x = _stacked(paths, lambda path: (_picture(path, None, (16, 16, 240, 240)) - 127) / 128)
    labels = np.array([int(path.name[:4]) for path in paths])
    return {"input": x[:100]}, {"input": x[100:], "label": labels[100:]}


def kws(shared: Path) -> Parts:
    """Every tenth of 1,000 labelled features calibrates."""
    data = np.load(shared / "kws01_1000.npz")
    x, y = (data["x"].astype(np.float32) - KWS_ZERO) * KWS_SCALE, data["y"].astype(np.int64)
    first = np.arange(len(x)) % 10 == 0
    return {"input_1": x[first]}, {"input_1": x[~first], "label": y[~first]}


def _photos(shared: Path) -> tuple[list[Path], list[Path], list[Path]]:
    """Every eighth of the first 480 photographs, the other ones, and 13 of COCO."""
    paths = sorted((shared / "imagenet500").glob("*.jpg"))
    first = paths[:480:8]
    return (
        first,
        [path for path in paths if path not in set(first)],
        sorted((shared / "tinycoco" / "images").glob("*.jpg")),
    )


def fastestdet(shared: Path) -> Parts:
    """60 photographs calibrate, 13 of COCO judge."""
    first, _, coco = _photos(shared)

    def prepare(path: Path) -> Array:
        return _picture(path, (352, 352))[..., ::-1] / 255

    return {"input.1": _stacked(first, prepare)}, {"input.1": _stacked(coco, prepare)}


def rfb320(shared: Path) -> Parts:
    """60 photographs calibrate, 13 of COCO and 50 others judge."""
    first, others, coco = _photos(shared)

    def prepare(path: Path) -> Array:
        return (_picture(path, (320, 240)) - 127) / 128

    return {"input": _stacked(first, prepare)}, {"input": _stacked([*coco, *others[4::9][:50]], prepare)}


def text_lines(_: Path) -> Parts:
    """360 lines of dark text on light ground in the DejaVu fonts, every second one upside down; 60 calibrate."""
    fonts = sorted(FONTS.glob("DejaVuSans*.ttf"))
    if not fonts:
        raise SystemExit(f"no DejaVu fonts in {FONTS}: apt-get install fonts-dejavu-core")
    random = np.random.default_rng(7)
    x = np.stack([_line(i, fonts, random).transpose(2, 0, 1) for i in range(360)])
    return {"x": x[:60]}, {"x": x[60:], "label": np.arange(60, 360) % 2}


def _line(number: int, fonts: list[Path], random: np.random.Generator) -> Array:
    font = ImageFont.truetype(str(fonts[random.integers(len(fonts))]), int(random.integers(24, 36)))
    text = " ".join(WORDS[i] for i in random.integers(0, len(WORDS), random.integers(1, 4)))
    width = int(font.getlength(text)) + 16
    image = Image.new("RGB", (width, 48), (int(random.integers(200, 256)),) * 3)
    ImageDraw.Draw(image).text((8, 4), text, font=font, fill=(int(random.integers(0, 80)),) * 3)
    image = image.rotate(180) if number % 2 else image
    image = image.resize((min(width, 192), 48), Image.Resampling.BILINEAR)
    padded = np.zeros((48, 192, 3), np.float32)
    padded[:, : image.width] = np.asarray(image, np.float32)[..., ::-1] / 127.5 - 1
    return padded
