"""What other people's code prints goes to a file, or beside the result, never between the user's lines.

Interpreters and converters write straight to file descriptor 2 ("INFO: Created TensorFlow Lite XNNPACK delegate for CPU."), and a
data function of the user may print. The descriptors are pointed at a scratch file, and Python's own ``sys.stdout`` and ``sys.stderr``
at the terminal's standard error: standard output is for the result alone.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout


@contextmanager
def muffled() -> Iterator[None]:
    """Within the block only Python's own writes reach the terminal, and they do so on standard error."""
    sys.stdout.flush()
    sys.stderr.flush()
    with ExitStack() as stack:
        try:
            terminal = os.dup(2)
        except OSError:  # started without a standard error: nothing to keep clean
            yield
            return
        said = stack.enter_context(os.fdopen(terminal, "w", buffering=1, encoding="utf-8", errors="replace"))
        scratch = stack.enter_context(tempfile.TemporaryFile())
        for descriptor in (1, 2):
            stack.enter_context(_pointed_at(descriptor, scratch.fileno()))
        stack.enter_context(redirect_stdout(said))
        stack.enter_context(redirect_stderr(said))
        yield


@contextmanager
def _pointed_at(descriptor: int, target: int) -> Iterator[None]:
    try:
        before = os.dup(descriptor)
    except OSError:  # it was closed
        yield
        return
    os.dup2(target, descriptor)
    try:
        yield
    finally:
        os.dup2(before, descriptor)
        os.close(before)
