"""Data files are found in a checkout and in an installed wheel; mistyped words are understood."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import edgekit
from edgekit import resources
from edgekit.errors import UsageError
from edgekit.resources import closest, did_you_mean, resource_folder


@pytest.mark.parametrize("kind", ["recipes", "devices"])
def test_the_checkout_s_folders(kind: str) -> None:
    assert list(resource_folder(kind).glob("*.toml"))


def test_an_installed_wheel_has_them_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages" / "edgekit"
    (package / "_data" / "devices").mkdir(parents=True)
    (tmp_path / "site-packages" / "recipes").mkdir()
    monkeypatch.setattr(resources, "__file__", str(package / "resources.py"))
    assert resource_folder("devices") == package / "_data" / "devices"
    (package / "_data" / "devices").rmdir()
    with pytest.raises(UsageError) as caught:
        resource_folder("devices")
    assert caught.value.code == "installation_incomplete"


def test_an_unknown_kind() -> None:
    with pytest.raises(UsageError) as caught:
        resource_folder("recipe")
    assert caught.value.hint == 'did you mean "recipes"?'


def test_did_you_mean() -> None:
    words = ["full-int8", "int16x8", "letterbox"]
    assert closest("full_int8", words) == "full-int8"
    assert closest("Full-Int", words) == "full-int8"
    assert closest("banana", words) is None
    assert did_you_mean("leterbox", words) == 'did you mean "letterbox"?'
    assert did_you_mean("banana", words) == ""
    assert did_you_mean("x", []) == ""


def test_the_version_stands_in_one_place() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", edgekit.__version__)
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    stated = re.search(r'^version = "(.*)"$', text, re.MULTILINE)
    if stated is not None:  # else it is read from the package
        assert stated.group(1) == edgekit.__version__
    assert "__version__" in edgekit.__all__
