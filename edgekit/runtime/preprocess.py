"""From a picture to a network's input: one code for calibration, verification and the board.

The order is that of :class:`edgekit.values.Preprocessing`: decode to the colours, resize, centre crop, ``x = (pixel - mean) / std``.
The rules where libraries differ, decided once:

* A picture is taken as it is stored: an EXIF orientation is not applied (as in torchvision and TensorFlow).
* Transparency is dropped; grey is 0.299 R + 0.587 G + 0.114 B in Pillow's fixed point, and comes before resizing.
* Resizing filters out what the smaller picture cannot hold (antialiasing), as Pillow does. OpenCV's does not, so OpenCV only
  decodes here, and numpy resizes: the same pixels as with Pillow, bit for bit. The horizontal pass comes first.
* ``short-side``: the longer side becomes ``int(target * long / short)``, as in torchvision.
* ``letterbox``: the largest size of the same aspect that fits, rounded, in the centre (the odd pixel goes right and below).
* ``pad-right``: to the target height, the width rounded up and never beyond the target width (a wider picture is squeezed);
  the rest lies on the right.
* Padding is 0 in the normalised input, whatever mean and std are, for both.
* A centre crop that leaves an odd number of pixels takes one more from the right and below.
* ``mean`` and ``std`` stand in the order of the delivered channels (for ``color="bgr"``: blue first).
"""

from __future__ import annotations

import importlib
import math
import os
from typing import TYPE_CHECKING, Any, Sequence, Tuple, Union

import numpy as np

from edgekit.errors import DataError, RecipeError, UsageError
from edgekit.runtime import resample
from edgekit.values import Preprocessing

if TYPE_CHECKING:
    from numpy.typing import NDArray

FITS = ("short-side", "stretch", "letterbox", "pad-right")
FILTERS = ("bilinear", "bicubic", "nearest")
COLORS = ("rgb", "bgr", "gray")
BACKENDS = ("pillow", "opencv", "numpy")


def prepare(
    picture: Union[str, os.PathLike[str], NDArray[Any]], spec: Preprocessing, *, backend: str = "auto"
) -> NDArray[Any]:
    """The network's input for one picture: float32, height x width x channels (1 channel for ``gray``), no batch axis.

    ``picture`` is an image file, or pixels in RGB order: height x width, or height x width x 1, 3 or 4 channels, whole numbers from
    0 to 255. ``backend`` says what decodes and resizes: "pillow", "opencv" (decodes only), "numpy" (cannot decode), or "auto" for
    the first that is installed; the result is the same with each.

    Raises :class:`DataError` when the picture cannot be read or is smaller than the crop, :class:`RecipeError` when ``spec`` is
    impossible, :class:`UsageError` (code ``decoder_missing``) when nothing installed can decode files.
    """
    check_preprocessing(spec)
    chosen = _choose(backend)
    pixels = _pixels(picture, chosen) if isinstance(picture, np.ndarray) else _decode(os.fspath(picture), chosen)
    pixels = _to_color(pixels, spec.color)
    if spec.resize is None:
        return _normalise(_crop(pixels, spec.crop), spec)
    if spec.fit in ("letterbox", "pad-right"):
        return _crop(_padded(pixels, spec, chosen), spec.crop)
    height, width = _target(pixels.shape[0], pixels.shape[1], spec)
    return _normalise(_crop(_resize(pixels, height, width, spec.filter, chosen), spec.crop), spec)


def check_preprocessing(spec: Preprocessing) -> None:
    """Raises :class:`RecipeError` when no picture could be prepared as ``spec`` says."""
    for word, value, allowed in (
        ("fit", spec.fit, FITS),
        ("filter", spec.filter, FILTERS),
        ("color", spec.color, COLORS),
    ):
        if value not in allowed:
            raise RecipeError(f"preprocessing {word} is {value!r}", hint=f"one of {', '.join(allowed)}")
    for word, size in (("resize", spec.resize), ("crop", spec.crop)):
        if size is not None and min(size) < 1:
            raise RecipeError(f"preprocessing {word} is {size[0]} x {size[1]} pixels")
    channels = 1 if spec.color == "gray" else 3
    for word, values in (("mean", spec.mean), ("std", spec.std)):
        if len(values) not in (1, channels):
            raise RecipeError(f"preprocessing {word} has {len(values)} values for {channels} channels")
        if not all(math.isfinite(value) for value in values):
            raise RecipeError(f"preprocessing {word} is {list(values)}")
    if any(value == 0 for value in spec.std):
        raise RecipeError("preprocessing std is 0: nothing can be divided by it")
    if spec.resize is None and spec.fit in ("letterbox", "pad-right"):
        raise RecipeError(f"preprocessing fit {spec.fit!r} needs a resize: the size to pad to")


def _choose(backend: str) -> str:
    if backend in BACKENDS:
        return backend
    if backend != "auto":
        raise UsageError(f"no image backend is called {backend!r}", hint=f"auto, {', '.join(BACKENDS)}")
    for name, module in (("pillow", "PIL.Image"), ("opencv", "cv2")):
        try:
            importlib.import_module(module)
        except ImportError:
            continue
        return name
    return "numpy"


def _decode(path: str, backend: str) -> NDArray[Any]:
    """Pixels of an image file, uint8, height x width x channels: 1 for grey files, else 3 in RGB order."""
    if not os.path.isfile(path):
        raise DataError(f"{path} does not exist" if not os.path.exists(path) else f"{path} is no file")
    if backend == "pillow":
        return _decode_with_pillow(path)
    if backend == "opencv":
        return _decode_with_opencv(path)
    raise UsageError(
        f"nothing installed here can decode {path}",
        code="decoder_missing",
        hint="pip install pillow   (or opencv-python)",
    )


def _decode_with_pillow(path: str) -> NDArray[Any]:
    from PIL import Image

    try:
        with Image.open(path) as image:
            if image.mode in ("I", "F") or image.mode.startswith("I;"):
                raise DataError(f"{path} has more than 8 bits for a pixel (mode {image.mode})")
            pixels = np.asarray(image.convert("L" if image.mode in ("1", "L", "LA") else "RGB"))
    except (OSError, SyntaxError, ValueError) as error:  # Pillow says all three of damaged files
        raise DataError(f"{path} is no image that can be read: {error}") from error
    return pixels if pixels.ndim == 3 else pixels[:, :, np.newaxis]


def _decode_with_opencv(path: str) -> NDArray[Any]:
    cv2 = importlib.import_module("cv2")
    pixels = cv2.imread(path, cv2.IMREAD_UNCHANGED)  # neither turned by EXIF nor reduced to 8 bit
    if pixels is None:
        raise DataError(f"{path} is no image that can be read")
    if pixels.dtype != np.uint8:
        raise DataError(f"{path} has more than 8 bits for a pixel ({pixels.dtype})")
    if pixels.ndim == 2:
        return np.asarray(pixels)[:, :, np.newaxis]
    return np.asarray(pixels)[:, :, 2::-1]  # BGR or BGRA


def _pixels(array: NDArray[Any], backend: str) -> NDArray[Any]:
    """An array as uint8, height x width x 1 or 3; :class:`DataError` when it is not a picture's pixels."""
    if array.ndim == 2:
        array = array[:, :, np.newaxis]
    if array.ndim != 3 or array.shape[2] not in (1, 3, 4) or 0 in array.shape:
        raise DataError(
            f"an array of shape {list(array.shape)} is no picture",
            hint="height x width, or height x width x 1, 3 or 4 channels",
        )
    if array.dtype != np.uint8:
        with np.errstate(invalid="ignore"):
            whole = array.astype(np.uint8)
        if array.dtype.kind not in "iuf" or not np.array_equal(whole, array):
            raise DataError(
                f"pixels are whole numbers from 0 to 255, the {array.dtype.name} array has others "
                f"(from {array.min()} to {array.max()})",
                hint="preprocessing applies to raw pixels; an array that is prepared already needs none",
            )
        array = whole
    return array[:, :, :3] if array.shape[2] == 4 else array


def _to_color(pixels: NDArray[Any], color: str) -> NDArray[Any]:
    grey = pixels.shape[2] == 1
    if color == "gray":
        if grey:
            return pixels
        red, green, blue = (pixels[:, :, channel].astype(np.uint32) for channel in range(3))
        # ITU-R 601-2 in 16 fractional bits, as Pillow does.
        return ((red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16).astype(np.uint8)[:, :, np.newaxis]
    if grey:
        return np.repeat(pixels, 3, axis=2)
    return pixels[:, :, ::-1] if color == "bgr" else pixels


def _target(height: int, width: int, spec: Preprocessing) -> Tuple[int, int]:
    """Height and width after resizing, before padding and cropping."""
    assert spec.resize is not None
    to_height, to_width = spec.resize
    if spec.fit == "short-side":
        if height <= width:
            return to_height, max(1, int(to_height * width / height))
        return max(1, int(to_height * height / width)), to_height
    if spec.fit == "letterbox":
        scale = min(to_height / height, to_width / width)
        return min(to_height, max(1, round(height * scale))), min(to_width, max(1, round(width * scale)))
    if spec.fit == "pad-right":
        return to_height, min(to_width, max(1, math.ceil(to_height * width / height)))
    return to_height, to_width


def _padded(pixels: NDArray[Any], spec: Preprocessing, backend: str) -> NDArray[Any]:
    """Resized, normalised, and surrounded by zeros up to the target size."""
    assert spec.resize is not None
    height, width = _target(pixels.shape[0], pixels.shape[1], spec)
    canvas = np.zeros((spec.resize[0], spec.resize[1], pixels.shape[2]), np.float32)
    top, left = (0, 0) if spec.fit == "pad-right" else ((spec.resize[0] - height) // 2, (spec.resize[1] - width) // 2)
    resized = _resize(pixels, height, width, spec.filter, backend)
    canvas[top : top + height, left : left + width] = _normalise(resized, spec)
    return canvas


def _resize(pixels: NDArray[Any], height: int, width: int, filter: str, backend: str) -> NDArray[Any]:
    if (height, width) == pixels.shape[:2]:
        return pixels
    if backend != "pillow":
        return resample.resize(pixels, height=height, width=width, filter=filter)
    from PIL import Image

    how = {
        "bilinear": Image.Resampling.BILINEAR,
        "bicubic": Image.Resampling.BICUBIC,
        "nearest": Image.Resampling.NEAREST,
    }[filter]
    grey = pixels.shape[2] == 1
    image = Image.fromarray(np.ascontiguousarray(pixels[:, :, 0] if grey else pixels))
    if filter == "nearest":
        image = image.resize((width, height), how)
    else:
        # Since Pillow 13 the order of the passes depends on the sizes, and with it the rounding between them: one pass a call.
        image = image.resize((width, image.height), how).resize((width, height), how)
    resized = np.asarray(image)
    return resized[:, :, np.newaxis] if grey else resized


def _crop(pixels: NDArray[Any], crop: Union[None, Sequence[int]]) -> NDArray[Any]:
    if crop is None:
        return pixels
    height, width = pixels.shape[:2]
    if crop[0] > height or crop[1] > width:
        raise DataError(
            f"a crop of {crop[0]} x {crop[1]} does not fit into the picture's {height} x {width} pixels (height x width)",
            hint="resize to at least the size of the crop first",
        )
    top, left = (height - crop[0]) // 2, (width - crop[1]) // 2
    return pixels[top : top + crop[0], left : left + crop[1]]


def _normalise(pixels: NDArray[Any], spec: Preprocessing) -> NDArray[Any]:
    x = pixels.astype(np.float32)
    x -= np.asarray(spec.mean, np.float32)
    x /= np.asarray(spec.std, np.float32)
    return x
