"""Waiting for something to come true on a board."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Returns once ``condition`` holds; a file that is not there yet counts as not yet. Raises AssertionError in the end."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        try:
            if condition():
                return
        except OSError:
            pass
        time.sleep(0.02)
    raise AssertionError(f"nothing happened in {timeout_s} s")
