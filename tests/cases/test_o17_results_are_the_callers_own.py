"""O17: results and slices of them may be kept for ever, through later calls, exceptions and their tracebacks."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

from edgekit.runtime import Model

MODELS = Path(__file__).resolve().parents[1] / "runtime" / "models"


@pytest.fixture
def model() -> Model:
    return Model.open(MODELS / "two_by_two.tflite", threads=1)


def inputs(value: float) -> dict[str, np.ndarray]:
    return {"left": np.full((1, 4), value, np.float32), "right": np.full((1, 4), 2, np.float32)}


def test_kept_results_do_not_change_and_block_nothing(model: Model) -> None:
    first = model(inputs(1))
    slices = [first["sum"][0, 1:3], first["product"].T, first["sum"].ravel()]
    copies = {name: value.copy() for name, value in first.items()}
    second = model(inputs(5))
    for name, value in first.items():
        np.testing.assert_array_equal(value, copies[name])
        assert not np.shares_memory(value, second[name])
    np.testing.assert_array_equal(slices[0], [3, 3])
    np.testing.assert_array_equal(second["sum"], np.full((1, 4), 7))


def test_results_can_be_written_to(model: Model) -> None:
    first = model(inputs(1))
    first["sum"][:] = 99
    np.testing.assert_array_equal(model(inputs(1))["sum"], np.full((1, 4), 3))


def test_a_kept_traceback_does_not_block_the_next_call(model: Model) -> None:
    kept = []
    try:
        result = model(inputs(1))
        view = result["sum"][0]
        raise RuntimeError(f"post-processing of {view.shape} failed")
    except RuntimeError as error:
        kept.append(error)  # with its frames, and the arrays in them
    np.testing.assert_array_equal(model(inputs(2))["sum"], np.full((1, 4), 4))
    assert kept[0].__traceback__ is not None


def test_input_arrays_are_not_held(model: Model) -> None:
    given = inputs(1)
    result = model(given)
    given["left"][:] = 1000
    np.testing.assert_array_equal(result["sum"], np.full((1, 4), 3))


def test_a_thousand_kept_results_and_no_other_growth() -> None:
    """Memory grows by what the caller keeps, and hardly at all where nothing is kept."""

    def resident_bytes() -> int:
        try:
            return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
        except OSError:
            pytest.skip("/proc is not there to read the memory from")

    with Model.open(MODELS / "convs.tflite", threads=1) as model:
        x = np.zeros((1, 32, 32, 8), np.float32)
        for _ in range(50):
            model(x)
        gc.collect()
        before = resident_bytes()
        for _ in range(1000):
            model(x)
        gc.collect()
        assert resident_bytes() - before < 4_000_000  # one result is 32 kB: a thousand of them would be 32 MB
