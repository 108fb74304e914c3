"""A task's "no" that is meant for the user, as part of a normal answer: ``{"refused": {"kind", "message", "hint", "code", "details"}}``."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict

Task = Callable[[Dict[str, Any]], Dict[str, Any]]


class Refused(Exception):
    """The model or the request cannot be used. ``kind`` is "file", "unsupported" or "usage"."""

    def __init__(self, kind: str, message: str, hint: str = "", code: str = "", **details: Any) -> None:
        super().__init__(message)
        self.answer = {"kind": kind, "message": message, "hint": hint, "code": code, "details": details}


def answers(task: Task) -> Task:
    """``task`` with :class:`Refused` turned into its answer."""

    @functools.wraps(task)
    def answered(request: Dict[str, Any]) -> Dict[str, Any]:
        try:
            return task(request)
        except Refused as refused:
            return {"refused": refused.answer}

    return answered


def first_line(error: BaseException) -> str:
    """The first line of an exception's message that says something, for a sentence."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__
