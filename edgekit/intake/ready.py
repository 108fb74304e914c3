"""Front ends that start while something else is done: their first conversion takes a second less, and all attempts share one worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from edgekit.intake.door import Route


@contextmanager
def ready(routes: Sequence[Route], *, work: Path, tick: Callable[[], None]) -> Iterator[list[Route]]:
    """``routes`` with a worker for each front end that needs one; that of the first is starting. The workers end with the block."""
    with ExitStack() as started:
        prepared: list[Route] = []
        for route in routes:
            at_work = getattr(route, "at_work", None)
            prepared.append(
                route if at_work is None else started.enter_context(at_work(work, tick, at_once=not prepared))
            )
        yield prepared
