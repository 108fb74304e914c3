"""A front end's worker as a conversation: one interpreter start serves several requests, each with a folder of its own.

The first request goes on the command line of ``workers/worker.py``, further ones as lines on its standard input. The answer to each is the file
``result.json`` beside the request; whatever the converter prints goes into a log.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from edgekit.errors import ConversionError
from edgekit.intake.frontends import Frontend

WORKER = Path(__file__).parent / "workers" / "worker.py"
POLL_S = 0.02


class Session:
    """One worker of ``frontend``, started at the first :meth:`ask` and killed with its children by :meth:`close`.

    ``work`` holds the log; ``tick`` is called while an answer is awaited. A worker that died is started again by the next request.
    """

    def __init__(self, frontend: Frontend, work: Path, *, tick: Callable[[], None] = lambda: None) -> None:
        self.frontend = frontend
        self.log = work / f"{frontend.name}-log.txt"
        self.peak_rss_bytes: int | None = None
        self._work = work
        self._tick = tick
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, request: Mapping[str, Any], folder: Path, *, timeout_s: float) -> dict[str, Any]:
        """The worker's answer to ``request``, which is written into ``folder`` (the worker's current folder meanwhile).

        Raises ConversionError when the worker says that it failed, dies, or does not answer in time; its own last words and the
        end of the log are in ``details``.
        """
        result_file = folder / "result.json"
        started = time.monotonic()
        self.begin(request, folder)
        self._await(result_file, started, timeout_s)
        answer: dict[str, Any] = json.loads(result_file.read_text())
        if not answer["ok"]:
            error = answer["error"]
            raise ConversionError(
                f"the front end {self.frontend.name} failed: {_first_line(error['type'], error['message'])}",
                details={"frontend": self.frontend.name, "trace": error["trace"], "log_tail": self.log_tail()},
            )
        return answer

    def begin(self, request: Mapping[str, Any], folder: Path) -> None:
        """Send ``request`` and wait for nothing: the worker carries it out before what it is asked next. Raises ConversionError when it
        cannot be started."""
        request_file = folder / "request.json"
        request_file.write_text(json.dumps({**request, "folder": str(folder)}))
        self._send(request_file)

    def close(self) -> None:
        """Kill the worker and whatever it started."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            with suppress(OSError):  # a request that a dead worker did not read is written once more by closing
                process.stdin.close()
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        if process.returncode is None:
            process.wait()

    def log_tail(self, lines: int = 20) -> list[str]:
        """The last lines of what the converter printed."""
        try:
            return self.log.read_text(errors="replace").splitlines()[-lines:]
        except OSError:
            return []

    def _send(self, request_file: Path) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            try:
                self._process.stdin.write(f"{request_file}\n".encode())
                self._process.stdin.flush()
                return
            except OSError:  # it died after its last answer
                self.close()
        with self.log.open("ab") as output:
            self._process = self._start(request_file, output)

    def _start(self, request_file: Path, output: IO[bytes]) -> subprocess.Popen[bytes]:
        name = self.frontend.name
        try:
            return subprocess.Popen(
                [str(self.frontend.python), "-I", str(WORKER), str(request_file)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=request_file.parent,
                env=_environment(self.frontend, self._work),
                start_new_session=True,
            )
        except OSError as error:
            raise ConversionError(
                f"the front end {name} cannot be started: {self.frontend.python}: {error.strerror}",
                hint=f"install it again: edgekit frontend remove {name}, then edgekit frontend add {name}",
                code="frontend_broken",
            ) from error

    def _await(self, result_file: Path, started: float, timeout_s: float) -> None:
        process = self._process
        assert process is not None
        try:
            while not result_file.is_file():
                pid, status, usage = os.wait4(process.pid, os.WNOHANG)
                if pid:
                    process.returncode = os.waitstatus_to_exitcode(status)
                    self._note_peak(usage.ru_maxrss * 1024)
                    if not result_file.is_file():
                        raise self._died(process.returncode, time.monotonic() - started)
                    return
                if time.monotonic() - started > timeout_s:
                    raise ConversionError(
                        f"the front end {self.frontend.name} did not finish within {timeout_s:.0f} s",
                        hint="allow more with --timeout SECONDS",
                        code="conversion_timeout",
                        details={"frontend": self.frontend.name, "log_tail": self.log_tail()},
                    )
                self._tick()
                time.sleep(POLL_S)
            self._note_peak(_peak_of(process.pid))
        except BaseException:
            self.close()
            raise
        if process.returncode is not None:
            self.close()

    def _note_peak(self, peak_rss_bytes: int | None) -> None:
        if peak_rss_bytes is not None:
            self.peak_rss_bytes = max(peak_rss_bytes, self.peak_rss_bytes or 0)

    def _died(self, status: int, seconds: float) -> ConversionError:
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        killed = status == -signal.SIGKILL
        return ConversionError(
            f"the front end {self.frontend.name} {how} after {seconds:.1f} s without a result",
            hint="free memory or close other programs: the kernel kills what needs too much" if killed else "",
            details={"frontend": self.frontend.name, "log_tail": self.log_tail()},
        )


def _peak_of(pid: int) -> int | None:
    """Peak resident bytes of a living process: VmHWM, which a parent's size does not colour as ``ru_maxrss`` may be."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return None


def _environment(frontend: Frontend, work: Path) -> dict[str, str]:
    """The child's environment: its own tools first, no way out to the network, repeatable hashing, no GPU."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TF_"))}
    dead = "http://127.0.0.1:9"  # the discard port: a connection is refused at once
    return {
        **kept,
        "PATH": f"{frontend.python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "TMPDIR": str(work),
        "HTTP_PROXY": dead,
        "HTTPS_PROXY": dead,
        "http_proxy": dead,
        "https_proxy": dead,
        "PYTHONHASHSEED": "0",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "TF_USE_LEGACY_KERAS": "1",
        "CUDA_VISIBLE_DEVICES": "-1",
        "ORT_DISABLE_TELEMETRY": "1",
    }


_COLOUR = re.compile("\x1b\\[[0-9;]*m")


def _first_line(kind: str, message: str) -> str:
    lines = [line.strip() for line in _COLOUR.sub("", message).splitlines() if line.strip()]
    return f"{kind}: {lines[0][:300]}" if lines else kind
