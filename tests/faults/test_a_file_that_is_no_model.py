"""The path of something else: a web page under the model's name, a picture, a folder, a name that was mistyped."""

from __future__ import annotations

from typing import Any

import networks
import pytest

DATA = ("--data", "d.npz", "--out", "b")
VERBS: list[tuple[str, ...]] = [("convert", *DATA), ("inspect",)]


def call(verb: tuple[str, ...], model: str) -> list[str]:
    return [verb[0], model, *verb[1:]]


@pytest.mark.parametrize("verb", VERBS, ids=["convert", "inspect"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"<!DOCTYPE html><title>404</title>", "is no ONNX model, but a web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "a Git LFS pointer, not the model itself"),
        (b"\x89PNG\r\n\x1a\n" + bytes(range(64)), "is no ONNX model"),
        (b"\0" * 4096, "nothing but zero bytes"),
        (b"", "is empty (0 bytes)"),
    ],
    ids=["web page", "LFS pointer", "picture", "zeros", "empty"],
)
def test_content(place: Any, verb: tuple[str, ...], content: bytes, said: str) -> None:
    (place.folder / "net.onnx").write_bytes(content)
    place.npz(x=networks.normal(4, 3, 8, 8))
    assert said in place.refused(*call(verb, "net.onnx"), exit_code=2, code="not_a_model")


@pytest.mark.parametrize("verb", VERBS, ids=["convert", "inspect"])
def test_a_mistyped_name_and_a_folder(place: Any, verb: tuple[str, ...]) -> None:
    networks.save(networks.small_classifier(), place.folder / "network.onnx")
    place.npz(x=networks.normal(4, 3, 8, 8))
    said = place.refused(*call(verb, "netwrok.onnx"), exit_code=2, code="model_file_missing")
    assert "netwrok.onnx: no such file" in said and "did you mean network.onnx?" in said
    said = place.refused(*call(verb, "."), exit_code=2, code="not_a_model")
    assert "did you mean network.onnx?" in said
