"""The two pages that people look at: one of runs, with figures, and one of a bundle, quick and small.

Each is a single file that needs no network, and says so to the browser with a content security policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.errors import UsageError
from edgekit.report.page import render
from edgekit.report.write import write_text

if TYPE_CHECKING:
    from edgekit.report.summary import RunSummary


def write_run_report(runs: Sequence[Path], out: Path) -> tuple[RunSummary, ...]:
    """Writes one page about ``runs`` (run folders) to ``out`` and returns their summaries, in the same order.

    Raises UsageError when a path is no run folder or none was given, OutputError when ``out`` cannot be written.
    """
    from edgekit.report.compare import side_by_side
    from edgekit.report.offline_plotly import plotly_js
    from edgekit.report.run_view import run_chapter
    from edgekit.report.stats import RunFolder, summarise

    if not runs:
        raise UsageError("no run to report on", hint="edgekit report RUN [RUN ...]")
    folders = [RunFolder.load(Path(path)) for path in runs]
    summaries = tuple(summarise(folder) for folder in folders)
    chapters = [
        run_chapter(folder, summary, number=number)
        for number, (folder, summary) in enumerate(zip(folders, summaries, strict=True), start=1)
    ]
    title = chapters[0].title if len(chapters) == 1 else f"{len(chapters)} runs"
    page = render(
        "run.html.j2",
        title=title,
        chapters=chapters,
        comparison=side_by_side(summaries) if len(summaries) > 1 else None,
        plotly_js=plotly_js(),
    )
    write_text(Path(out), page)
    return summaries


def write_bundle_report(report_json: Mapping[str, Any], out: Path) -> None:
    """Writes the page of a bundle's ``report.json`` to ``out``. Raises OutputError when it cannot be written."""
    from edgekit.report.bundle_view import bundle_chapter

    chapter = bundle_chapter(report_json)
    write_text(Path(out), render("bundle.html.j2", title=chapter.title, chapter=chapter))
