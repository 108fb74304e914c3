"""Does an interpreter take this TFLite file? Asked in a child process, because a damaged or odd model can abort the interpreter.

The child is ``python -m edgekit.intake.probe MODEL``: it prints one JSON object a line, a ``stage`` before each step and the
``result`` at the end, so that the parent can say in which step it died.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgekit import child
from edgekit.errors import ConversionError, EdgekitError
from edgekit.runtime.backend import Backend, Delegation, TensorDetail, open_backend

_STAGES = {
    "start": "starting the interpreter",
    "load": "loading the model and allocating its tensors",
    "invoke": "running the model",
    "read": "reading the outputs",
}
_MARK = "edgekit_probe"
_LEAST_MEMORY_BYTES = 4 * 2**30
_SEED = 20240229


@dataclasses.dataclass(frozen=True)
class ProbedTensor:
    """An input or output as the interpreter sees it after the probe. ``non_finite`` counts NaN and infinities in an output."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    non_finite: int = 0


@dataclasses.dataclass(frozen=True)
class ProbeResult:
    """What happened. ``ok`` is False when the interpreter refused the model, died, or did not end in time; ``failure`` says which,
    in a sentence, and ``stage`` in which step ("start", "load", "invoke", "read").

    ``died_of`` is the name of the signal ("SIGABRT"), ``code`` the error code of a refusal. The rest is None or empty where the probe
    did not come that far; ``invoked`` says whether the model ran once.
    """

    ok: bool
    stage: str
    failure: str = ""
    code: str = ""
    died_of: str = ""
    interpreter: str | None = None
    version: str | None = None
    delegation: Delegation | None = None
    inputs: tuple[ProbedTensor, ...] = ()
    outputs: tuple[ProbedTensor, ...] = ()
    invoked: bool = False
    log: str = ""


def probe(
    path: str | Path, *, invoke: bool, timeout_s: float = 60.0, threads: int = 1, inputs: Path | None = None
) -> ProbeResult:
    """Opens ``path`` in a child process and, with ``invoke``, runs it once on a fixed input. Never raises for what the model does.

    The input is the same each time: noise of -1..1 for floats and over the whole range for quantised integers, zeros for other
    integers (they are often indices) and booleans. ``inputs`` is a ``.npz`` with real values for some inputs, by position ("0", "1"),
    for models that compute a shape from them.
    """
    # -I: nothing from the current folder or PYTHONPATH is imported before the path is set
    command = child.command("edgekit.intake.probe", str(path), "--threads", str(threads))
    if invoke:
        command.append("--invoke")
    if inputs is not None:
        command += ["--inputs", str(inputs)]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired as expired:
        stage, _ = _read_lines(expired.stdout)
        failure = f"the interpreter did not end within {timeout_s:g} s while {_STAGES[stage]}"
        return ProbeResult(False, stage, failure, code="timeout", log=_tail(expired.stderr))
    except OSError as error:
        return ProbeResult(False, "start", f"the child process cannot be started: {error}", code="child_failed")
    stage, result = _read_lines(done.stdout)
    log = _tail(done.stderr)
    if done.returncode < 0:
        name = _signal_name(-done.returncode)
        return ProbeResult(
            False, stage, f"the interpreter died with {name} while {_STAGES[stage]}", "crashed", name, log=log
        )
    if result is None:
        failure = f"the interpreter ended with status {done.returncode} while {_STAGES[stage]}"
        return ProbeResult(False, stage, failure, code="child_failed", log=log)
    return _from_json(result, stage, log)


def require_runs(path: Path, *, what: str, timeout_s: float = 60.0, inputs: Path | None = None) -> ProbeResult:
    """Loads ``path`` and runs it once; raises :class:`ConversionError` in the words of ``what`` when the interpreter refuses or dies."""
    result = probe(path, invoke=True, timeout_s=timeout_s, inputs=inputs)
    if not result.ok:
        raise ConversionError(
            f"{what} was written and does not run: {result.failure}",
            code="delivered_dead",
            details={"stage": result.stage, "probe_code": result.code, "log_tail": result.log.splitlines()[-5:]},
        )
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """The child: probes one model and prints what it finds as JSON lines."""
    parser = argparse.ArgumentParser(
        prog="python -m edgekit.intake.probe", description="Load a TFLite model and print JSON."
    )
    parser.add_argument("model")
    parser.add_argument("--invoke", action="store_true", help="also run it once")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--inputs", help="a .npz with real inputs, by position")
    options = parser.parse_args(arguments)
    _limit_resources()
    _say("start")
    try:
        _say("load")
        with open_backend(options.model, threads=options.threads) as backend:
            result = look(backend, invoke=options.invoke, inputs=options.inputs)
    except EdgekitError as error:
        result = {"ok": False, "failure": error.message, "code": error.code}
    except MemoryError:
        result = {"ok": False, "failure": "the model needs more memory than this machine has", "code": "out_of_memory"}
    except Exception as error:  # the interpreter raises anything on a damaged model; whatever it is, it is the answer
        words = f"{type(error).__name__}: {error}"
        result = {"ok": False, "failure": f"the interpreter failed: {words[:500]}", "code": "interpreter_failed"}
    print(json.dumps({_MARK: "result", **result}), flush=True)
    return 0


def look(backend: Backend, *, invoke: bool, inputs: str | None = None) -> dict[str, Any]:
    """What the child says of an opened model."""
    delegation = backend.delegation()
    found: dict[str, Any] = {
        "ok": True,
        "interpreter": backend.name,
        "version": backend.version,
        "delegation": dataclasses.asdict(delegation),
        "inputs": [_tensor_json(tensor) for tensor in backend.inputs],
        "outputs": [_tensor_json(tensor) for tensor in backend.outputs],
        "invoked": False,
    }
    if not invoke:
        return found
    given = _read_inputs(inputs)
    for position, tensor in enumerate(backend.inputs):
        backend.set_input(position, given.get(str(position), _input_value(tensor)))
    _say("invoke")
    try:
        backend.invoke()
    except EdgekitError as error:
        return {**found, "ok": False, "failure": error.message, "code": error.code}
    _say("read")
    found["outputs"] = [
        _output_json(tensor, backend.get_output(position)) for position, tensor in enumerate(backend.outputs)
    ]
    return {**found, "invoked": True}


def _read_inputs(path: str | None) -> dict[str, Any]:
    import numpy as np

    if path is None:
        return {}
    with np.load(path, allow_pickle=False) as stored:
        return dict(stored)


def _input_value(tensor: TensorDetail) -> Any:
    import numpy as np

    dtype = np.dtype(tensor.dtype)
    if dtype.kind == "f":
        return np.random.default_rng(_SEED).uniform(-1, 1, tensor.shape).astype(dtype)
    if dtype.kind in "iu" and tensor.is_quantized:
        limits = np.iinfo(dtype)
        return np.random.default_rng(_SEED).integers(limits.min, limits.max, tensor.shape, dtype, endpoint=True)
    return np.zeros(tensor.shape, dtype)


def _tensor_json(tensor: TensorDetail) -> dict[str, Any]:
    return {"name": tensor.name, "shape": list(tensor.shape), "dtype": tensor.dtype}


def _output_json(tensor: TensorDetail, value: Any) -> dict[str, Any]:
    import numpy as np

    non_finite = int(np.size(value) - np.count_nonzero(np.isfinite(value))) if value.dtype.kind in "fc" else 0
    return {"name": tensor.name, "shape": list(value.shape), "dtype": value.dtype.name, "non_finite": non_finite}


def _say(stage: str) -> None:
    print(json.dumps({_MARK: stage}), flush=True)


def _limit_resources() -> None:
    """No core file from a crash, and no more memory than the machine has: a damaged shape must not start the kernel's killer."""
    import resource

    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        limit = max(_LEAST_MEMORY_BYTES, physical)
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (limit if hard < 0 else min(limit, hard), hard))
    except (OSError, ValueError):
        pass  # a stricter limit is already in force


def _read_lines(output: bytes | None) -> tuple[str, Mapping[str, Any] | None]:
    """The last stage that the child named, and its result if it got that far; native code may print other lines in between."""
    stage, result = "start", None
    for line in (output or b"").splitlines():
        try:
            item = json.loads(line)
        except ValueError:
            continue
        mark = item.get(_MARK) if isinstance(item, dict) else None
        if mark == "result":
            result = item
        elif mark in _STAGES:
            stage = mark
    return stage, result


def _from_json(result: Mapping[str, Any], stage: str, log: str) -> ProbeResult:
    def tensors(key: str) -> tuple[ProbedTensor, ...]:
        return tuple(
            ProbedTensor(item["name"], tuple(item["shape"]), item["dtype"], item.get("non_finite", 0))
            for item in result.get(key, ())
        )

    delegation = result.get("delegation")
    return ProbeResult(
        ok=bool(result["ok"]),
        stage=stage,
        failure=result.get("failure", ""),
        code=result.get("code", ""),
        interpreter=result.get("interpreter"),
        version=result.get("version"),
        delegation=None if delegation is None else Delegation(**delegation),
        inputs=tensors("inputs"),
        outputs=tensors("outputs"),
        invoked=bool(result.get("invoked", False)),
        log=log,
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _tail(output: bytes | None) -> str:
    """The last of what the child said on stderr, without the line that every interpreter prints."""
    lines = (output or b"").decode("utf-8", errors="replace").splitlines()
    return "\n".join(line for line in lines if "Created TensorFlow Lite" not in line)[-2000:]


if __name__ == "__main__":
    sys.exit(main())
