"""Preprocessing against values worked out by hand, against Pillow, and against the definition of the filters."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any, Callable, List

import numpy as np
import pytest

from edgekit.errors import DataError, RecipeError, UsageError
from edgekit.runtime import resample
from edgekit.runtime.preprocess import FILTERS, check_preprocessing, prepare
from edgekit.values import Preprocessing

has_pillow = importlib.util.find_spec("PIL") is not None
has_opencv = importlib.util.find_spec("cv2") is not None
needs_pillow = pytest.mark.skipif(not has_pillow, reason="Pillow is not installed")
BACKENDS = ["numpy", pytest.param("pillow", marks=needs_pillow)]


def noise(height: int, width: int, channels: int = 3) -> Any:
    return np.random.RandomState(height * width).randint(0, 256, (height, width, channels)).astype(np.uint8)


def test_normalising_by_hand() -> None:
    pixels = np.array([[[0, 127, 255]]], np.uint8)
    spec = Preprocessing(mean=(127.0,), std=(128.0,))
    x = prepare(pixels, spec)
    assert x.dtype == np.float32
    assert x.shape == (1, 1, 3)
    assert x.tolist() == [[[-127 / 128, 0.0, 1.0]]]
    each = Preprocessing(mean=(10.0, 20.0, 30.0), std=(2.0, 4.0, 5.0))
    assert prepare(np.array([[[12, 28, 25]]], np.uint8), each).tolist() == [[[1.0, 2.0, -1.0]]]


def test_mean_and_std_stand_in_the_order_of_the_delivered_channels() -> None:
    pixels = np.array([[[1, 2, 3]]], np.uint8)  # R, G, B
    assert prepare(pixels, Preprocessing(color="bgr")).tolist() == [[[3, 2, 1]]]
    assert prepare(pixels, Preprocessing(color="bgr", mean=(3.0, 0.0, 0.0))).tolist() == [[[0, 2, 1]]]


def test_grey_by_hand() -> None:
    # 0.299 R + 0.587 G + 0.114 B, rounded.
    colours = np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255], [100, 50, 200]]], np.uint8)
    grey = prepare(colours, Preprocessing(color="gray"))
    assert grey.shape == (1, 5, 1)
    assert grey.ravel().tolist() == [76, 150, 29, 255, 82]


def test_grey_pictures_and_transparency() -> None:
    grey = np.array([[7, 9]], np.uint8)
    assert prepare(grey, Preprocessing()).tolist() == [[[7, 7, 7], [9, 9, 9]]]
    assert prepare(grey, Preprocessing(color="gray")).tolist() == [[[7], [9]]]
    assert prepare(np.array([[[1, 2, 3, 0]]], np.uint8), Preprocessing()).tolist() == [[[1, 2, 3]]]


def test_centre_crop_takes_the_odd_pixel_from_right_and_below() -> None:
    pixels = np.arange(25, dtype=np.uint8).reshape(5, 5)
    assert prepare(pixels, Preprocessing(color="gray", crop=(2, 3)))[:, :, 0].tolist() == [[6, 7, 8], [11, 12, 13]]
    with pytest.raises(DataError, match="crop of 6 x 5 does not fit into the picture's 5 x 5"):
        prepare(pixels, Preprocessing(crop=(6, 5)))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("fit", "before", "resize", "after"),
    [
        ("short-side", (300, 400), (256, 256), (256, 341)),  # int(256 * 400 / 300)
        ("short-side", (400, 300), (256, 256), (341, 256)),
        ("short-side", (256, 256), (256, 256), (256, 256)),
        ("stretch", (300, 400), (100, 50), (100, 50)),
        ("letterbox", (300, 400), (64, 64), (64, 64)),
        ("pad-right", (300, 400), (48, 192), (48, 192)),
    ],
)
def test_sizes(backend: str, fit: str, before: Any, resize: Any, after: Any) -> None:
    assert prepare(noise(*before), Preprocessing(resize=resize, fit=fit), backend=backend).shape == (*after, 3)


@pytest.mark.parametrize("backend", BACKENDS)
def test_letterbox_pads_with_zero_in_the_normalised_input(backend: str) -> None:
    white = np.full((30, 60, 3), 255, np.uint8)
    x = prepare(white, Preprocessing(resize=(40, 40), fit="letterbox", mean=(127.5,), std=(127.5,)), backend=backend)
    # 60 x 30 becomes 40 x 20: ten rows of padding above and below.
    assert np.all(x[10:30] == 1.0)
    assert np.all(x[:10] == 0.0)
    assert np.all(x[30:] == 0.0)
    odd = prepare(white, Preprocessing(resize=(41, 40), fit="letterbox"), backend=backend)
    assert np.flatnonzero(odd[:, 0, 0]).tolist() == list(range(10, 30))  # the odd row lies below


@pytest.mark.parametrize("backend", BACKENDS)
def test_pad_right_keeps_the_aspect_and_pads_with_zero(backend: str) -> None:
    white = np.full((20, 31, 3), 255, np.uint8)
    spec = Preprocessing(resize=(48, 192), fit="pad-right", color="bgr", mean=(127.5,), std=(127.5,))
    x = prepare(white, spec, backend=backend)
    assert np.all(x[:, :75] == 1.0)  # ceil(48 * 31 / 20) = ceil(74.4)
    assert np.all(x[:, 75:] == 0.0)
    wide = prepare(np.full((20, 900, 3), 255, np.uint8), spec, backend=backend)
    assert np.all(wide == 1.0)  # squeezed to the whole width


def triangle(x: float) -> float:
    return max(0.0, 1.0 - abs(x))


def cubic(x: float) -> float:
    x = abs(x)
    if x < 1:
        return 1.5 * x**3 - 2.5 * x**2 + 1
    return -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2 if x < 2 else 0.0


@pytest.mark.parametrize(("name", "function", "support"), [("bilinear", triangle, 1), ("bicubic", cubic, 2)])
@pytest.mark.parametrize("after", [3, 7, 16, 23, 50])
def test_resizing_follows_the_definition(
    name: str, function: Callable[[float], float], support: int, after: int
) -> None:
    """One row, convolved in floating point by the textbook: within one level of the fixed-point result."""
    row = noise(1, 23, 1)[0, :, 0].astype(float)
    scale = 23 / after
    reach = max(scale, 1.0)
    expected: List[float] = []
    for x in range(after):
        centre = (x + 0.5) * scale
        weights = [
            function((k + 0.5 - centre) / reach) if abs(k + 0.5 - centre) < support * reach else 0.0 for k in range(23)
        ]
        expected.append(min(255.0, max(0.0, sum(w * p for w, p in zip(weights, row)) / sum(weights))))
    result = resample.resize(noise(1, 23, 1), height=1, width=after, filter=name)[0, :, 0]
    assert np.max(np.abs(result - np.array(expected))) <= 1.0


@needs_pillow
@pytest.mark.parametrize("filter", FILTERS)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(224, 224), (37, 501), (300, 20), (1, 1), (480, 641), (700, 99)])
def test_numpy_gives_pillow_s_pixels(filter: str, channels: int, size: Any) -> None:
    pixels = noise(480, 641, channels)
    spec = Preprocessing(resize=size, fit="stretch", filter=filter, color="gray" if channels == 1 else "rgb")
    assert np.array_equal(prepare(pixels, spec, backend="numpy"), prepare(pixels, spec, backend="pillow"))


@needs_pillow
def test_ours_is_pillow_s_own_resize() -> None:
    """Beyond our own use of Pillow: its one call for both directions, whatever order of passes that version has."""
    from PIL import Image

    pixels = noise(90, 120)
    for filter, how in (("bilinear", Image.Resampling.BILINEAR), ("nearest", Image.Resampling.NEAREST)):
        direct = np.asarray(Image.fromarray(pixels).resize((56, 42), how)).astype(int)
        ours = prepare(pixels, Preprocessing(resize=(42, 56), fit="stretch", filter=filter), backend="numpy")
        assert np.max(np.abs(ours - direct)) <= 1


@needs_pillow
def test_files(tmp_path: Path) -> None:
    from PIL import Image

    pixels = noise(20, 30)
    spec = Preprocessing(resize=(16, 16), fit="stretch", crop=(8, 8), color="bgr", mean=(5.0,), std=(3.0,))
    file = tmp_path / "a.png"
    Image.fromarray(pixels).save(file)
    assert np.array_equal(prepare(file, spec), prepare(pixels, spec))
    Image.fromarray(pixels[:, :, 0]).save(tmp_path / "grey.png")
    assert np.array_equal(prepare(str(tmp_path / "grey.png"), spec), prepare(pixels[:, :, 0], spec))
    Image.fromarray(np.dstack([pixels, pixels[:, :, 0]])).save(tmp_path / "alpha.png")
    assert np.array_equal(prepare(tmp_path / "alpha.png", spec), prepare(pixels, spec))
    Image.fromarray(pixels).convert("P").save(tmp_path / "palette.png")
    assert prepare(tmp_path / "palette.png", spec).shape == (8, 8, 3)


@needs_pillow
def test_exif_does_not_turn_the_picture(tmp_path: Path) -> None:
    from PIL import Image

    image = Image.fromarray(noise(10, 20))
    exif = image.getexif()
    exif[0x0112] = 6  # "rotate by 90 degrees"
    image.save(tmp_path / "a.jpg", exif=exif)
    for backend in ["pillow"] + ["opencv"] * has_opencv:
        assert prepare(tmp_path / "a.jpg", Preprocessing(), backend=backend).shape == (10, 20, 3)


@needs_pillow
def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    from PIL import Image

    with pytest.raises(DataError, match="does not exist"):
        prepare(tmp_path / "none.jpg", Preprocessing())
    (tmp_path / "text.jpg").write_text("no picture")
    with pytest.raises(DataError, match="text.jpg"):
        prepare(tmp_path / "text.jpg", Preprocessing())
    Image.fromarray(noise(64, 64)).save(tmp_path / "whole.jpg")
    data = (tmp_path / "whole.jpg").read_bytes()
    (tmp_path / "cut.jpg").write_bytes(data[: len(data) // 2])
    with pytest.raises(DataError, match="cut.jpg"):
        prepare(tmp_path / "cut.jpg", Preprocessing(), backend="pillow")
    Image.fromarray(np.full((4, 4), 40000, np.uint16)).save(tmp_path / "deep.png")
    for backend in ["pillow"] + ["opencv"] * has_opencv:
        with pytest.raises(DataError, match="more than 8 bits"):
            prepare(tmp_path / "deep.png", Preprocessing(), backend=backend)


@pytest.mark.skipif(not (has_opencv and has_pillow), reason="OpenCV is not installed")
@pytest.mark.parametrize("filter", FILTERS)
def test_opencv_and_pillow_agree(tmp_path: Path, filter: str) -> None:
    from PIL import Image

    Image.fromarray(noise(48, 64)).save(tmp_path / "a.png")
    Image.fromarray(noise(48, 64, 1)[:, :, 0]).save(tmp_path / "b.png")
    for name in ("a.png", "b.png"):
        for color in ("rgb", "bgr", "gray"):
            spec = Preprocessing(resize=(30, 30), fit="stretch", filter=filter, color=color)
            one, other = (prepare(tmp_path / name, spec, backend=backend) for backend in ("opencv", "pillow"))
            assert np.array_equal(one, other)


def test_without_a_decoder_the_error_names_one(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG")
    with pytest.raises(UsageError, match="can decode") as caught:
        prepare(tmp_path / "a.png", Preprocessing(), backend="numpy")
    assert caught.value.code == "decoder_missing"
    assert "pip install pillow" in caught.value.hint


def test_arrays_that_are_no_pixels() -> None:
    for shape in ((4,), (4, 4, 2), (1, 4, 4, 3), (0, 4, 3)):
        with pytest.raises(DataError, match="is no picture"):
            prepare(np.zeros(shape, np.uint8), Preprocessing())
    for wrong in (np.full((2, 2), 0.5), np.full((2, 2), -1), np.full((2, 2), 256), np.full((2, 2), np.nan)):
        with pytest.raises(DataError, match="whole numbers from 0 to 255"):
            prepare(wrong, Preprocessing())
    assert prepare(np.full((1, 1), 200.0), Preprocessing(color="gray")).tolist() == [[[200.0]]]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (Preprocessing(fit="cover"), "fit is 'cover'"),
        (Preprocessing(filter="lanczos"), "filter is 'lanczos'"),
        (Preprocessing(color="yuv"), "color is 'yuv'"),
        (Preprocessing(resize=(0, 4)), "resize is 0 x 4"),
        (Preprocessing(crop=(4, -1)), "crop is 4 x -1"),
        (Preprocessing(mean=(1.0, 2.0)), "mean has 2 values for 3 channels"),
        (Preprocessing(color="gray", std=(1.0, 2.0, 3.0)), "std has 3 values for 1 channels"),
        (Preprocessing(std=(1.0, 0.0, 1.0)), "std is 0"),
        (Preprocessing(mean=(math.nan,)), "mean is"),
        (Preprocessing(fit="letterbox"), "needs a resize"),
    ],
)
def test_impossible_specs_are_refused_before_any_picture(spec: Preprocessing, said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        check_preprocessing(spec)


def test_unknown_backend() -> None:
    with pytest.raises(UsageError, match="no image backend"):
        prepare(np.zeros((2, 2), np.uint8), Preprocessing(), backend="skimage")
