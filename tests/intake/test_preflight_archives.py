"""The pre-flight of Keras files, SavedModels and PyTorch programs: whole or refused, without any of their frameworks."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgekit.errors import EdgekitError, ModelFileError, UnsupportedModelError
from edgekit.intake.preflight import Finding, Level, preflight

SEEDS = Path(__file__).resolve().parents[1] / "fuzz" / "seeds"
SAMPLES = Path(__file__).resolve().parents[2] / "sample_models"


def rewritten(name: str, target: Path, change: Callable[[Any], None], *, member: str = "config.json") -> Path:
    """The sound archive ``name`` with one JSON document in it changed."""
    with zipfile.ZipFile(SEEDS / name) as good, zipfile.ZipFile(target, "w") as other:
        for inner in good.namelist():
            content = good.read(inner)
            if inner.endswith(member):
                document = json.loads(content)
                change(document)
                content = json.dumps(document).encode()
            other.writestr(inner, content)
    return target


def refused(path: Path) -> EdgekitError:
    with pytest.raises((ModelFileError, UnsupportedModelError)) as caught:
        preflight(path)
    assert caught.value.hint or caught.value.code == "not_a_model"
    return caught.value


def by_code(path: Path) -> dict[str, Finding]:
    return {item.code: item for item in preflight(path)}


@pytest.mark.parametrize("name", ["tiny.keras", "tiny.h5", "tiny_savedmodel", "tiny.pt2"])
def test_a_sound_file_has_no_findings(name: str) -> None:
    assert preflight(SEEDS / name) == ()


@pytest.mark.parametrize("name", ["fashion_relu6.keras", "fashion_silu_savedmodel"])
def test_the_samples_have_no_findings(name: str) -> None:
    assert preflight(SAMPLES / name) == ()


def test_no_framework_is_imported() -> None:
    script = (
        "import sys; from edgekit.intake.preflight import preflight; "
        f"[preflight({str(SEEDS)!r} + '/tiny' + end) for end in ('.keras', '.h5', '_savedmodel', '.pt2')]; "
        "print([name for name in ('tensorflow', 'keras', 'torch', 'h5py', 'onnx', 'google.protobuf') if name in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


@pytest.mark.parametrize("size", [40, 2000, 22_000])
def test_a_cut_hdf5_file_says_how_much_is_there(size: int, tmp_path: Path) -> None:
    path = tmp_path / "cut.h5"
    path.write_bytes((SEEDS / "tiny.h5").read_bytes()[:size])
    error = refused(path)
    assert error.code == "model_truncated"
    assert f"{size:,} bytes" in error.message and (size == 40 or "22,432" in error.message)


def test_an_hdf5_file_of_a_version_that_is_none(tmp_path: Path) -> None:
    data = bytearray((SEEDS / "tiny.h5").read_bytes())
    data[8] = 9
    (tmp_path / "odd.h5").write_bytes(data)
    assert refused(tmp_path / "odd.h5").code == "model_corrupt"


def test_an_hdf5_file_behind_a_user_block(tmp_path: Path) -> None:
    data = bytearray((SEEDS / "tiny.h5").read_bytes())
    data[24:32] = (512).to_bytes(8, "little")  # the base address
    (tmp_path / "block.h5").write_bytes(bytes(512) + data)
    assert preflight(tmp_path / "block.h5") == ()
    (tmp_path / "cut.h5").write_bytes((bytes(512) + data)[:-1])
    assert refused(tmp_path / "cut.h5").code == "model_truncated"


def test_layers_that_often_go_wrong_are_named(tmp_path: Path) -> None:
    def change(document: dict[str, Any]) -> None:
        layers = document["config"]["layers"]
        layers[1]["class_name"], layers[1]["config"]["name"] = "LSTM", "memory"
        layers[2]["class_name"], layers[2]["config"]["name"] = "Conv3D", "volume"

    found = by_code(rewritten("tiny.keras", tmp_path / "m.keras", change))
    assert {code: (item.level, item.nodes) for code, item in found.items()} == {
        "recurrent": (Level.WARN, ("memory",)),
        "rank_high": (Level.WARN, ("volume",)),
    }


def test_the_layers_of_an_hdf5_file_are_named(tmp_path: Path) -> None:
    data = (SEEDS / "tiny.h5").read_bytes().replace(b'"class_name": "Conv2D"', b'"class_name": "Conv3D"')
    (tmp_path / "m.h5").write_bytes(data)
    assert by_code(tmp_path / "m.h5")["rank_high"].nodes == ("conv",)


@pytest.mark.parametrize("content", [b"[]", b"{}", b"{", b"\xff", b"[" * 100_000])
def test_a_configuration_that_is_none(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.keras"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", content)
        archive.writestr("model.weights.h5", b"")
    error = refused(path)
    assert error.code == "model_corrupt" and "config.json" in error.message


def test_a_saved_model_that_breaks_off(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    whole = (SEEDS / "tiny_savedmodel" / "saved_model.pb").read_bytes()
    for size in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(SEEDS / "tiny_savedmodel", folder)
        (folder / "saved_model.pb").write_bytes(whole[:size])
        error = refused(folder)
        assert error.code == "model_corrupt" and "saved_model.pb" in error.message


@pytest.mark.parametrize("missing", ["variables.index", "variables.data-00000-of-00001"])
def test_a_saved_model_without_its_weights(missing: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(SEEDS / "tiny_savedmodel", folder)
    (folder / "variables" / missing).unlink()
    error = refused(folder)
    assert error.code == "model_incomplete" and missing in error.message


def test_operators_of_a_saved_model_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(SEEDS / "tiny_savedmodel", folder)
    graph = (folder / "saved_model.pb").read_bytes()
    assert b"\x12\x06Conv2D" in graph
    (folder / "saved_model.pb").write_bytes(graph.replace(b"\x12\x06Conv2D", b"\x12\x06Conv3D"))
    found = by_code(folder)
    assert found["rank_high"].operator == "Conv3D" and found["rank_high"].count >= 1


def test_calls_of_a_program_that_often_go_wrong_are_named(tmp_path: Path) -> None:
    def change(document: dict[str, Any]) -> None:
        nodes = document["graph_module"]["graph"]["nodes"]
        for node, target in zip(nodes, ("torch.ops.aten.lstm.input", "torch.ops.mine.fancy.default"), strict=False):
            node["target"] = target

    found = by_code(rewritten("tiny.pt2", tmp_path / "m.pt2", change, member="models/model.json"))
    assert {code: item.operator for code, item in found.items()} == {
        "recurrent": "torch.ops.aten.lstm.input",
        "operator_custom": "torch.ops.mine.fancy.default",
    }


@pytest.mark.parametrize("graph", [None, {"graph": 3}, {"graph": {"nodes": [1]}}])
def test_a_program_without_a_graph(graph: Any, tmp_path: Path) -> None:
    path = rewritten(
        "tiny.pt2", tmp_path / "m.pt2", lambda document: document.update(graph_module=graph), member="models/model.json"
    )
    assert refused(path).code == "model_corrupt"


def test_a_program_with_a_damaged_member_is_refused_by_its_name(tmp_path: Path) -> None:
    with zipfile.ZipFile(SEEDS / "tiny.pt2") as archive:
        member = next(name for name in archive.namelist() if name.endswith("weight_0"))
        content = archive.read(member)
    data = bytearray((SEEDS / "tiny.pt2").read_bytes())
    data[data.index(content)] ^= 1
    (tmp_path / "m.pt2").write_bytes(data)
    error = refused(tmp_path / "m.pt2")
    assert error.code == "model_corrupt" and "weight_0" in error.message
