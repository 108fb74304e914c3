"""``edgekit verify``"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from edgekit.cli import options, show
from edgekit.cli.native import muffled


@click.command()
@click.argument("bundle", type=options.PATH)
@click.option(
    "--data", help="Also judge the model on these data: a folder of images, a .npz, a .npy, or module:function."
)
@click.option("--labels", help="Ground truth of the data, as for convert; judges accuracy too.")
@click.option("--metric", metavar="NAME", help="top1, top5, map, map50, miou, mae, rmse, or module:function.")
@click.option("--decode", metavar="MODULE:FUNCTION", help="Makes boxes of the outputs, for map.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=600.0,
    show_default=True,
    help="Seconds for a model to load and run.",
)
@options.output_options
def verify(as_json: bool, quiet: bool, bundle: Path, timeout: float, **given: Any) -> int:
    """Check everything again that BUNDLE says of itself, and with --data also agreement and accuracy.

    The size and sha256 of every file, the manifest's seal, the operators and ends of the model, the golden answers of both models, and the
    gates, which are judged anew. Exit code 0: all of it holds and the model had passed. 1: something differs, or a gate had failed.

    \b
    edgekit verify fashion.bundle
    edgekit verify fashion.bundle --data sample_models/test --labels sample_models/test/labels.csv --json
    """
    from edgekit.bundle import check, measure

    bar = show.Bar(quiet=quiet or as_json)
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
