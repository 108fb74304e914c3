"""The golden pairs: a few real inputs with the outputs that float and int8 gave for them here, for the health check on the board.

``golden.npz`` holds ``input/NAME``, ``float/NAME`` and (of an integer model) ``int8/NAME``, first axis the pairs. Inputs and float outputs are real numbers
in the delivered layout; int8 outputs are the integers as the interpreter gave them.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.calibrate.sources import Sample
from edgekit.intake.layout import delivered
from edgekit.runtime.backend import open_backend
from edgekit.values import FloatModel
from edgekit.verify.accuracy import run

PAIRS = 4
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)
_TRIED_BYTES = 65536


def golden_pairs(model: FloatModel, int8_path: Path | None, samples: Iterable[Sample]) -> dict[str, NDArray[Any]]:
    """The arrays of ``golden.npz`` for ``samples``; ``int8_path`` None where nothing was quantised."""
    columns: dict[str, list[NDArray[Any]]] = {}
    with ExitStack() as opened:
        float_backend = opened.enter_context(open_backend(model.path))
        int8_backend = None if int8_path is None else opened.enter_context(open_backend(int8_path))
        for sample in samples:
            inputs = [delivered(sample[spec.name], spec) for spec in model.inputs]
            floats = run(float_backend, inputs)
            if int8_backend is not None:
                run(int8_backend, inputs)
            for spec, value in zip(model.inputs, inputs, strict=True):
                columns.setdefault(f"input/{spec.name}", []).append(value)
            for position, spec in enumerate(model.outputs):
                columns.setdefault(f"float/{spec.name}", []).append(floats[position])
                if int8_backend is not None:
                    columns.setdefault(f"int8/{spec.name}", []).append(int8_backend.get_output(position))
    return {name: np.stack(values) for name, values in columns.items()}


def write_npz(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """A ``.npz`` whose bytes depend on the arrays alone; numpy's own writer puts the time of day into it."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(arrays):
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, np.ascontiguousarray(arrays[name]), allow_pickle=False)
            data = buffer.getvalue()
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", _ZIP_EPOCH), data, _method(data))


def _method(data: bytes) -> int:
    """Noise, as made-up inputs are, takes long to compress and stays as large as it was."""
    beginning = data[:_TRIED_BYTES]
    return zipfile.ZIP_DEFLATED if len(zlib.compress(beginning)) < 0.9 * len(beginning) else zipfile.ZIP_STORED
