"""When inputs arrive in a run at a rate: evenly, or at random like independent events. Standard library only."""

from __future__ import annotations

import random
from typing import Iterator

KINDS = ("fixed", "poisson")


def gaps_ns(rate_per_s: float, kind: str, seed: int) -> Iterator[int]:
    """Endless gaps between arrivals in ns, on average ``1e9 / rate_per_s``.

    ``fixed`` spreads the rounding, so a million arrivals take a million periods to the nanosecond. ``poisson`` draws exponential gaps,
    which makes the arrivals a Poisson process.
    """
    period = 1e9 / rate_per_s
    if kind == "fixed":
        number = 0
        while True:
            yield round((number + 1) * period) - round(number * period)
            number += 1
    generator = random.Random(seed)
    while True:
        yield max(1, round(generator.expovariate(1.0) * period))
