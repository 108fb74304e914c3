"""Outputs that are delivered in parts put together again, by the plan that the manifest holds.

One integer tensor has one scale. Where an output of the source holds numbers of very different sizes (boxes in pixels beside scores
from 0 to 1), its parts are therefore outputs of their own, and the user gets the one output of the source from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List, Mapping, Sequence

import numpy as np

from edgekit.errors import ModelFileError
from edgekit.values import Joined, Piece

if TYPE_CHECKING:
    from numpy.typing import NDArray


def join(joins: Sequence[Joined], delivered: Mapping[str, NDArray[Any]]) -> List[NDArray[Any]]:
    """The source's outputs in their order, each in the shape of its description; ``delivered`` holds the parts by name.

    Values are moved, and multiplied by one number where the plan says so. Raises :class:`ModelFileError` (code ``bundle_damaged``) for a plan that does not fit.
    """
    results = []
    for joined in joins:
        try:
            result = _carried_out(joined.plan, delivered)
        except (KeyError, IndexError, ValueError) as error:
            raise _damaged(joined, str(error)) from error
        if result.shape != joined.output.shape:
            raise _damaged(joined, f"the parts give the shape {list(result.shape)}")
        results.append(result)
    return results


def _carried_out(piece: Piece, delivered: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    if piece.op == "output":
        return delivered[piece.name]
    arrays = [_carried_out(part, delivered) for part in piece.of]
    if piece.op == "concat":
        return np.concatenate(arrays, axis=piece.numbers[0])
    if piece.op == "reshape":
        return arrays[0].reshape(piece.numbers)
    if piece.op == "transpose":
        return arrays[0].transpose(piece.numbers)
    if piece.op == "multiply":
        return arrays[0] * np.float32(piece.factor)
    raise ValueError(f"{piece.op!r} is no step of a plan")


def _damaged(joined: Joined, why: str) -> ModelFileError:
    return ModelFileError(
        f"output {joined.output.name!r} {list(joined.output.shape)} cannot be put together from its parts: {why}",
        hint="copy the bundle again, or convert the model again",
        code="bundle_damaged",
    )
