"""``edgekit compare``"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgekit.cli import options, show
from edgekit.errors import RunInvalidError, UsageError

if TYPE_CHECKING:
    from edgekit.report.comparing import Comparison

UNDECIDED_CODE = 1


@click.command()
@click.argument("sides", metavar="A [B]", nargs=-1, required=True)
@click.option(
    "--margin", type=click.FloatRange(0, 100), metavar="P", help="Percent that do not matter.  [default: 3, or 5]"
)
@click.option("--allow-undecided", is_flag=True, help="Exit with 0 when the runs cannot tell.")
@click.option("--runs", type=options.PATH, default=Path("runs"), show_default=True, help="Where runs are kept.")
@options.output_options
def compare(
    sides: tuple[str, ...], margin: float | None, allow_undecided: bool, runs: Path, as_json: bool, quiet: bool
) -> int:
    """Is B faster or slower than A, is there no difference, or can the runs not tell?

    A and B are runs: a folder, an id, 'last', or several with commas between them. A alone is a run of edgekit bench A B --interleave.
    With one run each, 5 % count as no difference, as runs differ from one time to the next. A run that supports no verdict is not
    compared: exit code 6.

    \b
    edgekit compare last --allow-undecided
    edgekit compare last last --allow-undecided
    """
    from edgekit.bench.runs import find_run
    from edgekit.report.comparing import compare_in_turns, compare_runs
    from edgekit.report.contrast import MARGIN

    found = [[find_run(word, runs) for word in side.split(",")] for side in sides]
    share = None if margin is None else margin / 100.0
    if len(found) == 1 and len(found[0]) == 1:
        return show_comparison(
            compare_in_turns(found[0][0], margin=MARGIN if share is None else share), as_json, allow_undecided
        )
    if len(found) != 2:
        raise UsageError(
            "two sides are compared", hint="edgekit compare A B, several runs of one side with commas: A1,A2 B1,B2"
        )
    return show_comparison(compare_runs(found[0], found[1], margin=share), as_json, allow_undecided)


def show_comparison(found: Comparison, as_json: bool, allow_undecided: bool) -> int:
    """Shows B against A; raises :class:`RunInvalidError` where a run supports no verdict."""
    contrast = found.contrast
    if found.invalid:
        raise RunInvalidError(
            f"no verdict: {'; '.join(found.invalid)}",
            hint="the runs are kept; measure again",
            details={"comparison": found},
        )
    decided = contrast.verdict != "undecided"
    if as_json:
        show.document({"ok": True, "passed": decided, "comparison": found})
    else:
        words = {"no difference": "no difference between", "undecided": "undecided between"}
        said = words.get(contrast.verdict)
        show.line(f"{said} {found.a} and {found.b}" if said else f"{found.b} is {contrast.verdict} than {found.a}")
        span = "" if contrast.low is None else f" ({contrast.low:.4g} to {contrast.high:.4g}, 95 %)"
        show.line(f"latency of the second by the first: {contrast.ratio:.4g}{span}; {found.how}")
        show.line(contrast.reason)
        for note in found.notes:
            show.line(f"note: they differ in {note}")
    return 0 if decided or allow_undecided else UNDECIDED_CODE
