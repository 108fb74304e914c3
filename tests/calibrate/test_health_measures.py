"""What the health check measures, against answers that are known: layout of the numbers, growth of ranges, near-duplicates."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from edgekit.calibrate.feeding import wrong_order
from edgekit.calibrate.profile import Profiler, near_duplicates
from edgekit.calibrate.stability import MOST_MORE, SETTLED, beyond, grown
from edgekit.values import IoSpec

Array = NDArray[np.float64]


def picture_input(layout: str, height: int, width: int) -> IoSpec:
    shape = (1, 3, height, width) if layout == "nchw" else (1, height, width, 3)
    return IoSpec("x", shape, "float32", "x", shape, "float32", layout=layout)


def scene(height: int, width: int, *, seed: int = 0, noise: float = 4.0) -> Array:
    """Smooth shapes in three unlike colours with the noise of a camera; height x width x 3."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[0:height, 0:width] / max(height, width)
    waves = [100 + 80 * np.sin(a * rows + b * columns + c) for a, b, c in rng.uniform(2, 9, (3, 3))]
    return np.stack(waves, axis=-1) + rng.normal(0, noise, (height, width, 3))


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize(("height", "width"), [(32, 32), (24, 40), (61, 33)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_pictures_that_were_reshaped_for_transposed_are_told(layout: str, height: int, width: int, seed: int) -> None:
    last, spec = scene(height, width, seed=seed), picture_input(layout, height, width)
    first = last.transpose(2, 0, 1)
    right, other = (first, last) if layout == "nchw" else (last, first)
    assert not wrong_order(right[None], spec)
    assert wrong_order(other.reshape(spec.source_shape), spec)


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_noise_and_small_pictures_have_no_order(layout: str) -> None:
    noise = np.random.default_rng(0).normal(0, 1, (1, 3, 32, 32))
    spec = picture_input(layout, 32, 32)
    assert not wrong_order(noise.reshape(spec.source_shape), spec)
    small = picture_input(layout, 6, 40)
    turned = scene(6, 40).transpose(2, 0, 1) if layout == "nhwc" else scene(6, 40)
    assert not wrong_order(turned.reshape(small.source_shape), small)


def test_growth_by_hand() -> None:
    """Widths 1, 1, 1, 2: a quarter has 1.25 in the mean; of six halves three hold the 2: 1.5; the whole 2."""
    parts = [{"t": (0.0, 1.0)}] * 3 + [{"t": (0.0, 2.0)}]
    found = grown(parts, looked_at=8, count=8)
    assert found.to_half == pytest.approx(1.5 / 1.25 - 1)
    assert found.to_whole == pytest.approx(2 / 1.5 - 1)
    assert found.worst == (("t", pytest.approx(1 / 3)),)
    assert found.more is None  # it grows faster, not slower


def test_ranges_that_hold_want_no_more_samples() -> None:
    found = grown([{"a": (-1.0, 1.0), "b": (0.5, 3.0)}] * 4, looked_at=64, count=100)
    assert (found.to_half, found.to_whole, found.more) == (0.0, 0.0, 0)


def test_growth_that_slows_down_says_how_many_more() -> None:
    """Widths 4, 8, 8, 8: quarter 7, half 8, whole 8: settled. 4, 5, 6, 8: quarter 5.75, half 6.833, whole 8: each doubling grows
    by 0.1884 and 0.1707 (ratio 0.906), so 13 doublings more: beyond what is worth saying."""
    assert grown([{"t": (0.0, w)} for w in (4.0, 8.0, 8.0, 8.0)], looked_at=64, count=64).more == 0
    slow = grown([{"t": (0.0, w)} for w in (4.0, 5.0, 6.0, 8.0)], looked_at=64, count=64)
    assert slow.to_half == pytest.approx((5 + 6 + 8 + 6 + 8 + 8) / 6 / 5.75 - 1)
    assert MOST_MORE < 64 * 2**13 and slow.more is None
    # 3, 5, 7, 7.5: quarter 5.625, half 6.917, whole 7.5: by 0.2296 and 0.0843 (ratio 0.367), so the next doubling grows by 0.031.
    assert SETTLED > 0.0843 * 0.367
    assert grown([{"t": (0.0, w)} for w in (3.0, 5.0, 7.0, 7.5)], looked_at=8, count=8).more == 8
    assert grown([{"t": (0.0, w)} for w in (3.0, 5.0, 7.0, 7.5)], looked_at=8, count=12).more == 4


def test_the_order_of_the_parts_does_not_matter() -> None:
    rng = np.random.default_rng(3)
    parts = [
        {n: (-float(a), float(b)) for n, (a, b) in zip("pqr", rng.gamma(2, 1, (3, 2)), strict=True)} for _ in "abcd"
    ]
    one, other = grown(parts, looked_at=32, count=50), grown(parts[::-1], looked_at=32, count=50)
    assert one.to_half == pytest.approx(other.to_half) and one.to_whole == pytest.approx(other.to_whole)
    assert [name for name, _ in one.worst] == [name for name, _ in other.worst] and one.more == other.more


def test_what_leaves_its_range_by_how_much() -> None:
    found = beyond(
        {"a": (0.0, 2.0), "b": (-1.0, 1.0), "c": (0.0, 0.0)}, {"a": (0, 3), "b": (-1, 1), "c": (0, 1)}, least=0.1
    )
    assert [(item.tensor, item.share) for item in found] == [("c", float("inf")), ("a", 0.5)]


def test_near_duplicates_and_what_only_resembles() -> None:
    """Ten scenes; frames with a camera's noise repeat the third and the seventh, one picture brighter by a fifth repeats none."""
    scenes = [scene(32, 32, seed=seed) for seed in range(10)]
    noise = np.random.default_rng(9).normal(0, 2, (2, 32, 32, 3))
    pictures = [*scenes, scenes[3] + noise[0], scenes[7] + noise[1], scenes[0] * 1.2 + 20]
    profiler = Profiler([picture_input("nhwc", 32, 32)])
    for _ in profiler.over({"x": picture[None].astype(np.float32)} for picture in pictures):
        pass
    (profile,) = profiler.profiles()
    assert profile.similar == ((10, 3), (11, 7))
    assert (profile.count, profile.distinct) == (13, 11)


def test_equal_vectors_repeat_the_first_of_them() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(0, 1, (6, 50))
    repeated = np.concatenate([vectors, vectors[[2]], vectors[[2]], vectors[[5]]])
    assert near_duplicates(repeated) == ((6, 2), (7, 2), (8, 5))
    assert near_duplicates(vectors) == () and near_duplicates(vectors[:1]) == ()
