"""Open sizes: what is fixed without asking, what is asked for, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from edgekit.errors import UsageError
from edgekit.intake.fixed_shapes import fix


def test_an_open_batch_becomes_one_and_is_remarked() -> None:
    fixed = fix({"image": (None, 8, 8, 3), "scale": (2,), "number": ()}, {})
    assert fixed.shapes == {"image": (1, 8, 8, 3), "scale": (2,), "number": ()}
    assert fixed.remarks == ("batch fixed to 1",)
    assert fix({"scale": (2,)}, {}).remarks == ()


def test_a_given_batch_counts_for_the_other_inputs() -> None:
    fixed = fix({"a": (None, 3), "b": (None, 4)}, {"a": (5, 3)})
    assert fixed.shapes == {"a": (5, 3), "b": (5, 4)}


def test_other_open_sizes_are_asked_for() -> None:
    with pytest.raises(UsageError) as caught:
        fix({"a b": (None, None, 3), "any": None, "fine": (1,)}, {})
    assert caught.value.code == "input_shape_open"
    assert caught.value.hint == (
        "fix it, for example: --input-shape 'a b=1x128x3' --input-shape any=1x3x224x224"
        " (sizes left open are examples there: put those of your data)"
    )
    assert fix({"any": None}, {"any": (2, 3)}).shapes == {"any": (2, 3)}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"imge": (1, 8)}, "no input 'imge'"),
        ({"image": (1, 8, 1)}, "2 axes, not 3"),
        ({"image": (1, 9)}, "axis 1 is 8, not 9"),
        ({"image": (0, 8)}, "above 0"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(given: Mapping[str, Sequence[int]], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        fix({"image": (None, 8)}, given)
    assert "image" in caught.value.hint
