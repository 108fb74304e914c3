"""A cut, changed or incomplete Keras file or SavedModel: said in a sentence, with exit code 2 or 3 and a way on."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest
import tensorflow_files as files


@pytest.mark.parametrize("share", [0.02, 0.5, 0.98])
@pytest.mark.parametrize("name", ["two.keras", "two.h5"])
def test_a_cut_file(name: str, share: float, tmp_path: Path) -> None:
    whole = files.model(name).read_bytes()
    cut = tmp_path / name
    cut.write_bytes(whole[: int(len(whole) * share)])
    error = files.refusal(cut, tmp_path / "work")
    assert error.exit_code == 2
    assert error.code in ("model_truncated", "model_corrupt")


def test_changed_bytes_in_an_archive(tmp_path: Path) -> None:
    data = bytearray(files.model("two.keras").read_bytes())
    with zipfile.ZipFile(files.model("two.keras")) as archive:
        member = archive.getinfo("model.weights.h5")
    data[member.header_offset + 2000] ^= 0xFF
    changed = tmp_path / "changed.keras"
    changed.write_bytes(data)
    error = files.refusal(changed, tmp_path / "work")
    assert (error.code, error.exit_code) == ("model_corrupt", 2)
    assert "model.weights.h5" in error.message


def test_an_archive_whose_configuration_is_no_model(tmp_path: Path) -> None:
    for content in ("{", "[]", '{"module": "keras", "class_name": "Functional", "config": {}}'):
        odd = tmp_path / "odd.keras"
        with zipfile.ZipFile(files.model("two.keras")) as good, zipfile.ZipFile(odd, "w") as bad:
            for member in good.namelist():
                bad.writestr(member, content if member == "config.json" else good.read(member))
        work = tmp_path / "work"
        assert files.refusal(odd, work).exit_code == 2
        shutil.rmtree(work)


def test_weights_without_their_model(tmp_path: Path) -> None:
    error = files.refusal(files.model("only.weights.h5"), tmp_path)
    assert error.exit_code == 2
    assert "weights without the model" in error.message
    assert "model.save" in error.hint


@pytest.mark.parametrize(
    "missing", ["variables", "variables/variables.index", "variables/variables.data-00000-of-00001"]
)
def test_a_saved_model_without_its_variables(missing: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(files.model("open"), copy)
    gone = copy / missing
    shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    error = files.refusal(copy, tmp_path / "work", input_shapes={"x": (1, 2, 4)})
    assert (error.code, error.exit_code) == ("model_incomplete", 2)
    assert "variables" in error.message


@pytest.mark.parametrize(
    "part", ["saved_model.pb", "variables/variables.index", "variables/variables.data-00000-of-00001"]
)
def test_a_saved_model_with_a_cut_part(part: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(files.model("open"), copy)
    whole = (copy / part).read_bytes()
    (copy / part).write_bytes(whole[: len(whole) // 2])
    error = files.refusal(copy, tmp_path / "work", input_shapes={"x": (1, 2, 4)})
    assert error.exit_code == 2


def test_a_file_in_which_hdf5_runs_in_circles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """256 bytes of 0xFF in its heap: h5py comes to no end, in native code that nothing interrupts."""
    from edgekit.intake import tensorflow_model

    files.python()
    data = bytearray((Path(__file__).parents[1] / "fuzz" / "seeds" / "tiny.h5").read_bytes())
    data[5306:5562] = b"\xff" * 256
    (tmp_path / "circle.h5").write_bytes(data)
    monkeypatch.setattr(tensorflow_model, "LOOK_S", 5.0)
    error = files.refusal(tmp_path / "circle.h5", tmp_path / "work")
    assert (error.code, error.exit_code) == ("model_corrupt", 2)
    assert "came to no end within 5 s" in error.message
