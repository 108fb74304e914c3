"""The engine: litert-quantizer in a child process, fed with edgekit's own ranges.

Weights: symmetric int8, one scale for each output channel, or float16. Activations: asymmetric int8 or symmetric int16, one scale for each
tensor, from the ranges given (its own calibrator, a moving average, is not used); or left float.
"""

from __future__ import annotations

import json
import signal
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

from edgekit import child
from edgekit.calibrate.ranges import Ranges
from edgekit.errors import ConversionError, UnsupportedModelError
from edgekit.intake import tflite
from edgekit.quantize import divisors
from edgekit.quantize.recipe import Quantization

ENGINE = "litert-quantizer"
FULL_INT8 = Quantization()


def quantize(
    float_path: Path,
    ranges: Ranges | None,
    *,
    work: Path,
    timeout_s: float = 600.0,
    scheme: Quantization = FULL_INT8,
) -> Path:
    """The quantised model for ``float_path``, written into ``work``. ``ranges`` None where ``scheme`` needs none.

    Raises UnsupportedModelError when the engine refuses the model, ConversionError when it dies or runs out of time.
    """
    target = work / "int8.tflite"
    request = work / "quantize.json"
    request.write_text(
        json.dumps(
            {
                "float": str(float_path),
                "int8": str(target),
                "ranges": None if ranges is None else {k: list(v) for k, v in ranges.by_tensor.items()},
                "scheme": asdict(scheme),
                "left_float": [] if ranges is None else _left_float(float_path, ranges, scheme),
            }
        )
    )
    result = _carried_out(request, work, timeout_s)
    if not result["ok"]:
        raise UnsupportedModelError(
            f"{ENGINE} refuses the model: {result['type']}: {result['message'].splitlines()[0][:300] if result['message'] else ''}",
            hint="edgekit inspect MODEL shows the operators; --recipe float32 delivers the float model, which converted",
            code="quantize_failed",
            details={"trace": result["trace"]},
        )
    # Read again and written again: the engine's own writer leaves weights off the 16-byte boundaries that the schema demands.
    tflite.write(tflite.read(target), target)
    return target


def _left_float(float_path: Path, ranges: Ranges, scheme: Quantization) -> tuple[str, ...]:
    """Results of divisions that would be by zero."""
    return divisors.reaching_zero(float_path, ranges.by_tensor, levels=32767 if scheme.activations == "int16" else 255)


def _carried_out(request: Path, work: Path, timeout_s: float) -> dict[str, Any]:
    """What the child process wrote as its result. Raises ConversionError when there is none."""
    result_file = work / "quantize-result.json"
    result_file.unlink(missing_ok=True)
    log = work / "quantize.log"
    with log.open("wb") as output:
        try:
            done = subprocess.run(
                child.command("edgekit.quantize.litert_worker", str(request)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=work,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ConversionError(
                f"{ENGINE} did not finish within {timeout_s:.0f} s", hint="allow more with --timeout SECONDS"
            ) from error
    if not result_file.is_file():
        how = f"ended with status {done.returncode}"
        if done.returncode < 0:
            how = f"was killed by {signal.Signals(-done.returncode).name}"
        raise ConversionError(
            f"{ENGINE} {how} and gave no result",
            hint="--recipe float32 delivers the float model, which converted",
            details={"log_tail": log.read_text(errors="replace").splitlines()[-20:]},
        )
    result: dict[str, Any] = json.loads(result_file.read_text())
    return result
