"""The Keras files and SavedModels of the tests, made once by the front end's own TensorFlow; and the way of one through its door."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgekit.errors import EdgekitError
from edgekit.intake import frontends
from edgekit.intake.choose import Truth, choose
from edgekit.intake.door import Door, DoorOptions, open_door
from edgekit.runtime.backend import open_backend
from edgekit.stages import Silent, Stages
from edgekit.values import FloatModel
from edgekit.verify.parity import Parity

Sample = dict[str, NDArray[Any]]
MAKER = Path(__file__).with_name("make_tensorflow_models.py")


def python() -> Path:
    """The front end's interpreter, or a skip."""
    found = frontends.find(frontends.KINDS["tensorflow"])
    if found is None:
        pytest.skip("the front end tensorflow is not installed: edgekit frontend add tensorflow")
    return found.python


@functools.cache
def _made(interpreter: Path) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="edgekit-test-models-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    done = subprocess.run([interpreter, "-I", MAKER, folder], capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


def environment() -> dict[str, str]:
    """For TensorFlow in a child: quiet, and without a GPU."""
    return {**os.environ, "TF_USE_LEGACY_KERAS": "1", "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}


def model(name: str) -> Path:
    """One of the made models. They are only read: a test that damages one copies it."""
    return _made(python()) / name


def weights() -> dict[str, NDArray[Any]]:
    """The numbers in the models, by name."""
    with np.load(model("weights.npz")) as arrays:
        return {name: arrays[name] for name in arrays.files}


@contextmanager
def opened(path: Path, work: Path, **options: Any) -> Iterator[Door]:
    """The door of ``path``."""
    work.mkdir(exist_ok=True)
    with open_door(path, DoorOptions(work=work, **options)) as door:
        yield door


def refusal(path: Path, work: Path, **options: Any) -> EdgekitError:
    """What the door says instead of opening. Its temporary files may stay in ``work``, which its caller removes."""
    with pytest.raises(EdgekitError) as caught, opened(path, work, **options):
        pass
    assert caught.value.exit_code in (2, 3)
    assert caught.value.hint
    assert "Traceback" not in caught.value.message
    return caught.value


@dataclass(frozen=True)
class Passed:
    """A model that went through its door: inputs, what the source made of them, the float model, and its parity."""

    samples: list[Sample]
    references: list[Sample]
    model: FloatModel
    parity: Parity
    notes: tuple[str, ...]
    reference: str

    def delivered(self) -> list[Sample]:
        """What the delivered file makes of the samples, by output name."""
        results: list[Sample] = []
        with open_backend(self.model.path) as backend:
            for sample in self.samples:
                for position, spec in enumerate(self.model.inputs):
                    backend.set_input(position, sample[spec.name].astype(spec.dtype))
                backend.invoke()
                found = {spec.name: backend.get_output(i).copy() for i, spec in enumerate(self.model.outputs)}
                results.append(found)
        return results


def through(
    path: Path, work: Path, *, samples: Sequence[Sample] | None = None, count: int = 3, **options: Any
) -> Passed:
    """``path`` converted to float and compared, on noise where no samples are given."""
    rng = np.random.default_rng(11)
    with opened(path, work, **options) as door:
        given = list(samples) if samples is not None else [_noise(door, rng) for _ in range(count)]
        reference = door.reference(threads=1)
        truths = [reference.run(sample) for sample in given]
        truth = Truth(reference.name, given, truths)
        made, parity, notes = choose(
            door, door.routes(), truth, limit_db=80.0, work=work, timeout_s=300, stages=Stages(Silent())
        )
    return Passed(given, truths, made, parity, notes, reference.name)


def _noise(door: Door, rng: np.random.Generator) -> Sample:
    noise: Sample = {}
    for spec in door.inputs:
        dtype = np.dtype(spec.source_dtype)
        real = dtype.kind == "f"
        noise[spec.name] = (
            rng.standard_normal(spec.source_shape) if real else rng.integers(0, 9, spec.source_shape)
        ).astype(dtype)
    return noise
