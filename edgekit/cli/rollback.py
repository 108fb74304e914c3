"""``edgekit rollback``"""

from __future__ import annotations

import click

from edgekit.cli import fleet, options, show


@click.command()
@fleet.device_option
@click.option("--app", help="Whose release.  [default: the only app on the board]")
@click.option("--to", metavar="ID", help="The release to go to.  [default: the one before]")
@options.output_options
def rollback(device: str, app: str | None, to: str | None, as_json: bool, quiet: bool) -> int:
    """Go back to the release that was current before, with the same checks as a push.

    \b
    edgekit rollback --device pi4
    edgekit rollback --device pi4,pi5 --app shop
    edgekit rollback --device pi4 --app shop --to 0007
    """
    from edgekit.cli.push import said
    from edgekit.push.contact import Agent
    from edgekit.push.release import Pushed, roll_back

    def alone(done: Pushed) -> None:
        for text in done.notes:
            show.note(text, quiet=quiet)
        if done.passed:
            show.line(f"{done.app} on {done.device} is back at {done.release}, before {done.before}")
        else:
            show.line(f"{done.app} on {done.device} stays at {done.release}: {'; '.join(done.reasons)}")

    outcomes = fleet.each(device, lambda link: roll_back(Agent(link), app=app, to=to))
    return fleet.finish(
        outcomes,
        as_json=as_json,
        columns=["state", "release", "said"],
        row=lambda done: [done.state, done.release or "none", said(done)],
        alone=alone,
        passed=lambda done: done.passed,
    )
