"""PyTorch programs and modules: they go in by their own names, and equal PyTorch itself."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.intake import frontends

NET = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.a = torch.nn.Conv2d(2, 6, 3, padding=1)
        self.b = torch.nn.Linear(6, 4)
        for p in self.parameters():
            p.data = torch.randn(p.shape, generator=generator) * 0.4

    def forward(self, picture, bias):
        h = torch.relu(self.a(picture)).mean((2, 3))
        y = self.b(h) + bias
        return {"scores": y, "twice": 2 * h}


def make():
    return Net()


def number():
    return 3
"""

SAVE = """
import sys, warnings
warnings.simplefilter("ignore")
import numpy as np, torch
import net_for_test
program = torch.export.export(net_for_test.make().eval(), (), kwargs={"picture": torch.zeros(1, 2, 8, 8), "bias": torch.zeros(1, 4)})
torch.export.save(program, sys.argv[1])
generator = np.random.default_rng(1)
data = {"picture": generator.normal(size=(40, 2, 8, 8)).astype("float32"), "bias": generator.normal(size=(40, 4)).astype("float32")}
np.savez(sys.argv[2], **data)
with torch.no_grad():
    y = [net_for_test.make().eval()(torch.from_numpy(p[None]), torch.from_numpy(b[None])) for p, b in zip(data["picture"], data["bias"])]
np.savez(sys.argv[3], scores=np.stack([r["scores"].numpy() for r in y]), twice=np.stack([r["twice"].numpy() for r in y]))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the module, its exported program, data, and what PyTorch makes of them."""
    found = frontends.find(frontends.kind_named("torch"))
    if found is None:
        pytest.skip("the front end torch is not installed: edgekit frontend add torch")
    if frontends.find(frontends.kind_named("onnx2tf")) is None:
        pytest.skip("the front end onnx2tf is not installed: edgekit frontend add onnx2tf")
    folder = tmp_path_factory.mktemp("torch")
    (folder / "net_for_test.py").write_text(NET)
    (folder / "save.py").write_text(textwrap.dedent(SAVE))
    command = [str(found.python), "save.py", "net.pt2", "data.npz", "truth.npz"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


def edgekit(folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "edgekit", *words, "--json"], cwd=folder, capture_output=True, text=True, check=False
    )
    document: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, document


def assert_equals_pytorch(bundle: Path, folder: Path) -> None:
    """The float model in the bundle, by name, against what PyTorch said."""
    from edgekit.runtime import Model

    with (
        np.load(folder / "data.npz") as data,
        np.load(folder / "truth.npz") as truth,
        Model.open(bundle / "float.tflite", threads=1) as model,
    ):
        for i in range(3):
            got = model({"picture": data["picture"][i : i + 1].transpose(0, 2, 3, 1), "bias": data["bias"][i : i + 1]})
            np.testing.assert_allclose(got["scores"], truth["scores"][i], atol=1e-5)
            np.testing.assert_allclose(got["twice"], truth["twice"][i], atol=1e-5)


def test_an_exported_program_equals_pytorch(place: Path) -> None:
    code, answer = edgekit(place, "convert", "net.pt2", "--data", "data.npz", "--out", "program.bundle")
    assert (code, answer["passed"]) == (0, True), answer
    manifest = answer["manifest"]
    assert [spec["name"] for spec in manifest["inputs"]] == ["picture", "bias"]
    assert [spec["name"] for spec in manifest["outputs"]] == ["scores", "twice"]
    assert manifest["verification"]["parity"]["reference"].startswith("torch ")
    assert_equals_pytorch(place / "program.bundle", place)


def test_a_function_that_returns_a_module(place: Path) -> None:
    shapes = ["--input-shape", "picture=1x2x8x8", "--input-shape", "bias=1x4"]
    code, answer = edgekit(
        place, "convert", "net_for_test:make", *shapes, "--data", "data.npz", "--out", "module.bundle"
    )
    assert (code, answer["passed"]) == (0, True), answer
    assert_equals_pytorch(place / "module.bundle", place)


def test_shapes_of_a_module_are_asked_for(place: Path) -> None:
    code, answer = edgekit(place, "convert", "net_for_test:make", "--data", "data.npz", "--out", "no.bundle")
    assert code == 2
    assert answer["error"]["code"] == "input_shape_open"
    assert "picture, bias" in answer["error"]["message"]
    assert "--input-shape picture=" in answer["error"]["hint"]
    assert not (place / "no.bundle").exists()


def test_what_is_no_module_is_said(place: Path) -> None:
    code, answer = edgekit(place, "convert", "net_for_test:number", "--data", "data.npz", "--out", "no.bundle")
    assert code == 3
    assert "returned int, not a torch.nn.Module" in answer["error"]["message"]


def test_pickled_values_are_not_loaded(place: Path) -> None:
    """An archive that says its weights are pickles is refused before PyTorch sees it."""
    with zipfile.ZipFile(place / "net.pt2") as source, zipfile.ZipFile(place / "pickled.pt2", "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name.endswith("weights_config.json"):
                content = content.replace(b'"use_pickle": false', b'"use_pickle": true')
            target.writestr(name, content)
    code, answer = edgekit(place, "convert", "pickled.pt2", "--data", "data.npz", "--out", "no.bundle")
    assert code == 3
    assert "pickled values" in answer["error"]["message"]


def test_a_damaged_program_is_refused(place: Path) -> None:
    (place / "cut.pt2").write_bytes((place / "net.pt2").read_bytes()[:2000])
    code, answer = edgekit(place, "convert", "cut.pt2", "--data", "data.npz", "--out", "no.bundle")
    assert code in (2, 3)
    assert not (place / "no.bundle").exists()
