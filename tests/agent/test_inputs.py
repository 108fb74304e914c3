"""What the model is fed while it is timed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.agent.inputs import choose_feed, golden_feed, random_feed
from edgekit.errors import DataError
from edgekit.runtime.backend import available_backends, open_backend

MODELS = Path(__file__).parents[1] / "runtime" / "models"

pytestmark = pytest.mark.skipif(not available_backends(), reason="no TFLite interpreter is installed")


def test_random_values_are_seeded_and_valid_for_the_tensor() -> None:
    backend = open_backend(MODELS / "dense_int8.tflite")
    one, same, other = (random_feed(backend, seed=seed) for seed in (1, 1, 2))
    assert one.kind == "random"
    first = one.samples[0][0]
    assert (first.dtype, first.shape) == (np.int8, (1, 4))
    assert all(np.array_equal(a[0], b[0]) for a, b in zip(one.samples, same.samples))
    assert not all(np.array_equal(a[0], b[0]) for a, b in zip(one.samples, other.samples))
    floats = random_feed(open_backend(MODELS / "two_by_two.tflite"), seed=0).samples[0]
    assert [array.dtype for array in floats] == [np.float32, np.float32]
    assert np.all(np.abs(floats[0]) <= 1)


def test_indices_are_zero_since_zero_is_in_every_table() -> None:
    backend = open_backend(MODELS / "lookup.tflite")
    sample = random_feed(backend, seed=0).samples[0]
    backend.set_input(0, sample[0])
    backend.invoke()
    assert not sample[0].any()


def test_golden_inputs_are_quantised_with_the_tensor_s_own_scale(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", **{"input/image:0": np.array([[[1.0, 2.0, 3.0, -4.0]], [[90.0, 0, 0, 0]]])})
    backend = open_backend(MODELS / "dense_int8.tflite")
    feed = golden_feed(backend, golden=str(tmp_path / "g.npz"), names={"x": "image:0"})
    assert feed.kind == "golden"
    assert [sample[0].tolist() for sample in feed.samples] == [[[1, 3, 5, -9]], [[127, -1, -1, -1]]]


def test_two_golden_inputs_are_told_apart_by_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", **{"input/b": np.ones((3, 1, 4)), "input/a": np.zeros((3, 4))})
    backend = open_backend(MODELS / "two_by_two.tflite")
    feed = golden_feed(backend, golden=str(tmp_path / "g.npz"), names={"tensor_a": "a", "tensor_b": "b"})
    assert len(feed.samples) == 3
    assert feed.samples[0][0].tolist() == [[0.0] * 4]
    assert feed.samples[0][1].tolist() == [[1.0] * 4]
    with pytest.raises(DataError, match="no golden array for input 'tensor_a'"):
        golden_feed(backend, golden=str(tmp_path / "g.npz"), names={})


def test_golden_inputs_that_do_not_fit_are_replaced_and_it_is_said(tmp_path: Path) -> None:
    backend = open_backend(MODELS / "dense_int8.tflite")
    np.savez(tmp_path / "g.npz", **{"input/x": np.zeros((2, 5))})
    feed = choose_feed(backend, golden=str(tmp_path / "g.npz"), names={}, seed=0)
    assert feed.kind == "random"
    assert "golden inputs do not fit" in feed.note
    missing = choose_feed(backend, golden=str(tmp_path / "none.npz"), names={}, seed=0)
    assert "does not exist" in missing.note
    assert choose_feed(backend, golden=None, names={}, seed=0).note == ""
