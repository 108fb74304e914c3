"""The exact counts that stand in for raw latencies when a run outgrew its byte budget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgekit.report.distribution import Distribution


def distribution_of(histogram: Mapping[str, Any]) -> Distribution:
    """The distribution of ``{"lower_ns": [...], "width_ns": [...], "counts": [...]}``: bin ``lower`` to below
    ``lower + width``, each as long as the others.

    A bin speaks as its middle, so a latency is exact to half a bin. Raises ValueError when it is no such histogram.
    """
    columns = []
    for key in ("lower_ns", "width_ns", "counts"):
        values = histogram.get(key)
        if not isinstance(values, list) or not all(type(value) is int for value in values):
            raise ValueError(f"{key} is not a list of whole numbers")
        columns.append(np.array(values, dtype=np.int64))
    lower, width, counts = columns
    if not lower.size == width.size == counts.size:
        raise ValueError(f"it has {lower.size} bins, {width.size} widths and {counts.size} counts")
    if (lower < 0).any() or (width < 1).any() or (counts < 0).any() or not counts.any():
        raise ValueError("a bin, a width or a count is impossible")
    return Distribution.from_bins(lower + (width - 1) / 2.0, counts)
