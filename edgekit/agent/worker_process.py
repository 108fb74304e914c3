"""The supervisor's end of a worker: start it, speak to it, learn how it died. Standard library only."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from typing import AbstractSet, Any, BinaryIO, Dict, List, Mapping, Optional, Sequence


class WorkerDied(Exception):
    """The worker ended without an answer; ``code`` and the text say how."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class WorkerFailed(Exception):
    """The worker answered with an error; ``error`` is its JSON object."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(error["message"])
        self.error = dict(error)


class WorkerProcess:
    """A running worker. Commands go to its stdin, replies come by a pipe of their own, its output goes to the log.

    ``cores`` are those that it may use; None is all that this process may.
    """

    def __init__(
        self,
        command: Sequence[str],
        config: Mapping[str, Any],
        *,
        variant: str,
        log: BinaryIO,
        cores: Optional[AbstractSet[int]] = None,
    ) -> None:
        self.variant = variant
        self.fileno, write_end = os.pipe()
        try:
            self._process = subprocess.Popen(
                [*command, str(write_end)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=(write_end,),
            )
        finally:
            os.close(write_end)
        self._waiting = b""
        if cores is not None:
            # The worker makes its threads after it has its configuration, and they inherit this. One that is dead says so itself.
            with contextlib.suppress(OSError):
                os.sched_setaffinity(self._process.pid, cores)
        self.send(config)

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self._process.pid

    def send(self, command: Mapping[str, Any]) -> None:
        """Gives a command. A dead worker takes it in silence: :meth:`receive` then says how it died."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()

    def receive(self) -> Optional[Dict[str, Any]]:
        """The next reply when it is complete, else None. To be called when the pipe is readable.

        Raises :class:`WorkerFailed` with the worker's own error, or :class:`WorkerDied` when the pipe has ended.
        """
        data = os.read(self.fileno, 1 << 20)
        if not data:
            raise self._death()
        self._waiting += data
        line, newline, rest = self._waiting.partition(b"\n")
        if not newline:
            return None
        self._waiting = rest
        reply: Dict[str, Any] = json.loads(line)
        if "error" in reply:
            self.end()
            raise WorkerFailed(reply["error"])
        return reply

    def end(self, *, timeout_s: float = 5.0) -> None:
        """Lets the worker end by itself (its stdin is closed), kills it when it does not, and frees what belongs to it."""
        self._close_stdin()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            pass
        self.kill()

    def kill(self) -> None:
        """Ends the worker at once, if it has not ended, and frees what belongs to it."""
        self._process.kill()
        self._process.wait()
        self._close_stdin()
        if self.fileno >= 0:
            os.close(self.fileno)
            self.fileno = -1

    def _close_stdin(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def _death(self) -> WorkerDied:
        self.end()
        returncode = self._process.returncode
        if returncode >= 0:
            return WorkerDied(f"the worker ended with exit code {returncode} and no result", "worker_ended")
        name = _signal_name(-returncode)
        why = ""
        if name == "SIGKILL":
            why = "; the kernel does this when memory runs out (see dmesg)"
        elif name == "SIGILL":
            why = "; this build of the interpreter uses instructions that this CPU does not have"
        elif name == "SIGBUS":
            why = "; this happens when a model file shrinks while it is in use"
        return WorkerDied(f"the interpreter was ended by {name}{why}", "interpreter_crashed")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def worker_command(program: str, python: str) -> List[str]:
    """How to start a worker of this same agent: from its archive, or from the package in a checkout."""
    if program.endswith(".pyz"):
        return [python, os.path.abspath(program), "worker"]
    return [python, "-m", "edgekit.agent", "worker"]
