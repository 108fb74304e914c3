"""What a range of input values looks like: raw pixels, one of the usual normalisations, or one of them applied twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgekit.values import Preprocessing

RAW, UNIT, SIGNED, IMAGENET, TWICE, WIDE = "raw", "unit", "signed", "imagenet", "twice", "wide"
WORDS = {
    RAW: "raw pixels (0 to 255)",
    UNIT: "pixels divided by 255 (0 to 1)",
    SIGNED: "pixels scaled to -1 to 1",
    IMAGENET: "pixels normalised with ImageNet's mean and standard deviation",
    TWICE: "pixels that were scaled twice",
    WIDE: "pixels normalised with a mean and a standard deviation in units of 0 to 1, though they lie in 0 to 255",
}
"""Each family in words."""
PIXEL_SCALES: dict[str, tuple[Sequence[float], Sequence[float]]] = {
    RAW: ((0.0,), (1.0,)),
    UNIT: ((0.0,), (255.0,)),
    SIGNED: ((127.5,), (127.5,)),
    IMAGENET: ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375)),
}
"""Mean and standard deviation, in units of the raw pixel, that lead to each family."""
TWICE_SPAN = 1 / 64
"""255 levels of a pixel within less than this: each was divided by 128 or 255 once more than the numbers that networks are trained on."""


@dataclass(frozen=True)
class Span:
    """Lowest and highest value of an input over some samples."""

    low: float
    high: float

    @property
    def width(self) -> float:
        """From the lowest to the highest."""
        return self.high - self.low

    def __str__(self) -> str:
        return f"{self.low:.4g} to {self.high:.4g}"


def family(span: Span) -> str:
    """What values of this range look like, or "" where they look like nothing in particular (a guess, from the range alone)."""
    low, high = span.low, span.high
    if 0 < span.width <= TWICE_SPAN:
        return TWICE
    if low < 0:
        if low >= -1.01 and high <= 1.01 and span.width > 1.0:
            return SIGNED
        return IMAGENET if -2.2 <= low <= -1.2 and 1.2 <= high <= 2.75 else ""
    if high <= 1.001:
        return UNIT if high > 0.3 else ""
    return RAW if 64 < high <= 255.5 else ""


def normalised_twice(first: Span, again: Span) -> str:
    """The normalisation that leads from ``first`` to ``again``, in words, or "" where none of the usual ones does."""
    steps = {
        "divided by 255": (0.0, 255.0),
        "(x - 0.5) / 0.5": (0.5, 0.5),
        "(x - 127.5) / 127.5": (127.5, 127.5),
        "(x - 127) / 128": (127.0, 128.0),
        "ImageNet's mean and standard deviation (units of 0 to 1)": (0.449, 0.226),
        "ImageNet's mean and standard deviation (units of 0 to 255)": (114.5, 57.6),
    }
    for words, (mean, std) in steps.items():
        low, high = (first.low - mean) / std, (first.high - mean) / std
        slack = 0.15 * (high - low)
        if abs(low - again.low) <= slack and abs(high - again.high) <= slack:
            return words
    return ""


def of_preprocessing(preprocessing: Preprocessing) -> tuple[Span, str]:
    """What pixels 0 to 255 become, and the family of that: WIDE and TWICE are mistakes whatever the network."""
    pairs = list(_paired(preprocessing.mean, preprocessing.std))
    span = Span(min(-mean / std for mean, std in pairs), max((255 - mean) / std for mean, std in pairs))
    in_unit_units = all(abs(mean) <= 1 and std <= 1 for mean, std in pairs) and any(
        mean or std < 1 for mean, std in pairs
    )
    return span, WIDE if in_unit_units else family(span)


def _paired(mean: Sequence[float], std: Sequence[float]) -> Sequence[tuple[float, float]]:
    size = max(len(mean), len(std))
    return [(mean[i % len(mean)], std[i % len(std)]) for i in range(size)]
