"""What a page is made of, and the jinja2 door that turns it into HTML with every text escaped."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.report.next_steps import Advice
from edgekit.report.table import Table

LONGEST_WORD = 24
"""Characters of a word that a column of a table makes room for; tensor names are longer and may break."""
TEMPLATES = Path(__file__).with_name("templates")


@dataclass(frozen=True)
class Grid:
    """A plain table of texts. ``numeric`` are the columns to align right; ``marks`` gives rows a colour: "", "bad" or
    "warn".

    Without ``headers`` it is a list of facts: what, and how much.
    """

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()
    marks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bar:
    """One horizontal bar: ``share`` of the width (0 to 1) in the first colour and ``second`` in the other, after each
    other.
    """

    label: str
    text: str
    share: float
    second: float = 0.0


@dataclass(frozen=True)
class Drawing:
    """A figure as the page needs it: an element id, a height in pixels, the caption, and JSON that is safe in a script
    element.
    """

    id: str
    height_px: int
    caption: str
    json: str


@dataclass(frozen=True)
class Section:
    """One heading and what stands under it, in this order: paragraphs, a log as it was, drawing, bars, grids."""

    id: str
    title: str
    paragraphs: tuple[str, ...] = ()
    log: str = ""
    drawing: Drawing | None = None
    bars: tuple[Bar, ...] = ()
    grids: tuple[Grid, ...] = ()


@dataclass(frozen=True)
class Banner:
    """The sentence on top: ``tone`` is "good", "warn" or "bad"."""

    tone: str
    title: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Chapter:
    """One run, or the bundle: its banner, the table, the sections, the advice."""

    id: str
    title: str
    subtitle: str
    banner: Banner
    table: Table
    sections: tuple[Section, ...]
    advice: tuple[Advice, ...]


def render(template: str, **context: Any) -> str:
    """The HTML of a template in the package. Everything in ``context`` is escaped; only plotly's own script is let
    through as it is.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests["long"] = is_long
    return environment.get_template(template).render(**context)


def is_long(text: str) -> bool:
    """Whether a word of ``text`` is too long to be kept whole in a column."""
    return any(len(word) > LONGEST_WORD for word in text.split())


def facts_grid(pairs: Iterable[tuple[str, str]]) -> Grid:
    """Two columns without headings: what, and how much."""
    return Grid((), tuple(pairs))
