"""The only printer: results to stdout, everything else to stderr, one JSON document with ``--json``."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from edgekit.errors import EdgekitError
from edgekit.values import SCHEMA, to_json

if TYPE_CHECKING:
    from edgekit.report.table import Table

PLAIN_INTERVAL_S = 10.0
"""How often progress is said in a line of its own where stderr is no terminal."""


def error(fault: EdgekitError, *, as_json: bool) -> None:
    """What failed, and what to type next."""
    if as_json:
        document({"ok": False, "error": fault.as_dict()})
        return
    click.echo(f"edgekit: {fault.message}", err=True)
    for line in _said_by_converter(fault):
        click.echo(f"  | {line}", err=True)
    if fault.hint:
        click.echo(f"  -> {fault.hint}", err=True)


def _said_by_converter(fault: EdgekitError) -> Sequence[str]:
    routes = fault.details.get("routes") or []
    if len(routes) > 1:
        return [str(line) for line in routes]
    return [str(line) for line in (fault.details.get("log_tail") or [])[-5:]]


def document(content: Mapping[str, Any]) -> None:
    """The one JSON document on stdout."""
    click.echo(json.dumps({"schema": SCHEMA, **to_json(content)}, ensure_ascii=False, default=str, allow_nan=False))


def line(text: str) -> None:
    """A line of result."""
    click.echo(text)


def note(text: str, *, quiet: bool = False) -> None:
    """A line beside the result."""
    if not quiet:
        click.echo(text, err=True)


def rows(title: str, columns: Sequence[str], content: Sequence[Sequence[str]], *, numbers: Sequence[int] = ()) -> None:
    """A table as wide as the terminal allows; columns at the positions ``numbers`` are right-aligned."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    table = RichTable(title=Text(title) if title else None, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for position, name in enumerate(columns):
        table.add_column(Text(name), justify="right" if position in numbers else "left", overflow="fold")
    for row in content:
        table.add_row(*(Text(cell) for cell in row))
    Console(width=None if sys.stdout.isatty() else 120, highlight=False).print(table)


def report_table(table: Table) -> None:
    """The report's own table of cells, each with its interval or the way to measure it."""
    measured = [row for row in table.rows if any(cell.state not in ("not measured", "empty") for cell in row.cells)]
    content = [[row.label, *(_cell(cell.text, cell.detail) for cell in row.cells)] for row in measured]
    rows(table.title, ["", *table.columns], content)
    missing = [row for row in table.rows if row not in measured]
    if missing:
        ways = dict.fromkeys(cell.detail for row in missing for cell in row.cells if cell.detail)
        line(f"Not measured: {', '.join(row.label for row in missing)} ({'; '.join(ways)})")
    for text in table.notes:
        line(text)


def _cell(text: str, detail: str) -> str:
    if not (text and detail):
        return text or detail
    return f"{text} {detail}" if detail.startswith("[") else f"{text} ({detail})"


class Bar:
    """Progress of stages on stderr: a bar on a terminal, a line every ten seconds elsewhere, nothing when quiet.

    ``sign`` is called at every sign of progress, and may end the work by an exception.
    """

    def __init__(self, *, quiet: bool, sign: Callable[[], None] = lambda: None) -> None:
        self._quiet, self._sign = quiet, sign
        self._terminal = sys.stderr.isatty() and not quiet
        self._bar: Any = None
        self._task: Any = None
        self._name = ""
        self._total: int | None = None
        self._said = time.monotonic()

    def stage(self, name: str, total: int | None) -> None:
        """A stage begins."""
        self._sign()
        self._name, self._total = name, total
        if self._bar is not None:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task = self._bar.add_task(name, total=total, count="")

    def step(self, done: int, text: str = "") -> None:
        """So many steps are done."""
        self._sign()
        if self._bar is not None and self._task is not None:
            count = f"{done}/{self._total}" if self._total else ""
            self._bar.update(self._task, completed=done, description=f"{self._name} {text}".rstrip(), count=count)
        elif not self._quiet and time.monotonic() - self._said >= PLAIN_INTERVAL_S:
            self._said = time.monotonic()
            of = f" {done} of {self._total}" if self._total else ""
            click.echo(f"{self._name}{of} {text}".rstrip(), err=True)

    @contextmanager
    def shown(self) -> Iterator[Bar]:
        """The bar is on the terminal while the block runs, and gone afterwards."""
        if not self._terminal:
            yield self
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[count]}"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            self._bar = bar
            yield self
            self._bar = self._task = None
