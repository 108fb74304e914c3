"""``edgekit bench``"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgekit.cli import fleet, options, show
from edgekit.errors import RunInvalidError

if TYPE_CHECKING:
    from edgekit.bench import BenchInterrupted, Status
    from edgekit.link.base import Link
    from edgekit.report.summary import RunSummary


@click.command()
@click.argument("source", metavar="BUNDLE_OR_TFLITE", type=options.PATH)
@fleet.device_option
@click.option("--duration", default="30s", show_default=True, help="Sustained time for each model, like 30s or 5m.")
@click.option("--with-float", is_flag=True, help="Also run the bundle's float model, in turns with int8.")
@click.option(
    "--threads", type=click.IntRange(min=0), default=0, help="Threads of the interpreter.  [default: all cores]"
)
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
    device: str,
    duration: str,
    with_float: bool,
    threads: int,
    backend: str | None,
    runs: Path,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> int:
    """Run a bundle or a .tflite file and keep every latency, with memory, temperature and clock beside it.

    Warm-up and the first inference are counted apart. A percentile is printed only when there are enough inferences for it. Ctrl-C
    ends the run on this machine and keeps what was measured. On a board the run goes on, also when the link breaks, and is brought home
    with edgekit collect.

    \b
    edgekit bench fashion.bundle --duration 10s --with-float
    edgekit bench fashion.bundle/model.tflite --duration 5s --threads 1
    edgekit bench fashion.bundle --duration 5s --json
    """
    from edgekit.bench import BenchInterrupted, run_benchmark
    from edgekit.bench.plan import parse_duration

    seconds = parse_duration(duration)
    bar = show.Bar(quiet=quiet or as_json)
    bar.stage(f"{source.name} on {device}", round(seconds) * (2 if with_float else 1))

    def work(link: Link) -> Path:
        return run_benchmark(
            source,
            device=link.name,
            link=link,
            duration_s=seconds,
            threads=threads,
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
        return show_run(outcomes[0].result, as_json)
    return _show_runs(outcomes, as_json)


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
    from edgekit.report.table import run_table

    if as_json:
        if summary.validity.valid:  # else the one document is the error
            show.document({"ok": True, "run": str(folder), "summary": summary, "table": run_table(summary)})
        return
    show.report_table(run_table(summary))
    show.line(f"run: {folder}   report: {folder / 'report.html'}")
