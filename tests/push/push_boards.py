"""Boards that are folders of this machine's."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from edgekit.link.local import LocalLink
from edgekit.push.contact import Agent


class FolderLink(LocalLink):
    """A board whose home is a folder of this machine's; ``python`` is what its ``python3`` is."""

    def __init__(self, home: Path, *, name: str = "board") -> None:
        self._home = home
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    def home(self) -> str:
        return str(self._home)


class TestedAgent(Agent):
    """Uses this Python on the board, which has an interpreter."""

    __test__ = False

    def __init__(self, link: Any) -> None:
        super().__init__(link)
        self._python = sys.executable
