"""Open sizes of inputs fixed: the batch to 1, everything else to what the user says or asked for in a form to paste."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgekit.errors import UsageError
from edgekit.resources import did_you_mean

OpenShape = Sequence[int | None] | None
"""Sizes with None for an open one; None where even the rank is open."""


@dataclass(frozen=True)
class Fixed:
    """Static shapes by input name, and remarks on what was decided without asking."""

    shapes: dict[str, tuple[int, ...]]
    remarks: tuple[str, ...] = ()


def fix(inputs: Mapping[str, OpenShape], given: Mapping[str, Sequence[int]]) -> Fixed:
    """Static shapes for ``inputs``, with ``given`` by name where the user said them.

    An open first axis is the batch: 1, or what the given shapes of other inputs say. Raises UsageError for unknown names, shapes that
    do not fit, and other open sizes (``input_shape_open``; the hint is what to type).
    """
    for name, shape in given.items():
        if name not in inputs:
            raise UsageError(
                f"the model has no input {name!r}",
                hint=did_you_mean(name, inputs) or f"its inputs: {', '.join(inputs)}",
                code="input_unknown",
                details={"inputs": list(inputs)},
            )
        _require_fits(name, inputs[name], shape)
    batches = {given[name][0] for name, shape in inputs.items() if name in given and shape and shape[0] is None}
    batch = batches.pop() if len(batches) == 1 else 1
    shapes = {
        name: tuple(given[name]) if name in given else _with_batch(shape, batch) for name, shape in inputs.items()
    }
    still_open = [name for name, shape in shapes.items() if shape is None or None in shape]
    if still_open:
        words = "; ".join(f"{name} is {in_words(inputs[name])}" for name in still_open)
        raise UsageError(
            f"the model leaves the shape of its input open: {words}",
            hint=examples({name: inputs[name] for name in still_open}),
            code="input_shape_open",
            details={"inputs": {name: None if (s := inputs[name]) is None else list(s) for name in still_open}},
        )
    decided = [name for name, shape in inputs.items() if name not in given and shape and shape[0] is None]
    remarks = (f"batch fixed to {batch}",) if decided else ()
    return Fixed({name: tuple(int(size or 0) for size in shape or ()) for name, shape in shapes.items()}, remarks)


def in_words(shape: OpenShape) -> str:
    """``?x28x28x1``"""
    return (
        "of open rank" if shape is None else "x".join("?" if size is None else str(size) for size in shape) or "scalar"
    )


def _with_batch(shape: OpenShape, batch: int) -> tuple[int | None, ...] | None:
    if shape is None:
        return None
    return tuple(batch if axis == 0 and size is None else size for axis, size in enumerate(shape))


def _require_fits(name: str, shape: OpenShape, given: Sequence[int]) -> None:
    typed = "x".join(map(str, given))
    why = ""
    if any(size < 1 for size in given):
        why = "each size is a whole number above 0"
    elif shape is not None and len(shape) != len(given):
        why = f"it has {len(shape)} axes, not {len(given)}"
    elif shape is not None:
        wrong = [axis for axis, (size, asked) in enumerate(zip(shape, given, strict=True)) if size not in (None, asked)]
        why = f"axis {wrong[0]} is {shape[wrong[0]]}, not {given[wrong[0]]}" if wrong else ""
    if why:
        raise UsageError(
            f"input {name}, {in_words(shape)} in the model, cannot be {typed}: {why}",
            hint=f"for example --input-shape {_quoted(f'{name}={example(shape)}')}",
            code="input_shape_invalid",
        )


def example(shape: Sequence[int | str | None] | None) -> str:
    """A shape to type and to paste: sizes that are known as they are, 1 for an open batch, elsewhere a usual size. A symbol counts as open.

    224 for height and width of a map with 1, 3 or 4 channels, 128 for anything else: steps, tokens, features.
    """
    if shape is None:
        return "1x3x224x224"
    picture = len(shape) == 4 and any(shape[axis] in (1, 3, 4) for axis in (1, 3))
    words = (
        size if isinstance(size, int) and size > 0 else 1 if axis == 0 else None for axis, size in enumerate(shape)
    )
    return "x".join(str(size or (224 if picture else 128)) for size in words)


def examples(options: Mapping[str, Sequence[int | str | None] | None]) -> str:
    """The hint for open inputs, by name: options to paste, and that their sizes are an example."""
    typed = " ".join(f"--input-shape {_quoted(f'{name}={example(shape)}')}" for name, shape in options.items())
    return f"fix it, for example: {typed} (sizes left open are examples there: put those of your data)"


def _quoted(option: str) -> str:
    """For the shell, where the name or a place to fill in needs it."""
    return option if all(c.isalnum() or c in "_-./=:" for c in option) else f"'{option}'"
