"""A ``.pt2`` archive may bring a shared library, which PyTorch loads with the program: it is refused before PyTorch sees it."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from edgekit.errors import UnsupportedModelError
from edgekit.intake.door import DoorOptions
from edgekit.intake.preflight import preflight
from edgekit.intake.torch import open_model

SEEDS = Path(__file__).resolve().parents[1] / "fuzz" / "seeds"


@pytest.mark.parametrize("member", ["tiny/data/aotinductor/model/code.so", "data/aotinductor/model/code.wrapper.so"])
def test_machine_code_is_refused_by_name(member: str, tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    shutil.copyfile(SEEDS / "tiny.pt2", path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(member, b"\x7fELF")
    ways: tuple[Callable[[], object], ...] = (lambda: preflight(path), lambda: open_model(path, DoorOptions(tmp_path)))
    for opened in ways:
        with pytest.raises(UnsupportedModelError) as caught:
            opened()
        assert caught.value.code == "model_unsafe"
        assert member in caught.value.message and "torch.export.save" in caught.value.hint
        shutil.rmtree(tmp_path / "torch-describe", ignore_errors=True)
