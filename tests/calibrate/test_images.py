"""A folder of pictures as data, and where its labels come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgekit.calibrate.sources import DataOptions, Dataset, open_dataset, sample_name
from edgekit.errors import DataError, RecipeError
from edgekit.values import IoSpec, Preprocessing

AS_THEY_ARE = Preprocessing(mean=(0.0,), std=(1.0,))


def spec(*shape: int, name: str = "image") -> IoSpec:
    return IoSpec(name, shape, "float32", name, shape, "float32")


def picture(path: Path, value: int, size: tuple[int, int] = (6, 4)) -> None:
    """A picture of ``size`` (width, height) whose red is ``value``, green 10 and blue 200."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (value, 10, 200)).save(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four pictures in the order b/1, b/2, z/10, z/9 by name, and a file that is none."""
    for name, value in (("z/9.png", 4), ("b/2.bmp", 2), ("z/10.PNG", 3), ("b/1.png", 1)):
        picture(tmp_path / "photos" / name, value)
    (tmp_path / "photos" / "notes.txt").write_text("not a picture")
    return tmp_path / "photos"


def opened(folder: Path | str, *, model: IoSpec | None = None, **options: Any) -> Dataset:
    options.setdefault("preprocessing", AS_THEY_ARE)
    return open_dataset(str(folder), [model or spec(1, 3, 4, 6)], DataOptions(**options))


def refusal(folder: Path, **options: Any) -> str:
    with pytest.raises(DataError) as caught:
        list(opened(folder, **options).iterate())
    assert caught.value.hint
    return f"{caught.value.message} -> {caught.value.hint}"


def test_pictures_in_name_order_as_the_model_takes_them(folder: Path) -> None:
    dataset = opened(folder)
    assert dataset.names == ["b/1.png", "b/2.bmp", "z/10.PNG", "z/9.png"] and dataset.source == "photos"
    samples = [sample["image"] for sample in dataset.iterate()]
    assert [int(sample[0, 0, 0, 0]) for sample in samples] == [1, 2, 3, 4]
    assert all(sample.shape == (1, 3, 4, 6) and sample.dtype == np.float32 for sample in samples)
    np.testing.assert_array_equal(samples[0][0, :, 1, 2], [1, 10, 200])
    assert [int(s["image"][0, 0, 0, 0]) for s in dataset.iterate([1, 3])] == [2, 4]
    assert sample_name(dataset, 2) == "z/10.PNG"


def test_channels_go_where_the_model_has_them(folder: Path) -> None:
    last = next(opened(folder, model=spec(1, 4, 6, 3)).iterate())["image"]
    np.testing.assert_array_equal(last[0, 1, 2], [1, 10, 200])
    swapped = next(opened(folder, preprocessing=Preprocessing(color="bgr")).iterate())["image"]
    np.testing.assert_array_equal(swapped[0, :, 1, 2], [200, 10, 1])
    gray = next(opened(folder, model=spec(1, 1, 4, 6), preprocessing=Preprocessing(color="gray")).iterate())["image"]
    assert gray[0, 0, 0, 0] == round(0.299 * 1 + 0.587 * 10 + 0.114 * 200)


def test_the_current_folder_has_a_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert opened(".").source == "photos"


def test_folders_without_pictures(tmp_path: Path) -> None:
    assert "holds no images: nothing at all -> edgekit reads .bmp" in refusal(tmp_path)
    (tmp_path / "movie.mp4").write_bytes(b"")
    (tmp_path / "d.npz").write_bytes(b"")
    assert "holds no images: only files ending in .mp4, .npz" in refusal(tmp_path)


def test_a_picture_that_cannot_be_read_is_named(folder: Path) -> None:
    content = (folder / "b" / "2.bmp").read_bytes()
    (folder / "b" / "2.bmp").write_bytes(content[:60])
    assert "2.bmp" in refusal(folder)
    (folder / "a.jpg").write_text("<html>404</html>")
    assert "a.jpg is no image that can be read" in refusal(folder)


def test_preprocessing_is_not_guessed(folder: Path) -> None:
    said = refusal(folder, preprocessing=None)
    assert "nothing says how a pixel becomes a number" in said and "--mean 0 --std 1" in said
    with pytest.raises(RecipeError, match="mean has 3 values for 1 channels"):
        opened(folder, model=spec(1, 1, 4, 6), preprocessing=Preprocessing(color="gray", mean=(1.0, 2.0, 3.0)))


def test_pictures_and_models_that_do_not_fit(folder: Path) -> None:
    size = refusal(folder, model=spec(1, 3, 8, 12))
    assert "comes out of the preprocessing as 6x4 pixels, and input 'image' takes 12x8" in size
    assert "--resize 8x12 --fit stretch" in size
    assert "none of its axes 1 and 3 has the 1 channels that --color says" in refusal(
        folder, preprocessing=Preprocessing(color="gray")
    )
    assert "both axis 1 and axis 3 could be the channels" in refusal(folder, model=spec(1, 3, 6, 3))
    assert "its layout cannot be told" in refusal(folder, model=spec(1, 3, 3, 3))
    assert "a model with one picture input of rank 4, and this one takes image [1, 10]" in refusal(
        folder, model=spec(1, 10)
    )
    assert "takes 4 pictures at once" in refusal(folder, model=spec(4, 3, 4, 6))
    with pytest.raises(DataError, match="takes image"):
        open_dataset(str(folder), [spec(1, 3, 4, 6), spec(1, 2, name="z")], DataOptions(preprocessing=AS_THEY_ARE))


ROWS = ("b/1.png,0", "b/2.bmp,1", "z/10.PNG,2", "z/9.png,1")


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(ROWS),
        "\n".join(("file,label", *ROWS)),
        "\ufeff" + "\r\n".join(("file,label", *ROWS)),
        "\n".join(("file,label,photographer", *(f"{row},me" for row in ROWS), "")),
        "1.png, 0\n2.bmp, 1\n10.PNG, 2\n9.png, 1\nelsewhere.png, 7\n",
    ],
    ids=["bare", "with header", "from a spreadsheet", "with another column", "file names only"],
)
def test_labels_from_csv(folder: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "labels.csv").write_text(text, newline="")
    labels = opened(folder, labels=str(tmp_path / "labels.csv")).labels
    assert labels is not None and labels.tolist() == [0, 1, 2, 1]


def test_labels_by_class_name(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("b/1.png,cat\nb/2.bmp,dog\nz/10.PNG,cat\nz/9.png,dg\n")
    said = refusal(folder, labels=str(tmp_path / "labels.csv"), class_names=("dog", "cat"))
    assert "labels.csv, row 4: 'dg' is neither a class index nor one of the class names" in said
    assert 'did you mean "dog"?' in said
    (tmp_path / "labels.csv").write_text("b/1.png,cat\nb/2.bmp,dog\nz/10.PNG,cat\nz/9.png,1\n")
    labels = opened(folder, labels=str(tmp_path / "labels.csv"), class_names=("dog", "cat")).labels
    assert labels is not None and labels.tolist() == [1, 0, 1, 1]
    assert "give the names, one a line, with --class-names FILE" in refusal(folder, labels=str(tmp_path / "labels.csv"))


def test_csv_files_that_do_not_fit(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    assert f"there is no labels file {path} -> give a CSV with the columns file,label" in refusal(
        folder, labels=str(path)
    )
    path.write_text("\n".join(ROWS[:3]))
    assert "labels.csv has no label for z/9.png" in refusal(folder, labels=str(path))
    path.write_text("\n".join((*ROWS[:3], "z/9.pgn,1")))
    assert 'did you mean "z/9.pgn"?' in refusal(folder, labels=str(path))
    path.write_text("b/1.png\n")
    assert "row 1: 'b/1.png' is not file,label" in refusal(folder, labels=str(path))
    path.write_text("b/1.png,-1\n")
    assert "row 1: '-1' is neither a class index" in refusal(folder, labels=str(path))
    path.write_bytes(b"\xff\xfe\x00\x01")
    assert "cannot be read as CSV" in refusal(folder, labels=str(path))


def test_labels_by_folder(folder: Path) -> None:
    labels = opened(folder, labels="folders").labels
    assert labels is not None and labels.tolist() == [0, 0, 1, 1]
    labels = opened(folder, labels="folders", class_names=("z", "y", "b")).labels
    assert labels is not None and labels.tolist() == [2, 2, 0, 0]
    assert "'b' is neither a class index nor one of the class names" in refusal(
        folder, labels="folders", class_names=("zebra", "z")
    )
    picture(folder / "loose.png", 1)
    assert "loose.png lies in no class folder" in refusal(folder, labels="folders")


def test_folders_with_numbers_are_class_indices(tmp_path: Path) -> None:
    """Not their place in the order of names, where 10 comes before 2."""
    for number in (2, 3, 10):
        picture(tmp_path / "digits" / str(number) / "p.png", number)
    labels = opened(tmp_path / "digits", labels="folders").labels
    assert labels is not None and labels.tolist() == [10, 2, 3]
