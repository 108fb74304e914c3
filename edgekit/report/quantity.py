"""Numbers as a reader wants them: three significant digits, a unit, an interval in brackets."""

from __future__ import annotations

import math

NS_PER_MS = 1e6
NS_PER_US = 1e3
BYTES_PER_KB = 1e3
BYTES_PER_MB = 1e6


def digits(value: float, *, significant: int = 3) -> str:
    """``significant`` digits, without an exponent above 0.0001: ``0.00123``, ``12.3``, ``1230``."""
    if value == 0:
        return "0"
    size = abs(value)
    if size < 1e-4:
        return f"{value:.1e}"
    return f"{value:.{max(0, significant - 1 - math.floor(math.log10(size)))}f}"


def digits_that_show(width: float, value: float) -> int:
    """How many significant digits of ``value`` it takes to tell the ends of an interval of that ``width`` apart: 3 to
    5.
    """
    if width <= 0 or value == 0:
        return 3
    return min(5, max(3, math.ceil(math.log10(abs(value) / width))))


def counted(count: int, noun: str) -> str:
    """``1 partition``, ``5 partitions``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def latency_text(value_ns: float, *, significant: int = 3) -> str:
    """``3.21 ms``; ``850 µs`` below a millisecond."""
    factor, unit = latency_unit(value_ns)
    return f"{digits(value_ns / factor, significant=significant)} {unit}"


def latency_unit(value_ns: float) -> tuple[float, str]:
    """The factor and the name of the unit that suits a latency: microseconds below 1 ms."""
    return (NS_PER_US, "µs") if abs(value_ns) < NS_PER_MS else (NS_PER_MS, "ms")


def size_text(size_bytes: float) -> str:
    """``3.42 MB``, ``812 kB``, ``40 B``; decimal units."""
    if abs(size_bytes) >= BYTES_PER_MB:
        return f"{digits(size_bytes / BYTES_PER_MB)} MB"
    if abs(size_bytes) >= BYTES_PER_KB:
        return f"{digits(size_bytes / BYTES_PER_KB)} kB"
    return f"{size_bytes:.0f} B"


def share_text(value: float) -> str:
    """``71.2 %`` of 0.712; small shares keep two significant digits."""
    percent = value * 100.0
    return f"{percent:.1f} %" if percent >= 1.0 or percent == 0.0 else f"{percent:.2g} %"


def interval_text(low: str | None, high: str | None) -> str:
    """``[3.20 ms, 3.25 ms]``; an end that the sample cannot bound reads as "at least" or "at most"."""
    if low is None and high is None:
        return "no interval"
    if high is None:
        return f"at least {low}"
    if low is None:
        return f"at most {high}"
    return f"[{low}, {high}]"


def duration_text(seconds: float) -> str:
    """``0.42 s``, ``31 s``, ``12 min 05 s``, ``1 h 02 min``."""
    if seconds < 10:
        return f"{digits(seconds)} s"
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 120:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def decibel_text(value: float | None) -> str:
    """``34.1 dB``; None is a result that is equal bit for bit."""
    return "exact" if value is None else f"{value:.1f} dB"


def temperature_text(value_c: float) -> str:
    """``61.2 °C``."""
    return f"{value_c:.1f} °C"


_CAUSES = {
    "thermal": "heat",
    "under_voltage": "low supply voltage",
    "power_cap": "a limit of power or current",
    "mode_change": "a changed clock setting or power mode",
    "other_load": "other processes",
    "unknown": "an unknown cause",
}


def cause_text(cause: str) -> str:
    """A cause of throttling in plain words."""
    return _CAUSES[cause]
