"""``edgekit bench``"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgekit.cli import fleet, options, show
from edgekit.errors import RunInvalidError, UsageError

if TYPE_CHECKING:
    from edgekit.bench import BenchInterrupted, Status
    from edgekit.bench.protocol import Protocol
    from edgekit.link.base import Link
    from edgekit.report.summary import RunSummary


@click.command()
@click.argument("source", metavar="BUNDLE_OR_TFLITE", type=options.PATH)
@click.argument("other", metavar="[OTHER]", type=options.PATH, required=False)
@fleet.device_option
@click.option("--interleave", is_flag=True, help="Run OTHER in turns with the first, and say which is faster.")
@click.option("--allow-undecided", is_flag=True, help="With --interleave: exit with 0 when the run cannot tell.")
@click.option("--duration", help="Sustained time for each model, like 30s or 5m.  [default: 30s]")
@click.option("--count", type=int, metavar="N", help="End after N inferences of each model instead.")
@click.option(
    "--until-steady", is_flag=True, help="End when speed and temperature no longer change, two minutes at least."
)
@click.option("--cap", help="How long --count and --until-steady may take.  [default: 30m]")
@click.option("--no-cooldown", is_flag=True, help="Start at once, whatever the temperature.")
@click.option("--rate", metavar="N/s", help="Let inputs arrive at this rate; latency counts from the arrival.")
@click.option(
    "--arrivals", type=click.Choice(["fixed", "poisson"]), default="fixed", show_default=True, help="With --rate."
)
@click.option(
    "--percentile", metavar="P", help="A percentile that this run is for, like p99: refused where it cannot be had."
)
@click.option(
    "--max-other-load",
    metavar="P%",
    help="Of one core; more by others makes the run invalid.  [default: 10% on boards, a warning on this machine]",
)
@click.option("--with-float", is_flag=True, help="Also run the bundle's float model, in turns with int8.")
@click.option("--threads", default="0", metavar="N[,N...]", help="Threads; several run in turns.  [default: all cores]")
@click.option("--backend", help="ai_edge_litert, tflite_runtime or tensorflow.  [default: the first that is installed]")
@click.option("--runs", type=options.PATH, default=Path("runs"), show_default=True, help="Where runs are kept.")
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="For the order of the turns, and for inputs without a golden pair.",
)
@options.output_options
def bench(
    source: Path,
    other: Path | None,
    device: str,
    interleave: bool,
    allow_undecided: bool,
    duration: str | None,
    count: int | None,
    until_steady: bool,
    cap: str | None,
    no_cooldown: bool,
    rate: str | None,
    arrivals: str,
    percentile: str | None,
    max_other_load: str | None,
    with_float: bool,
    threads: str,
    backend: str | None,
    runs: Path,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> int:
    """Run a bundle or a .tflite file and keep every latency, with memory, temperature and clock beside it.

    A board with a thermometer cools down first, half a minute at least. Warm-up and the first inference are counted apart. A percentile is printed only when there are enough inferences for it. Ctrl-C
    ends the run on this machine and keeps what was measured. On a board the run goes on, also when the link breaks, and is brought home
    with edgekit collect.

    \b
    edgekit bench fashion.bundle --duration 10s --with-float
    edgekit bench fashion.bundle/model.tflite --duration 5s --threads 1,2
    edgekit bench fashion.bundle --count 500 --rate 200/s --arrivals poisson
    edgekit bench fashion.bundle --duration 5s --json
    edgekit bench fashion.bundle fashion.bundle/float.tflite --interleave --duration 20s --allow-undecided
    """
    from edgekit.bench import BenchInterrupted, run_benchmark
    from edgekit.bench.protocol import parse_threads

    protocol, seconds = _protocol(
        duration,
        count,
        cap,
        rate,
        arrivals,
        percentile,
        max_other_load,
        until_steady=until_steady,
        no_cooldown=no_cooldown,
    )
    if interleave != (other is not None):
        raise UsageError("two models are measured in turns, and only so", hint="edgekit bench A B --interleave")
    first, *others = parse_threads(threads)
    bar = show.Bar(quiet=quiet or as_json)
    ends_by_itself = count is None and not until_steady
    turns = (2 if with_float else 1) + len(others) + interleave
    bar.stage(f"{source.name} on {device}", round(seconds) * turns if ends_by_itself else None)

    def work(link: Link) -> Path:
        return run_benchmark(
            source,
            device=link.name,
            link=link,
            duration_s=seconds,
            threads=first,
            more_threads=tuple(others),
            other=other,
            protocol=_with_limit(protocol, link.name),
            with_float=with_float,
            runs_dir=runs,
            progress=lambda status: tell(bar, status),
            seed=seed,
            backend=backend,
        )

    try:
        with bar.shown():
            outcomes = fleet.each(device, work)
    except BenchInterrupted as stop:
        raise interrupted(stop) from stop
    if len(outcomes) == 1 and outcomes[0].result is not None:
        if interleave:
            return _show_turns(outcomes[0].result, as_json, allow_undecided)
        return show_run(outcomes[0].result, as_json)
    return _show_runs(outcomes, as_json)


def _show_turns(folder: Path, as_json: bool, allow_undecided: bool) -> int:
    """The run, unless one JSON document is wanted, and then which of its two models is faster."""
    from edgekit.cli.compare import show_comparison
    from edgekit.report.comparing import compare_in_turns
    from edgekit.report.html import write_run_report

    if as_json:
        write_run_report([folder], folder / "report.html")
    else:
        show_run(folder, as_json)
    return show_comparison(compare_in_turns(folder), as_json, allow_undecided)


def _protocol(
    duration: str | None,
    count: int | None,
    cap: str | None,
    rate: str | None,
    arrivals: str,
    percentile: str | None,
    max_other_load: str | None,
    *,
    until_steady: bool,
    no_cooldown: bool,
) -> tuple[Protocol, float]:
    """How the run begins, is paced and ends, and the seconds of it: the duration, or the cap."""
    from edgekit.agent.cooldown import CooldownRule
    from edgekit.agent.steadiness import SteadyRule
    from edgekit.bench.plan import DEFAULT_DURATION_S, parse_duration
    from edgekit.bench.protocol import CAP_S, Protocol, parse_load, parse_percentile, parse_rate

    goals = {"--duration": duration is not None, "--count": count is not None, "--until-steady": until_steady}
    given = [name for name, used in goals.items() if used]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} exclude each other", hint="--cap says how long a run may take at most")
    open_end = count is not None or until_steady
    if cap is not None and not open_end:
        raise UsageError("--cap goes with --count or --until-steady", hint="--duration is how long a run takes")
    if arrivals != "fixed" and rate is None:
        raise UsageError("--arrivals goes with --rate", hint="for example --rate 15/s --arrivals poisson")
    words, otherwise = (cap, CAP_S) if open_end else (duration, DEFAULT_DURATION_S)
    protocol = Protocol(
        count=count,
        until_steady=SteadyRule() if until_steady else None,
        cooldown=None if no_cooldown else CooldownRule(),
        rate_per_s=None if rate is None else parse_rate(rate),
        arrivals=arrivals,
        percentile=None if percentile is None else parse_percentile(percentile),
        max_other_load=None if max_other_load is None else parse_load(max_other_load),
    )
    seconds = otherwise if words is None else parse_duration(words)
    protocol.check(seconds)
    return protocol, seconds


def _with_limit(protocol: Protocol, device: str) -> Protocol:
    """On a board, others are to leave the run alone; on this machine somebody is at work."""
    from edgekit.bench.protocol import MAX_OTHER_LOAD

    if device == "local" or protocol.max_other_load is not None:
        return protocol
    return dataclasses.replace(protocol, max_other_load=MAX_OTHER_LOAD)


def show_run(folder: Path, as_json: bool) -> int:
    """Writes the report of a run and shows it; raises :class:`RunInvalidError` for one that supports no verdict."""
    from edgekit.report.html import write_run_report

    summary = write_run_report([folder], folder / "report.html")[0]
    _show(summary, folder, as_json)
    if not summary.validity.valid:
        raise RunInvalidError(
            f"the run supports no verdict: {'; '.join(summary.validity.reasons)}",
            hint=f"it is kept in {folder}; measure again for longer, on a machine that does nothing else",
            details={"run": str(folder), "reasons": list(summary.validity.reasons)},
        )
    return 0


def interrupted(stop: BenchInterrupted) -> KeyboardInterrupt:
    """What to say after Ctrl-C: where the measurements are, or how to come back to the job."""
    if stop.job is not None:
        words = f"job {stop.job.id} goes on on {stop.job.device}: edgekit collect {stop.job.id}, or edgekit cancel {stop.job.id}"
    elif stop.run:
        words = f"what was measured is in {stop.run}: edgekit report {stop.run}"
    else:
        words = "nothing could be saved"
    return KeyboardInterrupt(f"interrupted; {words}")


def _show_runs(outcomes: list[fleet.Outcome[Path]], as_json: bool) -> int:
    """One line for each board; a run that supports no verdict counts as that board's error."""
    from edgekit.report.html import write_run_report

    def judged(one: fleet.Outcome[Path]) -> fleet.Outcome[RunSummary]:
        if one.result is None:
            return fleet.Outcome(one.device, None, one.error)
        summary = write_run_report([one.result], one.result / "report.html")[0]
        if summary.validity.valid:
            return fleet.Outcome(one.device, summary, None)
        reasons = "; ".join(summary.validity.reasons)
        return fleet.Outcome(
            one.device, None, RunInvalidError(f"no verdict: {reasons}", details={"run": str(one.result)})
        )

    def row(summary: RunSummary) -> list[str]:
        main = summary.main
        median = f"{main.median_ns / 1e6:.3f}" if main is not None and main.median_ns is not None else ""
        rate = f"{main.throughput_per_s:.1f}" if main is not None and main.throughput_per_s is not None else ""
        return [median, rate, str(main.count if main is not None else 0), summary.id]

    return fleet.finish(
        [judged(one) for one in outcomes],
        as_json=as_json,
        columns=["p50 ms", "per second", "inferences", "run"],
        row=row,
        alone=lambda summary: None,
    )


def tell(bar: show.Bar, status: Status) -> None:
    """One step of progress."""
    words = [status.stage] if status.stage else []
    words += [f"{status.inferences:,} inferences"] if status.inferences else []
    words += [f"{status.temperature_c:.0f} °C"] if status.temperature_c is not None else []
    words += [f"{status.cpu_mhz:.0f} MHz"] if status.cpu_mhz is not None else []
    bar.step(round(status.elapsed_s), ", ".join(words))


def _show(summary: RunSummary, folder: Path, as_json: bool) -> None:
    from edgekit.report.table import run_table, turns_table

    if as_json:
        if summary.validity.valid:  # else the one document is the error
            show.document({"ok": True, "run": str(folder), "summary": summary, "table": run_table(summary)})
        return
    show.report_table(run_table(summary))
    turns = turns_table(summary)
    if turns is not None:
        show.report_table(turns)
    show.line(f"run: {folder}   report: {folder / 'report.html'}")
