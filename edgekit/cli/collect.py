"""``edgekit collect``"""

from __future__ import annotations

from pathlib import Path

import click

from edgekit.cli import ask, options, show
from edgekit.cli.bench import interrupted, show_run, tell


@click.command()
@click.argument("job", default="last")
@click.option("--device", metavar="NAME", help="The board that it is on.  [default: where this machine started it]")
@click.option("--runs", type=options.PATH, default=Path("runs"), show_default=True, help="Where runs are kept.")
@options.output_options
def collect(job: str, device: str | None, runs: Path, as_json: bool, quiet: bool) -> int:
    """Bring home the run of a JOB that was left on a board; while it is still measuring, wait for it.

    JOB is an id, the beginning of one, or "last". Ctrl-C leaves the job as it is.

    \b
    edgekit collect last
    edgekit collect 20261201T101500Z-fashion-pi4 --json
    """
    from edgekit.bench import BenchInterrupted
    from edgekit.bench.known import find_job, known_jobs
    from edgekit.bench.listing import device_of, job_on_board
    from edgekit.bench.run import bring_home
    from edgekit.link.boards import open_link

    name = device_of(job, device)
    bar = show.Bar(quiet=quiet or as_json)
    with open_link(name, questions=ask.questions()) as link:
        here = [one for one in known_jobs() if one.device == name and one.id.startswith(job)]
        found = here[0] if len(here) == 1 else find_job(job) if device is None else job_on_board(link, job)
        bar.stage(f"{found.id} on {name}", None)
        try:
            with bar.shown():
                folder = bring_home(link, found, runs_dir=runs, progress=lambda status: tell(bar, status))
        except BenchInterrupted as stop:
            raise interrupted(stop) from stop
    return show_run(folder, as_json)
