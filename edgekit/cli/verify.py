"""``edgekit verify``"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from edgekit.cli import options, show, stopping
from edgekit.cli.native import muffled


@click.command()
@click.argument("bundle", type=options.PATH)
@click.option(
    "--data", help="Also judge the model on these data: a folder of images, a .npz, a .npy, or module:function."
)
@click.option("--labels", help="Ground truth of the data, as for convert; judges accuracy too.")
@click.option("--metric", metavar="NAME", help="top1, top5, map, map50, miou, mae, rmse, or module:function.")
@click.option("--decode", metavar="MODULE:FUNCTION", help="Makes boxes of the outputs, for map.")
@click.option("--device", metavar="NAME[,NAME...]", help="Run the golden pairs on these boards, and nothing else.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=600.0,
    show_default=True,
    help="Seconds for a model to load and run.",
)
@options.output_options
def verify(as_json: bool, quiet: bool, bundle: Path, timeout: float, device: str | None, **given: Any) -> int:
    """Check everything again that BUNDLE says of itself, and with --data also agreement and accuracy.

    The size and sha256 of every file, the manifest's seal, the operators and ends of the model, the golden answers of both models, and the
    gates, which are judged anew. Exit code 0: all of it holds and the model had passed. 1: something differs, or a gate had failed. With --device the golden
    pairs are run on a board, whose kernels may round otherwise.

    \b
    edgekit verify fashion.bundle
    edgekit verify fashion.bundle --data sample_models/test --labels sample_models/test/labels.csv --json
    """
    if device is not None:
        return _on_boards(bundle, device, as_json)
    from edgekit.bundle import check, measure

    bar = show.Bar(quiet=quiet or as_json, sign=stopping.check)
    with muffled(), bar.shown():
        found = check.check(bundle, timeout_s=timeout, stage=lambda name: bar.stage(name, None))
        measured = None
        if given["data"] is not None:
            bar.stage("judge", None)
            measured = measure.measure(bundle, data=given.pop("data"), progress=bar.step, **given)
    passed = found.passed and (measured is None or measured.passed)
    if as_json:
        show.document({"ok": True, "passed": passed, **found.__dict__, "measured": measured})
        return 0 if passed else 1
    rows = [[item.name, "holds" if item.passed else "DIFFERS", item.message] for item in found.checks]
    if measured is not None:
        rows += [[item.name, item.verdict.value, item.message] for item in measured.gates]
    show.rows(f"{bundle}", ["check", "", "found"], rows)
    for note in found.notes:
        show.note(note, quiet=quiet)
    if not found.delivered:
        show.line("a gate had failed when this bundle was made: it holds rejected.tflite")
    show.line(f"{bundle}: {'all of it holds' if passed else 'not as it should be'}")
    return 0 if passed else 1


def _on_boards(bundle: Path, device: str, as_json: bool) -> int:
    from edgekit.cli import fleet
    from edgekit.push.contact import Agent
    from edgekit.push.verify import OnBoard, verify_on_board

    def row(done: OnBoard) -> list[str]:
        steps = [str(one["worst_steps"]) for one in done.outputs if "worst_steps" in one]
        agreed = [
            f"{one['agreement']['same']} of {one['agreement']['count']}" for one in done.outputs if one["agreement"]
        ]
        held = f"{done.pairs} pairs {'hold' if done.passed else 'DIFFER'}" if done.pairs else "no golden pairs: it runs"
        return [held, ", ".join(steps), ", ".join(agreed), done.interpreter, "; ".join(done.reasons)]

    columns = ["golden pairs", "steps apart", "same answer", "interpreter", "said"]
    return fleet.finish(
        fleet.each(device, lambda link: verify_on_board(Agent(link), bundle)),
        as_json=as_json,
        columns=columns,
        row=row,
        alone=lambda done: show.rows(f"{bundle} on {done.device}", columns, [row(done)]),
        passed=lambda done: done.passed,
    )
