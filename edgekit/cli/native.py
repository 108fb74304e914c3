"""What native libraries print goes to a file, not between the user's lines.

Interpreters and converters write straight to file descriptor 2 ("INFO: Created TensorFlow Lite XNNPACK delegate for CPU."). The
descriptor is pointed at a scratch file, and Python's own ``sys.stderr`` at the terminal.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def muffled() -> Iterator[None]:
    """Within the block only Python's own writes to ``sys.stderr`` reach the terminal."""
    try:
        terminal = os.dup(2)
    except OSError:  # started without a standard error: nothing to keep clean
        yield
        return
    python_stderr = sys.stderr
    python_stderr.flush()
    with tempfile.TemporaryFile() as scratch:
        os.dup2(scratch.fileno(), 2)
        sys.stderr = os.fdopen(os.dup(terminal), "w", buffering=1, encoding="utf-8", errors="replace")
        try:
            yield
        finally:
            sys.stderr.close()
            sys.stderr = python_stderr
            os.dup2(terminal, 2)
            os.close(terminal)
