"""How verbs that work on several boards show what became of each: one board as itself, several as one table, and the worst exit code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from edgekit.cli import ask, show
from edgekit.link.base import Link
from edgekit.push.fleet import Outcome, device_names, on_each
from edgekit.values import to_json

__all__ = ["NOT_PASSED", "Outcome", "device_option", "each", "finish"]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

NOT_PASSED = 1


def device_option(function: F) -> F:
    """``--device NAME[,NAME...]``."""
    return click.option(
        "--device", default="local", show_default=True, metavar="NAME[,NAME...]", help="Boards or groups of boards."
    )(function)


def each(words: str, work: Callable[[Link], T]) -> list[Outcome[T]]:
    """``work`` on each board that ``--device`` means, at once."""
    return on_each(device_names(words), work, questions=ask.questions())


def finish(
    outcomes: Sequence[Outcome[T]],
    *,
    as_json: bool,
    columns: Sequence[str],
    row: Callable[[T], Sequence[str]],
    alone: Callable[[T], None],
    passed: Callable[[T], bool] = lambda _: True,
) -> int:
    """Shows the outcomes and returns the exit code: that of the worst board.

    A single board that failed raises its error; ``alone`` shows a single one that did not, ``row`` is its line among several.
    """
    if len(outcomes) == 1 and outcomes[0].error is not None:
        raise outcomes[0].error
    codes = [_code(one, passed) for one in outcomes]
    if as_json:
        _document(outcomes, passed)
    elif len(outcomes) == 1:
        alone(_result(outcomes[0]))
    else:
        content = [[one.device, *_cells(one, row, len(columns))] for one in outcomes]
        show.rows("", ["device", *columns], content)
        for one in outcomes:
            if one.error is not None and one.error.hint:
                show.note(f"{one.device}: {one.error.hint}")
    return max(codes)


def _cells(one: Outcome[T], row: Callable[[T], Sequence[str]], width: int) -> Sequence[str]:
    if one.error is None:
        return row(_result(one))
    return ["failed", *[""] * (width - 2), one.error.message]


def _code(one: Outcome[T], passed: Callable[[T], bool]) -> int:
    if one.error is not None:
        return one.error.exit_code
    return 0 if passed(_result(one)) else NOT_PASSED


def _document(outcomes: Sequence[Outcome[T]], passed: Callable[[T], bool]) -> None:
    devices = [
        {"device": one.device, "ok": False, "error": one.error.as_dict()}
        if one.error is not None
        else {"device": one.device, "ok": True, "passed": passed(_result(one)), **_fields(one)}
        for one in outcomes
    ]
    errors = [one.error for one in outcomes if one.error is not None]
    if len(devices) == 1:
        show.document(devices[0])
        return
    worst = max(errors, key=lambda error: error.exit_code, default=None)
    said = {} if worst is None else {"error": worst.as_dict()}
    show.document(
        {"ok": worst is None, "passed": all(one.get("passed") for one in devices), "devices": devices, **said}
    )


def _fields(one: Outcome[Any]) -> dict[str, Any]:
    value = to_json(_result(one))
    return value if isinstance(value, dict) else {"result": value}


def _result(one: Outcome[T]) -> T:
    assert one.result is not None
    return one.result
