"""``edgekit jobs``"""

from __future__ import annotations

from typing import Any

import click

from edgekit.cli import fleet, options, show


@click.command()
@click.option(
    "--device", metavar="NAME[,NAME...]", help="Ask these boards.  [default: those where this machine started jobs]"
)
@options.output_options
def jobs(device: str | None, as_json: bool, quiet: bool) -> int:
    """The benchmarks that are running on boards, or wait there to be collected.

    \b
    edgekit jobs
    edgekit jobs --device pi4
    """
    from edgekit.bench.known import known_jobs
    from edgekit.bench.listing import JobLine, list_jobs

    words = device or ",".join(dict.fromkeys(job.device for job in known_jobs()))
    if not words:
        if as_json:
            show.document({"ok": True, "passed": True, "devices": []})
        else:
            show.line("no job waits to be collected")
        return 0
    outcomes = fleet.each(words, list_jobs)
    if not as_json:
        lines: list[JobLine] = [line for one in outcomes for line in one.result or []]
        if lines:
            show.rows("", ["job", "device", "state", "measured"], [_row(line) for line in lines])
        elif all(one.error is None for one in outcomes):
            show.line("no job waits to be collected")
        failed: list[fleet.Outcome[Any]] = [one for one in outcomes if one.error is not None]
        for one in failed:
            show.note(f"{one.device}: {one.error.message if one.error else ''}")
        if len(outcomes) > 1:
            return max((one.error.exit_code for one in failed if one.error), default=0)
    return fleet.finish(
        outcomes, as_json=as_json, columns=["jobs"], row=lambda lines: [str(len(lines))], alone=lambda _: None
    )


def _row(line: Any) -> list[str]:
    return [line.id, line.device, line.state, f"{line.elapsed_s:.0f} of {line.duration_s:.0f} s"]
