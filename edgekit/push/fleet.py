"""The same work on several boards at once: one that fails stops no other."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from edgekit.errors import EdgekitError, UsageError
from edgekit.link.base import Link
from edgekit.link.boards import LOCAL, all_boards, find_board, open_link
from edgekit.link.questions import Questions

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Outcome(Generic[T]):
    """What became of one board: a ``result``, or the ``error`` that stopped it."""

    device: str
    result: T | None
    error: EdgekitError | None


def device_names(words: str) -> list[str]:
    """The boards that ``--device`` means: names and groups, with commas between; each board once.

    A group is what boards were given with ``edgekit device set NAME --group GROUP``; ``all`` is every board that was added. Raises
    :class:`UsageError` (``board_unknown``) for what is neither.
    """
    groups: dict[str, list[str]] = {"all": []}
    boards = all_boards()
    for board in boards:
        groups["all"].append(board.name)
        for group in board.settings.get("groups", []):
            groups.setdefault(str(group), []).append(board.name)
    known = {LOCAL, *(board.name for board in boards)}
    names: list[str] = []
    for word in (part.strip() for part in words.split(",")):
        if word in known:
            names.append(word)
        elif groups.get(word):
            names += groups[word]
        elif word == "all":
            raise UsageError("no boards were added yet", code="board_unknown", hint="edgekit device add NAME user@host")
        else:
            find_board(word)
    return list(dict.fromkeys(names))


def on_each(names: list[str], work: Callable[[Link], T], *, questions: Questions | None = None) -> list[Outcome[T]]:
    """What ``work`` returned or raised for each board, in the order of ``names``. Each has a link and a thread of its own.

    Only faults that edgekit knows are kept as outcomes; the first other exception is raised when all have ended. Ctrl-C does not wait
    for the others: what they began on their boards is ended or repaired there.
    """
    outcomes: dict[str, Outcome[T]] = {}
    faults: list[BaseException] = []

    def one(name: str) -> None:
        try:
            with open_link(name, questions=questions) as link:
                outcomes[name] = Outcome(name, work(link), None)
        except EdgekitError as error:
            outcomes[name] = Outcome(name, None, error)
        except BaseException as error:
            faults.append(error)

    if len(names) == 1:
        one(names[0])
    else:
        threads = [threading.Thread(target=one, args=(name,), daemon=True) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if faults:
        raise faults[0]
    return [outcomes[name] for name in names]
