"""A metric's figures as its readers know them: shares in percent and points, errors and functions of the user's in their own unit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgekit.report.quantity import digits, interval_text, share_text

TITLES = {
    "top1": "top1 accuracy",
    "top5": "top5 accuracy",
    "map": "mAP",
    "map50": "mAP at IoU 0.5",
    "miou": "mean IoU",
    "mae": "mean absolute error",
    "rmse": "root mean square error",
}


def is_share(accuracy: Mapping[str, Any]) -> bool:
    """Whether the figure is a share of 1. Records without a unit are of shares: there was nothing else then."""
    return bool(accuracy.get("unit", "points") == "points")


def title(accuracy: Mapping[str, Any]) -> str:
    """``top1 accuracy``, ``mAP``, ``mean absolute error``; a ``module:function`` by that name."""
    name = str(accuracy.get("metric", "accuracy"))
    return TITLES.get(name, name)


def figure_text(accuracy: Mapping[str, Any], value: float) -> str:
    """``71.2 %`` of a share, ``0.712`` of anything else."""
    return share_text(value) if is_share(accuracy) else digits(value)


def figure_interval(accuracy: Mapping[str, Any], estimate: Mapping[str, Any]) -> str:
    """The interval of one side, in the figure's unit."""
    low, high = (estimate.get(end) for end in ("low", "high"))
    return interval_text(*(None if end is None else figure_text(accuracy, end) for end in (low, high)))


def change_text(accuracy: Mapping[str, Any], value: float) -> str:
    """``-1.4`` points of a share, ``+0.0123`` of anything else; the unit is the caller's to add."""
    return f"{value:+.1f}" if is_share(accuracy) else f"{'-' if value < 0 else '+'}{digits(abs(value))}"


def loss(accuracy: Mapping[str, Any]) -> tuple[float, float] | None:
    """How much worse the quantised model is, and the least that it is with 95 % confidence; None where that may be nothing."""
    difference = accuracy.get("difference_points") or {}
    value, low, high = (difference.get(key) for key in ("value", "low", "high"))
    if value is None or low is None or high is None:
        return None
    worse, least = (-value, -high) if accuracy.get("higher_is_better", True) else (value, low)
    return (worse, least) if least > 0 else None
