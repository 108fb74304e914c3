"""``edgekit cancel``"""

from __future__ import annotations

import click

from edgekit.cli import ask, options, show


@click.command()
@click.argument("job", default="last")
@click.option("--device", metavar="NAME", help="The board that it is on.  [default: where this machine started it]")
@options.output_options
def cancel(job: str, device: str | None, as_json: bool, quiet: bool) -> int:
    """Ask a JOB on a board to end early. What it measured stays there: edgekit collect JOB.

    \b
    edgekit cancel last
    edgekit cancel 20261201T101500Z-fashion-pi4
    """
    from edgekit.bench import jobs
    from edgekit.bench.listing import device_of, job_on_board
    from edgekit.link.boards import open_link

    name = device_of(job, device)
    with open_link(name, questions=ask.questions()) as link:
        from edgekit.bench.known import find_job

        found = job_on_board(link, job if device else find_job(job).id)
        jobs.cancel(link, found)
    if as_json:
        show.document({"ok": True, "job": found.id, "device": name})
    else:
        show.line(f"{found.id} on {name} is ending; bring it home with: edgekit collect {found.id}")
    return 0
