"""Arrays as data: what is read, in which order, and the sentence for everything that does not fit."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgekit.calibrate.sources import DataOptions, Dataset, open_dataset, sample_name, subset_labels
from edgekit.errors import DataError
from edgekit.values import IoSpec, Preprocessing

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 3, 4, 5)).astype(np.uint8)
AS_THEY_ARE = Preprocessing(mean=(0.0,), std=(1.0,))


def spec(name: str = "x", shape: tuple[int, ...] = (1, 3, 4, 5), dtype: str = "float32") -> IoSpec:
    return IoSpec(name, shape, dtype, name, shape, dtype)


def opened(path: Path | str, *inputs: IoSpec, **options: Any) -> Dataset:
    return open_dataset(str(path), inputs or (spec(),), DataOptions(**options))


def refusal(path: Path | str, *inputs: IoSpec, **options: Any) -> str:
    """Message and hint of the DataError that opening and reading raises."""
    with pytest.raises(DataError) as caught:
        list(opened(path, *inputs, **options).iterate())
    assert caught.value.exit_code == 2
    assert caught.value.hint
    return f"{caught.value.message} -> {caught.value.hint}"


def stacked(dataset: Dataset, name: str = "x", indices: Any = None) -> NDArray[Any]:
    return np.stack([sample[name] for sample in dataset.iterate(indices)])


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed], ids=["stored", "compressed"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("batch_axis", [False, True])
def test_npz(tmp_path: Path, write: Any, order: Any, batch_axis: bool) -> None:
    data = PIXELS[:, None] if batch_axis else PIXELS
    write(tmp_path / "d.npz", x=np.asarray(data, np.float64, order=order), other=np.array(["text"]))
    dataset = opened(tmp_path / "d.npz")
    assert (len(dataset), dataset.source, dataset.names, dataset.labels) == (6, "d.npz", None, None)
    everything = stacked(dataset)
    assert everything.dtype == np.float32 and everything.shape == (6, 1, 3, 4, 5)
    np.testing.assert_array_equal(everything[:, 0], PIXELS)
    np.testing.assert_array_equal(stacked(dataset, indices=[1, 4])[:, 0], PIXELS[[1, 4]])
    assert sample_name(dataset, 4) == "sample 4 of d.npz"


def test_npy(tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", PIXELS.astype(">f4"))
    np.testing.assert_array_equal(stacked(opened(tmp_path / "d.npy"))[:, 0], PIXELS)
    np.save(tmp_path / "half.npy", PIXELS.astype(np.float16))
    assert stacked(opened(tmp_path / "half.npy")).dtype == np.float32
    assert "holds one array, and the model has 2 inputs: x, z" in refusal(tmp_path / "d.npy", spec("x"), spec("z"))


def test_several_inputs_by_name(tmp_path: Path) -> None:
    """Equal shapes, told apart by name and not by position."""
    np.savez(tmp_path / "d.npz", b=np.full((3, 2), 2.0), a=np.full((3, 2), 1.0))
    dataset = opened(tmp_path / "d.npz", spec("a", (1, 2)), spec("b", (1, 2)))
    assert [{k: float(v[0, 0]) for k, v in sample.items()} for sample in dataset.iterate()] == [
        {"a": 1.0, "b": 2.0}
    ] * 3
    assert "no array for input 'c': it has a, b -> name the arrays like the model's inputs: c" in refusal(
        tmp_path / "d.npz", spec("c", (1, 2))
    )
    np.savez(tmp_path / "uneven.npz", a=np.zeros((3, 2)), b=np.zeros((4, 2)))
    assert "different numbers of samples: [3, 4]" in refusal(
        tmp_path / "uneven.npz", spec("a", (1, 2)), spec("b", (1, 2))
    )


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with a module that yields samples in several wrong ways."""
    monkeypatch.chdir(tmp_path)
    name = f"my_data_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{name}.py").write_text(
        """
import sys
import numpy as np

def good():
    for value in range(5):
        yield {"x": np.full((3, 4, 5), value, np.float32)}

def batched():
    return [{"x": np.zeros((1, 3, 4, 5))}]

def empty():
    return []

def list_of_arrays():
    return [np.zeros((3, 4, 5))]

def other_names():
    yield {"x": np.zeros((3, 4, 5))}
    yield {"y": np.zeros((3, 4, 5))}

def other_shapes():
    yield {"x": np.zeros((3, 4, 5))}
    yield {"x": np.zeros((3, 4, 6))}

def strings():
    yield {"x": "photo.jpg"}

def ragged():
    yield {"x": np.array([None, 1], object)}

def fails():
    yield {"x": np.zeros((3, 4, 5))}
    raise RuntimeError("camera unplugged")

def leaves():
    sys.exit(3)
    yield
"""
    )
    yield Path(name)
    sys.modules.pop(name, None)


def test_function(functions: Path) -> None:
    dataset = opened(f"{functions}:good")
    assert len(dataset) == 5 and dataset.source == f"{functions}:good"
    assert [float(sample["x"][0, 0, 0, 0]) for sample in dataset.iterate()] == [0, 1, 2, 3, 4]
    assert [float(sample["x"][0, 0, 0, 0]) for sample in dataset.iterate([1, 3])] == [
        1,
        3,
    ]  # spooled, so again and in part
    assert len(opened(f"{functions}:batched")) == 1
    assert str(Path.cwd()) not in sys.path


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("empty", "yields no samples"),
        ("list_of_arrays", "yields ndarray, not {input name: array}"),
        ("other_names", "sample 1 has arrays ['y'], the first one had ['x']"),
        ("other_shapes", "sample 1, 'x' is float64[3, 4, 6], the first one was float64[3, 4, 5]"),
        ("strings", "not numbers"),
        ("ragged", "sample 0, 'x' is not an array of numbers"),
        ("fails", "failed: RuntimeError: camera unplugged"),
        ("leaves", "failed: SystemExit: 3"),
        ("god", "has no function 'god' -> did you mean \"good\"?"),
    ],
)
def test_functions_that_do_not_work(functions: Path, name: str, said: str) -> None:
    assert said in refusal(f"{functions}:{name}")


def test_modules_that_do_not_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "leaves_at_once.py").write_text("import sys; sys.exit('usage: ...')")
    assert "leaves_at_once cannot be imported: SystemExit: usage: ..." in refusal("leaves_at_once:f")
    assert "no_such_module cannot be imported: ModuleNotFoundError" in refusal("no_such_module:f")
    assert "cannot be imported" in refusal(":f")


def test_what_is_no_data(tmp_path: Path) -> None:
    (tmp_path / "d.txt").write_text("hello")
    assert "d.txt is not data that edgekit reads -> give a folder of images, a .npz" in refusal(tmp_path / "d.txt")
    assert "there is no file or folder" in refusal(tmp_path / "missing.npz")
    assert "holds no samples" in refusal(saved(tmp_path, x=np.zeros((0, 3, 4, 5))))
    assert "'x' is a single number" in refusal(saved(tmp_path, x=np.float32(1)))
    assert "'x' is <U5, not numbers" in refusal(saved(tmp_path, x=np.array(["hello"] * 6)))
    assert "'x' is complex128, not numbers" in refusal(saved(tmp_path, x=np.zeros((6, 3, 4, 5), complex)))


def saved(folder: Path, **arrays: Any) -> Path:
    np.savez(folder / "d.npz", **arrays)
    return folder / "d.npz"


def test_python_objects_are_never_unpickled(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "exploded",))

    bomb = np.array([Bomb()] * 6, object)
    np.save(tmp_path / "d.npy", bomb, allow_pickle=True)
    assert "cannot be read as .npy" in refusal(tmp_path / "d.npy")
    assert "'x' is object, not numbers" in refusal(saved(tmp_path, x=bomb))
    np.testing.assert_array_equal(stacked(opened(saved(tmp_path, x=PIXELS, notes=bomb)))[:, 0], PIXELS)  # not an input
    assert not (tmp_path / "exploded").exists()


def test_shapes_that_do_not_fit(tmp_path: Path) -> None:
    last = refusal(saved(tmp_path, x=np.zeros((6, 4, 5, 3))))
    assert "one sample of 'x' has shape [4, 5, 3] (rank 3), and the model takes [3, 4, 5] (rank 3)" in last
    assert "give arrays of shape (samples, 3, 4, 5); these look channels-last: transpose(0, 3, 1, 2)" in last
    first = refusal(saved(tmp_path, x=np.zeros((6, 3, 4, 5))), spec("x", (1, 4, 5, 3)))
    assert "these look channels-first: transpose(0, 2, 3, 1)" in first
    rank = refusal(saved(tmp_path, x=np.zeros((6, 60))))
    assert "has shape [60] (rank 1), and the model takes [3, 4, 5] (rank 3)" in rank and "look" not in rank
    assert "(samples, 3, 4, 5)" in refusal(saved(tmp_path, x=np.zeros((3, 4, 5))))  # the samples' axis forgotten


def test_floats_are_not_rounded_to_integer_inputs(tmp_path: Path) -> None:
    ids = spec("x", (1, 6), "int64")
    assert "'x' is float64, and the model takes int64 -> save it as int64" in refusal(
        saved(tmp_path, x=np.ones((4, 6))), ids
    )
    assert stacked(opened(saved(tmp_path, x=np.ones((4, 6), np.int32)), ids)).dtype == np.int64


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_the_sample_with_nan_is_named(tmp_path: Path, bad: float) -> None:
    data = PIXELS.astype(np.float32)
    data[4, 1, 2, 3] = bad
    assert "sample 4 of 'x' holds NaN or infinite values" in refusal(saved(tmp_path, x=data))
    # the number is that of the data, also when only a part is read
    with pytest.raises(DataError, match="sample 4 of 'x'"):
        list(opened(tmp_path / "d.npz").iterate([0, 4]))


def test_damaged_archives(tmp_path: Path) -> None:
    for write in (np.savez, np.savez_compressed):
        write(tmp_path / "whole.npz", x=np.random.default_rng(0).integers(0, 99, (900, 3, 4, 5)))
        content = (tmp_path / "whole.npz").read_bytes()
        (tmp_path / "cut.npz").write_bytes(content[: len(content) // 2])
        assert "cut.npz cannot be read as .npz" in refusal(tmp_path / "cut.npz")
        broken = bytearray(content)
        with zipfile.ZipFile(tmp_path / "whole.npz") as archive:
            info = archive.getinfo("x.npy")
        middle = info.header_offset + 200 + info.compress_size // 2
        broken[middle : middle + 8] = b"\x01" * 8
        (tmp_path / "broken.npz").write_bytes(broken)
        assert "array 'x' is damaged" in refusal(tmp_path / "broken.npz")
    np.save(tmp_path / "whole.npy", PIXELS)
    (tmp_path / "cut.npy").write_bytes((tmp_path / "whole.npy").read_bytes()[:300])
    assert "cut.npy cannot be read as .npy" in refusal(tmp_path / "cut.npy")
    (tmp_path / "archive.npy").write_bytes((tmp_path / "whole.npz").read_bytes())
    assert "it is an archive of several arrays" in refusal(tmp_path / "archive.npy")
    (tmp_path / "text.npz").write_text("not a zip archive")
    assert "text.npz cannot be read as .npz" in refusal(tmp_path / "text.npz")


def test_an_array_that_ends_early_is_refused_not_padded(tmp_path: Path) -> None:
    """A header that promises six samples over the bytes of four."""
    import io

    whole = io.BytesIO()
    np.save(whole, PIXELS)
    with zipfile.ZipFile(tmp_path / "d.npz", "w") as archive:
        archive.writestr("x.npy", whole.getvalue()[: -2 * PIXELS[0].nbytes])
    assert "array 'x' is damaged: it ends at sample 4 of 6" in refusal(tmp_path / "d.npz")


def test_labels_are_an_array_of_the_npz(tmp_path: Path) -> None:
    path = saved(tmp_path, x=PIXELS, label=np.arange(6, dtype=np.int32), soft=np.zeros(6), two=np.zeros((6, 2), int))
    dataset = opened(path, labels="label")
    assert dataset.labels is not None and dataset.labels.tolist() == [0, 1, 2, 3, 4, 5]
    chosen = subset_labels(dataset, [1, 5])
    assert chosen is not None and chosen.tolist() == [1, 5]
    assert subset_labels(opened(path), [1]) is None
    assert "no label array 'labels': it has label, soft, two, x -> did you mean \"label\"?" in refusal(
        path, labels="labels"
    )
    numbers = opened(path, labels="soft")  # not classes, but numbers to come close to
    assert numbers.labels is None and numbers.truth is not None and numbers.truth.kind == "values"
    assert "labels 'two' are int64[6, 2], not 6 integers" in refusal(path, labels="two")


def test_preprocessing_is_for_pixels(tmp_path: Path) -> None:
    path = saved(tmp_path, x=PIXELS.astype(np.float32))
    said = refusal(path, preprocessing=AS_THEY_ARE)
    assert "d.npz holds arrays, and preprocessing applies to images" in said and "--arrays raw-pixels" in said
    assert "needs --mean and --std" in refusal(path, raw_pixel_arrays=True, layout="nchw")
    assert "needs to know how the pixels lie -> --layout nhwc" in refusal(
        path, raw_pixel_arrays=True, preprocessing=AS_THEY_ARE
    )


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_raw_pixels_by_formula(tmp_path: Path, layout: str) -> None:
    pixels = PIXELS if layout == "nchw" else PIXELS.transpose(0, 2, 3, 1)
    path = saved(tmp_path, x=pixels)
    how = Preprocessing(mean=(10.0, 20.0, 30.0), std=(2.0, 4.0, 8.0))
    got = stacked(opened(path, preprocessing=how, raw_pixel_arrays=True, layout=layout))
    channels = np.float32([10, 20, 30]).reshape(1, 3, 1, 1), np.float32([2, 4, 8]).reshape(1, 3, 1, 1)
    np.testing.assert_allclose(got[:, 0], (PIXELS - channels[0]) / channels[1], rtol=1e-6)
    swapped = stacked(opened(path, preprocessing=Preprocessing(color="bgr"), raw_pixel_arrays=True, layout=layout))
    np.testing.assert_array_equal(swapped[:, 0], PIXELS[:, ::-1])


def test_raw_pixels_that_are_none(tmp_path: Path) -> None:
    how: dict[str, Any] = {"preprocessing": AS_THEY_ARE, "raw_pixel_arrays": True, "layout": "nchw"}
    for values, low, high in ((PIXELS / 255.0, "0", "1"), (PIXELS - 128.0, "-128", "127"), (PIXELS + 1.0, "1", "256")):
        said = refusal(saved(tmp_path, x=values), **how)
        assert "expects whole numbers from 0 to 255" in said and f"from {low}" in said and "leave it out" in said, high
    assert "expects pictures of rank 3" in refusal(saved(tmp_path, x=PIXELS.reshape(6, 60)), **how)
    wrong = refusal(saved(tmp_path, x=PIXELS), **{**how, "layout": "nhwc"})
    assert "has 5 channels as nhwc, and --color rgb has 3 -> give the other --layout" in wrong
    gray = refusal(saved(tmp_path, x=PIXELS), **{**how, "preprocessing": Preprocessing(color="gray")})
    assert "has 3 channels as nchw, and --color gray has 1" in gray
    size = refusal(saved(tmp_path, x=PIXELS), spec("x", (1, 3, 8, 10)), **how)
    assert "comes out of the preprocessing as 5x4 pixels, and input 'x' takes 10x8" in size and "--resize 8x10" in size


def test_an_integer_picture_input_is_not_fed_with_rounded_fractions(tmp_path: Path) -> None:
    camera = spec("x", (1, 3, 4, 5), "uint8")
    how: dict[str, Any] = {"raw_pixel_arrays": True, "layout": "nchw"}
    path = saved(tmp_path, x=PIXELS)
    np.testing.assert_array_equal(stacked(opened(path, camera, preprocessing=AS_THEY_ARE, **how))[:, 0], PIXELS)
    said = refusal(path, camera, preprocessing=Preprocessing(mean=(127.0,), std=(128.0,)), **how)
    assert "input 'x' takes uint8, and the preprocessing gives values from" in said and "--mean 0 --std 1" in said
