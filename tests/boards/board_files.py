"""Recorded boards: texts of sensors in files beside this one, laid out as a tree of files and a folder of commands.

A text begins with ``# documented: SOURCE`` (written from a documented format) or ``# captured: SOURCE`` (read on a board). ``== PATH``
begins a file, ``$ COMMAND ARGUMENTS`` what a command prints for these arguments; a last line ``exit N`` there is its exit code.
Works on any Python from 3.8 on.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Dict, List, Mapping, Tuple

from edgekit.agent.readings import Roots

FOLDER = Path(__file__).parent
MARK = re.compile(r"^# (documented|captured): \S.*$")

Files = Dict[str, str]
Commands = Dict[str, Tuple[str, int]]


def board_names() -> List[str]:
    """All recorded boards."""
    return sorted(path.name for path in FOLDER.iterdir() if path.is_dir() and list(path.glob("*.txt")))


def texts_of(name: str) -> Dict[str, str]:
    """The raw texts of a board by their file's name."""
    return {path.name: path.read_text(encoding="utf-8") for path in sorted((FOLDER / name).glob("*.txt"))}


def recorded(name: str) -> Tuple[Files, Commands]:
    """The files and the commands of a board."""
    files: Files = {}
    commands: Commands = {}
    for text in texts_of(name).values():
        for part in re.split(r"^(?=== |\$ )", text, flags=re.MULTILINE)[1:]:
            head, _, body = part.partition("\n")
            if head.startswith("== "):
                files[head[3:]] = body
                continue
            code = re.search(r"^exit (\d+)\n\Z", body, re.MULTILINE)
            commands[head[2:]] = (body[: code.start()] if code else body, int(code.group(1)) if code else 0)
    return files, commands


class Board:
    """A tree of files and commands that stands for a board."""

    def __init__(self, folder: Path, files: Mapping[str, str], commands: Mapping[str, Tuple[str, int]]) -> None:
        self.folder = folder
        names = ("sys", "proc", "dev", "commands")
        self.roots = Roots(**{name: str(folder / name) for name in names})
        for name in names:
            (folder / name).mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            self.write(path, text)
        self._answers: Dict[str, Tuple[str, int]] = {}
        for command, (text, code) in commands.items():
            self.answer(command, text, code)

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def remove(self, name: str) -> None:
        (self.folder / name).unlink()

    def answer(self, command: str, text: str, code: int = 0) -> None:
        """From now on ``command`` prints ``text`` and ends with ``code``."""
        self._answers[command] = (text, code)
        name = command.split()[0]
        cases = "".join(
            f"{shlex.quote(asked[len(name) + 1 :])}) printf %s {shlex.quote(said)}; exit {number};;\n"
            for asked, (said, number) in self._answers.items()
            if asked.split()[0] == name
        )
        self.script(name, 'case "$*" in\n' + cases + "esac\necho unknown command; exit 1\n")

    def script(self, name: str, body: str) -> None:
        """A command written out; it replaces the old one at once."""
        path = self.folder / "commands" / name
        new = path.with_suffix(".new")
        new.write_text("#!/bin/sh\n" + body)
        new.chmod(0o755)
        new.replace(path)
