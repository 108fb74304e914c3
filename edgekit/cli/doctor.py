"""``edgekit doctor``"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from edgekit.cli import fleet, options, show

if TYPE_CHECKING:
    from edgekit.push.doctor import Finding


@click.command()
@click.option("--device", metavar="NAME[,NAME...]", help="Boards or groups.  [default: the workstation itself]")
@options.output_options
def doctor(device: str | None, as_json: bool, quiet: bool) -> int:
    """Look for what is wrong with this workstation, or with boards, and say how to put it right.

    The exit code is 1 when there is a problem that keeps edgekit from working; warnings are about measurements.

    \b
    edgekit doctor
    edgekit doctor --device pi4
    edgekit doctor --device all --json
    """
    from edgekit.push.doctor import PROBLEM, board_findings, workstation_findings
    from edgekit.push.facts import gather

    def healthy(found: list[Finding]) -> bool:
        return all(one.level != PROBLEM for one in found)

    def alone(found: list[Finding]) -> None:
        for one in found:
            show.line(f"{one.level:8} {one.what}: {one.said}")
            if one.fix:
                show.line(f"{'':8} -> {one.fix}")

    if device is None:
        from edgekit.intake import frontends

        found = workstation_findings(frontends=len(frontends.installed()))
        if as_json:
            show.document({"ok": True, "passed": healthy(found), "findings": found})
        else:
            alone(found)
        return 0 if healthy(found) else fleet.NOT_PASSED
    outcomes = fleet.each(device, lambda link: board_findings(gather(link)))
    if not as_json and len(outcomes) > 1:
        for outcome in outcomes:
            if outcome.result is not None:
                show.line(f"{outcome.device}:")
                alone(outcome.result)
    return fleet.finish(
        outcomes,
        as_json=as_json,
        columns=["problems", "warnings"],
        row=lambda found: [str(sum(one.level == level for one in found)) for level in (PROBLEM, "warning")],
        alone=alone,
        passed=healthy,
    )
