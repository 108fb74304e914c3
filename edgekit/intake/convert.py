"""One conversion by a front end: a private copy of the model, a child process, a log file, and a result that is read again.

Converters overwrite their input, print, change the working directory, abort and leak; none of that reaches the user.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from edgekit.errors import ConversionError
from edgekit.intake.frontends import Frontend

WORKER = Path(__file__).with_name("worker.py")
POLL_S = 0.02


@dataclass(frozen=True)
class Converted:
    """What a front end delivered: the float file, its names, and what took part.

    ``names`` maps the keys of the file's signature to source names ({"inputs": ..., "outputs": ...}), or is None where the keys are
    the source names already.
    """

    tflite: Path
    names: dict[str, dict[str, str]] | None
    versions: dict[str, str]
    simplified: bool
    seconds: float
    peak_rss_bytes: int | None
    log: Path


@dataclass(frozen=True)
class ConversionRequest:
    """What to convert: ``model`` is a private copy that the worker may destroy."""

    model: Path
    inputs: Sequence[str]
    outputs: Sequence[str]
    simplify: bool
    work: Path
    timeout_s: float = 1800.0
    tick: Callable[[], None] = field(default=lambda: None)


def convert(frontend: Frontend, request: ConversionRequest) -> Converted:
    """Run the front end's worker on the request.

    Raises ConversionError when the worker fails, dies, runs out of time, or says that it succeeded without a file to show for it;
    the log's place and the converter's own last words are in ``details``.
    """
    out = request.work / "out"
    out.mkdir(parents=True)
    asked = {
        "frontend": frontend.name,
        "model": str(request.model),
        "out": str(out),
        "inputs": list(request.inputs),
        "outputs": list(request.outputs),
        "simplify": request.simplify,
    }
    request_file = request.work / "request.json"
    request_file.write_text(json.dumps(asked))
    log = request.work / "log.txt"
    started = time.monotonic()
    status, peak = _run(frontend, request_file, log, request)
    seconds = time.monotonic() - started
    result_file = request.work / "result.json"
    if not result_file.is_file():
        raise _died(frontend, status, log, seconds)
    result = json.loads(result_file.read_text())
    if not result["ok"]:
        error = result["error"]
        raise ConversionError(
            f"the front end {frontend.name} failed: {_first_line(error['type'], error['message'])}",
            details={"frontend": frontend.name, "trace": error["trace"], "log_tail": _tail(log)},
        )
    tflite = Path(result["tflite"])
    if not tflite.is_file() or tflite.stat().st_size == 0:
        raise ConversionError(
            f"the front end {frontend.name} reported success after {seconds:.1f} s but wrote no model",
            details={"frontend": frontend.name, "log_tail": _tail(log)},
        )
    return Converted(tflite, result["names"], result["versions"], result["simplified"], seconds, peak, log)


def _run(frontend: Frontend, request_file: Path, log: Path, request: ConversionRequest) -> tuple[int, int | None]:
    """Exit status and peak resident bytes of the worker, which is killed with its children when time is up."""
    deadline = time.monotonic() + request.timeout_s
    with log.open("wb") as output:
        process = _start(frontend, request_file, output, request.work)
        try:
            while True:
                pid, status, usage = os.wait4(process.pid, os.WNOHANG)
                if pid:
                    process.returncode = os.waitstatus_to_exitcode(status)
                    return process.returncode, usage.ru_maxrss * 1024
                if time.monotonic() > deadline:
                    raise ConversionError(
                        f"the front end {frontend.name} did not finish within {request.timeout_s:.0f} s",
                        hint="allow more with --timeout SECONDS",
                        code="conversion_timeout",
                        details={"frontend": frontend.name, "log_tail": _tail(log)},
                    )
                request.tick()
                time.sleep(POLL_S)
        finally:
            _end(process)


def _start(frontend: Frontend, request_file: Path, output: IO[bytes], work: Path) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            [str(frontend.python), "-I", str(WORKER), str(request_file)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=work,
            env=_environment(frontend, work),
            start_new_session=True,
        )
    except OSError as error:
        raise ConversionError(
            f"the front end {frontend.name} cannot be started: {frontend.python}: {error.strerror}",
            hint=f"install it again: edgekit frontend remove {frontend.name}, then edgekit frontend add {frontend.name}",
            code="frontend_broken",
        ) from error


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the worker's session (its own children too) and reap it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    if process.returncode is None:
        process.wait()


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


def _died(frontend: Frontend, status: int, log: Path, seconds: float) -> ConversionError:
    how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
    hint = (
        "free memory or close other programs: the kernel kills what needs too much" if status == -signal.SIGKILL else ""
    )
    return ConversionError(
        f"the front end {frontend.name} {how} after {seconds:.1f} s without a result",
        hint=hint,
        details={"frontend": frontend.name, "log_tail": _tail(log)},
    )


def _first_line(kind: str, message: str) -> str:
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return f"{kind}: {lines[0][:300]}" if lines else kind


def _tail(log: Path, lines: int = 20) -> list[str]:
    try:
        return log.read_text(errors="replace").splitlines()[-lines:]
    except OSError:
        return []
