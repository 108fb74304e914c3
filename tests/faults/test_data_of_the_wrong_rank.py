"""Arrays that are no samples of this model: flat ones, channels last, a missing axis, another input's name."""

from __future__ import annotations

from typing import Any

import networks
import numpy as np

LINE = ("convert", "net.onnx", "--data", "d.npz", "--out", "b")


def refusal(place: Any, **arrays: Any) -> str:
    networks.save(networks.small_classifier(), place.folder / "net.onnx")
    place.npz(**arrays)
    found: str = place.refused(*LINE, exit_code=2, code="data_invalid")
    return found


def test_flat(place: Any, any_frontend: str) -> None:
    said = refusal(place, x=networks.normal(20, 192))
    assert "one sample of 'x' has shape [192] (rank 1), and the model takes [3, 8, 8] (rank 3)" in said
    assert "give arrays of shape (samples, 3, 8, 8)" in said


def test_channels_last(place: Any, any_frontend: str) -> None:
    said = refusal(place, x=networks.normal(20, 8, 8, 3))
    assert "these look channels-last: transpose(0, 3, 1, 2)" in said


def test_one_sample_without_the_samples_axis(place: Any, any_frontend: str) -> None:
    assert "has shape [8, 8] (rank 2), and the model takes [3, 8, 8] (rank 3)" in refusal(
        place, x=networks.normal(3, 8, 8)
    )


def test_another_name(place: Any, any_frontend: str) -> None:
    said = refusal(place, image=networks.normal(20, 3, 8, 8))
    assert "has no array for input 'x': it has image -> name the arrays like the model's inputs: x" in said


def test_nan_in_one_sample(place: Any, any_frontend: str) -> None:
    """Named by its number in the file, wherever the split has put it."""
    networks.save(networks.small_classifier(), place.folder / "net.onnx")
    data = networks.normal(20, 3, 8, 8)
    data[13, 0, 0, 0] = np.nan
    place.npz(x=data)
    said = place.refused(*LINE, exit_code=2, code="data_not_finite")
    assert "d.npz: sample 13 of 'x' holds NaN or infinite values" in said
