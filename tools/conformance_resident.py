"""A worker of the conformance run as a conversation: one JSON line in, one out; a crash or a hang costs one answer."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any


class Resident:
    """A child that answers requests with :func:`serve`. Started at the first request, and again after a crash, a hang or ``renew_after``
    requests (converters leak). ``command`` gets the number of the descriptor for answers as its last argument."""

    def __init__(self, command: Sequence[str], *, log: Path, env: Mapping[str, str], renew_after: int = 10**9) -> None:
        self._command = list(command)
        self._log = log
        self._env = dict(env)
        self._renew_after = renew_after
        self._served = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._answers = -1

    def ask(self, request: Mapping[str, Any], *, timeout_s: float) -> dict[str, Any]:
        """The answer, or ``{"died": WHY}`` when the child died or did not answer in time."""
        if self._process is None or self._served >= self._renew_after:
            self.close()
            self._start()
        assert self._process is not None and self._process.stdin is not None
        self._served += 1
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            line = self._line(timeout_s)
        except BrokenPipeError:
            line = b""
        if line is None:
            self.close()
            return {"died": f"no answer within {timeout_s:g} s"}
        if not line:
            status = self._process.wait()
            self.close()
            return {"died": f"died of {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"}
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the child and whatever it started."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        if process.stdin is not None:
            try:
                process.stdin.close()
            except BrokenPipeError:
                pass
        os.close(self._answers)

    def _start(self) -> None:
        self._answers, write_end = os.pipe()
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [*self._command, str(write_end)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._env,
                pass_fds=[write_end],
                start_new_session=True,
            )
        os.close(write_end)
        self._served = 0

    def _line(self, timeout_s: float) -> bytes | None:
        """A whole line, b"" at the end of the stream, None when the time is over."""
        deadline = time.monotonic() + timeout_s
        found = b""
        while not found.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._answers], [], [], left)[0]:
                return None
            part = os.read(self._answers, 1 << 16)
            if not part:
                return b""
            found += part
        return found


def serve(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """The child's side: answers each line of standard input on the descriptor that the command line names, until there are no more."""
    requests = os.fdopen(os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    with os.fdopen(int(sys.argv[-1]), "w", buffering=1) as answers:
        for line in requests:
            answers.write(json.dumps(answer(json.loads(line))) + "\n")
