"""One conversion by a front end: a private copy of the model goes in, and the file that comes out is looked at, not believed in.

Converters overwrite their input, print, change the working directory, abort and leak; none of that reaches the user.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgekit.errors import ConversionError
from edgekit.intake.session import Session


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


@dataclass(frozen=True)
class ConversionRequest:
    """What to convert: ``model`` is a private copy that the worker may destroy; ``work`` an empty folder for this conversion."""

    model: Path
    inputs: Sequence[str]
    outputs: Sequence[str]
    simplify: bool
    work: Path
    timeout_s: float = 1800.0


def convert(session: Session, request: ConversionRequest) -> Converted:
    """Have the front end's worker convert.

    Raises ConversionError when the worker fails, dies, runs out of time, or says that it succeeded without a file to show for it.
    """
    out = request.work / "out"
    out.mkdir(parents=True)
    started = time.monotonic()
    answer = session.ask(
        {
            "task": f"onnx by {session.frontend.name}",
            "model": str(request.model),
            "out": str(out),
            "inputs": list(request.inputs),
            "outputs": list(request.outputs),
            "simplify": request.simplify,
        },
        request.work,
        timeout_s=request.timeout_s,
    )
    seconds = time.monotonic() - started
    tflite = Path(answer["tflite"])
    if not tflite.is_file() or tflite.stat().st_size == 0:
        raise ConversionError(
            f"the front end {session.frontend.name} reported success after {seconds:.1f} s but wrote no model",
            details={"frontend": session.frontend.name, "log_tail": session.log_tail()},
        )
    return Converted(tflite, answer["names"], answer["versions"], answer["simplified"], seconds, session.peak_rss_bytes)
