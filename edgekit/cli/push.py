"""``edgekit push``"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgekit.cli import fleet, options, show

if TYPE_CHECKING:
    from edgekit.link.base import Link
    from edgekit.push.release import Pushed


@click.command()
@click.argument("bundle", type=options.PATH)
@fleet.device_option
@click.option("--app", help="Whose release it is.  [default: the bundle's name]")
@click.option("--restart", metavar="CMD", help="Run on the board after the switch; it has to end with 0.")
@click.option("--restart-timeout", default="30s", show_default=True, help="How long CMD may take.")
@click.option("--max-latency", metavar="TIME", help="Refuse a model that takes longer on the board, like 50ms.")
@click.option("--again", is_flag=True, help="Check and restart also when this release is current already.")
@options.output_options
def push(
    bundle: Path,
    device: str,
    app: str | None,
    restart: str | None,
    restart_timeout: str,
    max_latency: str | None,
    again: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Put BUNDLE on boards as a release that is checked before it is used.

    Only what a board does not have is sent. On the board every file's hash is checked and the golden pairs are run; then "current" is
    switched in one step and CMD restarts the app. Whatever fails, the earlier release stays or comes back. A running app keeps the
    file that it has open. Apps open ~/.edgekit/apps/APP/current.

    \b
    edgekit push fashion.bundle --device pi4
    edgekit push fashion.bundle --device pi4,pi5 --app shop --restart "systemctl --user restart shop"
    edgekit push fashion.bundle --device kitchen --max-latency 50ms --json
    """
    from edgekit.bench.plan import parse_duration
    from edgekit.push.contact import Agent
    from edgekit.push.release import push_bundle, required_of

    bar = show.Bar(quiet=quiet or as_json)
    tell = Progress(bar)
    timeout_s = parse_duration(restart_timeout)
    latency_ms = None if max_latency is None else parse_duration(max_latency) * 1000

    def work(link: Link) -> Pushed:
        return push_bundle(
            Agent(link),
            bundle,
            app=app,
            restart=restart,
            restart_timeout_s=timeout_s,
            max_latency_ms=latency_ms,
            require_signed=required_of(link.name),
            again=again,
            progress=tell.of(link.name),
        )

    bar.stage(f"push {bundle.name} to {device}", None)
    with bar.shown():
        outcomes = fleet.each(device, work)
    return fleet.finish(
        outcomes,
        as_json=as_json,
        columns=["state", "release", "sent", "ms", "said"],
        row=_row,
        alone=lambda done: _alone(done, quiet),
        passed=lambda done: done.passed,
    )


class Progress:
    """Bytes of several boards on one bar."""

    def __init__(self, bar: show.Bar) -> None:
        self._bar = bar
        self._done: dict[str, tuple[int, int]] = {}
        self._turn = threading.Lock()

    def of(self, name: str):  # type: ignore[no-untyped-def]
        """The callback for one board."""

        def told(done_bytes: int, total_bytes: int) -> None:
            with self._turn:
                self._done[name] = (done_bytes, total_bytes)
                done = sum(value[0] for value in self._done.values())
                total = sum(value[1] for value in self._done.values())
                self._bar.step(done, f"{done / 1e6:.1f} of {total / 1e6:.1f} MB")

        return told


def _row(done: Pushed) -> list[str]:
    latency = f"{done.health['latency_ms']:.2f}" if done.health else ""
    return [done.state, done.release or "none", f"{done.sent_bytes / 1e6:.1f} MB", latency, said(done)]


def said(done: Pushed) -> str:
    """Why it failed, or what is worth knowing."""
    return "; ".join([*done.reasons, *done.notes])


def _alone(done: Pushed, quiet: bool) -> None:
    for text in done.notes:
        show.note(text, quiet=quiet)
    if not done.passed:
        show.line(f"{done.app} on {done.device} stays at {done.release or 'no release'}: {'; '.join(done.reasons)}")
        for line in (done.restart or {}).get("log_tail", [])[-5:]:
            show.note(f"  | {line}")
        return
    if done.state == "unchanged":
        show.line(f"{done.app} on {done.device} is at {done.release} already; nothing was sent")
        return
    health = done.health or {}
    pairs = (
        f"{health['pairs']} golden pairs hold" if health.get("pairs") else "it runs (the bundle has no golden pairs)"
    )
    show.line(f"{done.app} on {done.device} is at {done.release}" + (f", before {done.before}" if done.before else ""))
    if health:
        show.line(
            f"{pairs}, {health['latency_ms']:g} ms an inference, {health['interpreter']['name']} {health['interpreter']['version']}"
        )
    if done.restart:
        show.line(f"restarted in {done.restart['seconds']:.1f} s")
    if done.sent_bytes:
        show.note(f"{done.sent_bytes / 1e6:.1f} MB sent", quiet=quiet)
