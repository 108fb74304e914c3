"""A fresh machine: what to type, and how large it is, before anything else is asked."""

from __future__ import annotations

import re
from typing import Any

import networks
import pytest

from edgekit.intake import frontends

LINE = ("convert", "net.onnx", "--data", "d.npz", "--out", "b")


@pytest.fixture(autouse=True)
def model(place: Any) -> None:
    if any(frontends._importable_here(kind) for kind in frontends.KINDS.values()):
        pytest.skip("this environment has a front end of its own")
    networks.save(networks.small_classifier(), place.folder / "net.onnx")
    place.npz(x=networks.normal(20, 3, 8, 8))


@pytest.mark.parametrize("more", [(), ("--dry-run",)], ids=["convert", "dry run"])
def test_none(place: Any, more: tuple[str, ...]) -> None:
    empty = str(place.home.parent / "empty")
    said = place.refused(*LINE, *more, exit_code=2, code="frontend_missing", XDG_CACHE_HOME=empty)
    assert f"looked for onnx2tf, tensorflow in {empty}/edgekit/frontends" in said
    sizes = dict(re.findall(r"edgekit frontend add (\w+) \(about (\d+) MB\)", said))
    offered = {name for name in ("onnx2tf", "tensorflow") if frontends.pythons_for(frontends.KINDS[name])}
    assert set(sizes) == (offered or {"onnx2tf", "tensorflow"})
    assert all(int(size) == frontends.KINDS[name].size_mb for name, size in sizes.items())


def test_the_one_that_was_asked_for(place: Any) -> None:
    empty = str(place.home.parent / "empty")
    line = (*LINE, "--frontend", "tensorflow")
    said = place.refused(*line, exit_code=2, code="frontend_missing", XDG_CACHE_HOME=empty)
    assert "looked for tensorflow in" in said and "edgekit frontend add tensorflow (about 2700 MB)" in said


def test_the_list_says_so(place: Any) -> None:
    said = place.run("frontend", "list", "--json", XDG_CACHE_HOME=str(place.home.parent / "empty"))
    assert {entry["installed"] for entry in said.document["frontends"]} == {False}
    assert all(entry["size_mb"] > 100 and entry["purpose"] for entry in said.document["frontends"])
