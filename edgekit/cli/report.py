"""``edgekit report``"""

from __future__ import annotations

from pathlib import Path

import click

from edgekit.cli import options, show


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option(
    "--runs", "folder", type=options.PATH, default=Path("runs"), show_default=True, help="Where runs are kept."
)
@click.option(
    "--out", type=options.PATH, help="The page to write.  [default: report.html in the run, or in the current folder]"
)
@click.option("--open", "open_", is_flag=True, help="Open the page in the browser, where there is one.")
@options.output_options
def report(runs: tuple[str, ...], folder: Path, out: Path | None, open_: bool, as_json: bool, quiet: bool) -> int:
    """Write one HTML page about one RUN, or about several side by side. A RUN is a folder, a run's id, or 'last'.

    The page needs no network. It is made from the raw samples, and can be made again.

    \b
    edgekit report last
    edgekit report last --out latency.html
    edgekit report last --json
    """
    from edgekit.bench.runs import find_run
    from edgekit.report.html import write_run_report

    found = [find_run(word, folder) for word in runs]
    target = out or (found[0] / "report.html" if len(found) == 1 else Path("report.html"))
    write_run_report(found, target)
    if as_json:
        show.document({"ok": True, "report": str(target), "runs": [str(path) for path in found]})
    else:
        show.line(str(target))
    if open_ and not _opened(target):
        show.note(f"no browser to open it here: open {target} yourself", quiet=quiet or as_json)
    return 0


def _opened(page: Path) -> bool:
    import os
    import webbrowser

    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False  # a text browser would take over the terminal
    return webbrowser.open(page.resolve().as_uri())
