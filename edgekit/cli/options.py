"""Options that several verbs share, and words from the command line turned into values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from edgekit.errors import UsageError
from edgekit.values import Preprocessing

F = TypeVar("F", bound=Callable[..., Any])

PATH = click.Path(path_type=Path)


def output_options(function: F) -> F:
    """``--json`` and ``--quiet``."""
    function = click.option("--quiet", "-q", is_flag=True, help="No progress, no remarks: results and errors only.")(
        function
    )
    return click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout, errors included.")(
        function
    )


def preprocessing_options(function: F) -> F:
    """How a pixel becomes a number, in the order in which it happens."""
    choices = (
        click.option("--std", metavar="S[,S,S]", help="... and divided by this, in units of the raw pixel (0..255)."),
        click.option(
            "--mean", metavar="M[,M,M]", help="Subtracted from each pixel, in units of the raw pixel (0..255)."
        ),
        click.option(
            "--color", type=click.Choice(["rgb", "bgr", "gray"]), help="Order of the channels.  [default: rgb]"
        ),
        click.option("--crop", metavar="N|HxW", help="Centre crop after resizing."),
        click.option(
            "--filter", "filter_", type=click.Choice(["bilinear", "bicubic", "nearest"]), help="[default: bilinear]"
        ),
        click.option(
            "--fit",
            type=click.Choice(["short-side", "stretch", "letterbox", "pad-right"]),
            help="How --resize is meant.  [default: short-side]",
        ),
        click.option("--resize", metavar="N|HxW", help="Resize pictures to this many pixels."),
    )
    for choice in choices:
        function = choice(function)
    return function


def preprocessing(
    *,
    resize: str | None,
    fit: str | None,
    filter_: str | None,
    crop: str | None,
    color: str | None,
    mean: str | None,
    std: str | None,
) -> Preprocessing | None:
    """The spec that these options give, or None where none was given. Raises UsageError for half a spec."""
    given = {"--resize": resize, "--fit": fit, "--filter": filter_, "--crop": crop, "--color": color}
    if mean is None and std is None and not any(given.values()):
        return None
    if mean is None or std is None:
        raise UsageError(
            f"{'--std' if std is None else '--mean'} is missing: the numbers that the model was trained on are not guessed",
            hint="x = (pixel - mean) / std, with pixels 0..255; for pixels as they are: --mean 0 --std 1",
            code="preprocessing_missing",
        )
    deviations = numbers("--std", std)
    if any(value <= 0 for value in deviations):
        raise UsageError(
            f"--std {std}: pixels are divided by it, so it must be above zero", hint="for pixels as they are: --std 1"
        )
    return Preprocessing(
        resize=None if resize is None else size("--resize", resize),
        fit=fit or "short-side",
        filter=filter_ or "bilinear",
        crop=None if crop is None else size("--crop", crop),
        color=color or "rgb",
        mean=numbers("--mean", mean),
        std=deviations,
    )


def size(option: str, word: str) -> tuple[int, int]:
    """``224`` or ``240x320`` (height x width) as (height, width)."""
    parts = word.lower().split("x")
    if len(parts) > 2 or not all(part.isdigit() and int(part) > 0 for part in parts):
        raise UsageError(
            f"{option} {word!r} is not a size in pixels",
            hint=f"like {option} 224, or {option} 240x320 (height x width)",
        )
    return int(parts[0]), int(parts[-1])


def numbers(option: str, word: str) -> tuple[float, ...]:
    """``127`` or ``123.7,116.3,103.5``."""
    try:
        values = tuple(float(part) for part in word.split(","))
    except ValueError:
        values = ()
    if len(values) not in (1, 3):
        raise UsageError(
            f"{option} {word!r} is not one number or three", hint=f"like {option} 127, or {option} 123.7,116.3,103.5"
        )
    return values


def input_shapes(words: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """``name=1x3x224x224`` as {name: shape}. The name may itself hold ``=``."""
    shapes = {}
    for word in words:
        name, _, shape = word.rpartition("=")
        sizes = shape.lower().split("x")
        if not name or not all(part.isdigit() for part in sizes):
            raise UsageError(f"--input-shape {word!r} is not name=SHAPE", hint="like --input-shape image=1x3x224x224")
        shapes[name] = tuple(int(part) for part in sizes)
    return shapes


def class_names(path: Path | None) -> tuple[str, ...]:
    """The lines of ``path``, in the order of the model's output."""
    if path is None:
        return ()
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--class-names {path}: {error}", hint="a text file with one name a line") from error
    names = tuple(line.strip() for line in lines)
    if not names or "" in names:
        raise UsageError(
            f"--class-names {path}: line {names.index('') + 1 if names else 1} is empty", hint="one name a line"
        )
    return names
