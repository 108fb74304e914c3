"""One measurement at a time on a board. Standard library only.

The lock is an ``flock`` on ``HOME/busy.json``: the kernel takes it back however the holder ends. The file's text says who holds it, for
whoever is refused.
"""

from __future__ import annotations

import fcntl
import json
import os
from typing import Optional

from edgekit.agent.store import read_json
from edgekit.errors import BoardBusyError

LOCK_FILE = "busy.json"


class BoardLock:
    """Held from :meth:`take` until :meth:`release` or the end of the process."""

    def __init__(self, home: str) -> None:
        self._path = os.path.join(home, LOCK_FILE)
        self._descriptor: Optional[int] = None

    def take(self, *, job: str) -> None:
        """Raises :class:`BoardBusyError` naming the job that holds the board."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = read_json(self._path)
            os.close(descriptor)
            raise BoardBusyError(
                f"job {holder.get('job', '?')} (pid {holder.get('pid', '?')}) is measuring on this board",
                hint="wait for it, or cancel it: edgekit cancel " + str(holder.get("job", "JOB")),
                details=holder,
            ) from error
        os.ftruncate(descriptor, 0)
        os.write(descriptor, json.dumps({"job": job, "pid": os.getpid()}).encode())
        self._descriptor = descriptor

    def release(self) -> None:
        """Gives the board back."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None
