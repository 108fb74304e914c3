"""``edgekit convert``"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from edgekit.cli import options, show, stopping
from edgekit.cli.native import muffled


@click.command()
@click.argument("model", type=options.PATH)
@click.option(
    "--data",
    help="Calibrates: a folder of images, a .npz, a .npy, or module:function. Only --recipe float32 can do without.",
)
@click.option("--eval-data", help="Judges the result; without it the part of --data that does not calibrate.")
@click.option(
    "--labels",
    help="Ground truth of the data that judge: a CSV (file,label), 'folders', an array of the .npz, a folder of masks, or a COCO .json.",
)
@click.option(
    "--metric",
    metavar="NAME",
    help="top1, top5, map, map50, miou, mae, rmse, or module:function.  [default: what the labels are for]",
)
@click.option("--decode", metavar="MODULE:FUNCTION", help="Makes boxes of the outputs, for map.")
@click.option(
    "--class-names", type=options.PATH, help="One name a line, in the order of the output; goes into the bundle."
)
@click.option("--recipe", default="full-int8", show_default=True, help="A recipe by name, or a .toml file.")
@click.option("--out", type=options.PATH, required=True, help="The bundle folder to make.")
@click.option("--force", is_flag=True, help="Replace an earlier bundle at --out, as a whole and at the end.")
@click.option("--calibration", type=int, metavar="N", help="Calibrate on the first N samples, in name order.")
@click.option("--evaluation", type=int, metavar="N", help="Judge on N samples.  [default: all with labels, else 64]")
@click.option(
    "--input-shape", "input_shape", multiple=True, metavar="NAME=SHAPE", help="Fix an open shape: image=1x3x224x224."
)
@options.preprocessing_options
@click.option("--arrays", type=click.Choice(["raw-pixels"]), help="Arrays hold pixels 0..255: preprocess them too.")
@click.option("--layout", type=click.Choice(["nhwc", "nchw"]), help="How such arrays lie.")
@click.option("--frontend", help="Use this front end only.  [default: the installed ones, the best first]")
@click.option("--signature", metavar="NAME", help="The signature of a SavedModel that has several.")
@click.option(
    "--locked",
    type=options.PATH,
    metavar="MANIFEST",
    help="Repeat the conversion of a bundle or its manifest.json to the same bytes, or say what differs.",
)
@click.option("--keep-layout", is_flag=True, help="Deliver inputs and outputs in the source's order of axes.")
@click.option(
    "--keep-outputs",
    is_flag=True,
    help="Deliver every output whole, even where it mixes boxes and scores at one scale.",
)
@click.option("--allow-undecided", is_flag=True, help="A gate that cannot be decided with these data does not fail.")
@click.option("--dry-run", is_flag=True, help="Check model, data, recipe and place; convert nothing.")
@click.option("--seed", type=int, default=0, show_default=True, help="For the split of --data.")
@click.option(
    "--threads", type=click.IntRange(min=0), default=0, help="Threads of the interpreters.  [default: all cores]"
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=1800.0,
    show_default=True,
    help="Seconds for one conversion step.",
)
@options.output_options
def convert(as_json: bool, quiet: bool, dry_run: bool, **given: Any) -> int:
    """Turn the float MODEL (ONNX, Keras, SavedModel) into a full-integer TFLite bundle, and prove what the integers cost.

    The float conversion must equal the source, every operator is audited, and int8 is compared with float on data that did not
    calibrate. Exit code 1 says that edgekit worked and a gate did not pass; the model is then kept as rejected.tflite.

    \b
    edgekit convert sample_models/fashion_relu6.onnx --data sample_models/calibration --color gray --mean 127.5 --std 127.5 \\
        --eval-data sample_models/test --labels sample_models/test/labels.csv --out fashion.bundle
    edgekit convert sample_models/fashion_relu6.onnx --data sample_models/test.npz --labels label --calibration 200 \\
        --arrays raw-pixels --layout nchw --color gray --mean 127.5 --std 127.5 --out fashion.bundle --force
    edgekit convert sample_models/fashion_silu.onnx --data sample_models/calibration --color gray --mean 127.5 --std 127.5 \\
        --out silu.bundle --dry-run
    edgekit convert sample_models/fashion_silu.onnx --recipe float32 --keep-layout --out silu-float.bundle
    """
    from edgekit import flow

    request = _request(given)
    if dry_run:
        with muffled():
            plan = flow.plan(request)
        _show_plan(plan, request.out, as_json)
        return 0
    bar = show.Bar(quiet=quiet or as_json, sign=stopping.check)
    with muffled(), bar.shown():
        result = flow.convert(request, bar)
    if as_json:
        show.document(
            {
                "ok": True,
                "passed": result.passed,
                "bundle": str(result.bundle),
                "manifest": result.manifest,
                "stages": result.stages,
            }
        )
    else:
        _show_result(result.manifest, result.bundle, result.passed)
    return 0 if result.passed else 1


def _request(given: Mapping[str, Any]) -> Any:
    from edgekit import flow
    from edgekit.calibrate.sources import DataOptions
    from edgekit.quantize import recipe

    chosen = recipe.load(given["recipe"])
    words = {key: given[key] for key in ("resize", "fit", "filter_", "crop", "color", "mean", "std")}
    preprocessing = flow.preprocessing_of(chosen, options.preprocessing(**words))
    request = flow.ConvertRequest(
        model=given["model"],
        data=given["data"],
        out=given["out"],
        recipe=chosen,
        eval_data=given["eval_data"],
        options=DataOptions(
            preprocessing=preprocessing,
            raw_pixel_arrays=given["arrays"] == "raw-pixels",
            layout=given["layout"] or "",
            metric=given["metric"],
            class_names=options.class_names(given["class_names"]),
        ),
        eval_labels=given["labels"],
        decode=given["decode"],
        input_shapes=options.input_shapes(given["input_shape"]),
        calibration_limit=given["calibration"],
        evaluation_limit=given["evaluation"],
        frontend=given["frontend"],
        signature=given["signature"],
        seed=given["seed"],
        threads=given["threads"],
        timeout_s=given["timeout"],
        force=given["force"],
        allow_undecided=given["allow_undecided"],
        keep_layout=given["keep_layout"],
        keep_outputs=given["keep_outputs"],
    )
    if given["locked"] is None:
        return request
    from edgekit.bundle import check, lock

    return lock.replayed(request, check.load_manifest(given["locked"]))


def _show_plan(plan: Any, out: Path, as_json: bool) -> None:
    if as_json:
        show.document({"ok": True, "dry_run": True, "plan": plan})
        return
    shapes = ", ".join(f"{spec.name} {list(spec.source_shape)} {spec.source_dtype}" for spec in plan.inputs)
    show.line(f"inputs       {shapes}")
    show.line(f"parity       {plan.parity_count} samples of {plan.calibration_source}")
    if plan.calibration_count:
        show.line(f"calibration  {plan.calibration_count} samples of {plan.calibration_source}")
    if plan.evaluation_count:
        labels = "with" if plan.labelled else "without"
        show.line(f"evaluation   {plan.evaluation_count} samples of {plan.evaluation_source}, {labels} labels")
    show.line(f"front ends   {', '.join(plan.frontends)}")
    show.line(f"recipe       {plan.recipe}")
    show.line(f"would write  {out}")


def _show_result(manifest: dict[str, Any], bundle: Path, passed: bool) -> None:
    from edgekit.report.table import bundle_table

    show.report_table(bundle_table(manifest))
    warned = [f for f in (manifest["health"] or {"findings": []})["findings"] if f["severity"] != "fine"]
    if warned:
        show.rows(
            "Calibration data",
            ["finding", "found", "what to do"],
            [[f["name"], f["message"], f["hint"]] for f in warned],
        )
    gates = manifest["verification"]["gates"]
    show.rows("Gates", ["gate", "verdict", "measured"], [[g["name"], g["verdict"], g["message"]] for g in gates])
    _show_islands(manifest["verification"]["islands"])
    if passed:
        beside = "" if manifest["verification"]["int8"] is None else " --with-float"
        show.line(f"{bundle}: passed. Open {bundle / 'report.html'}; next: edgekit bench {bundle}{beside}")
    else:
        failed = ", ".join(g["name"] for g in gates if g["verdict"] != "passed")
        show.line(
            f"{bundle}: not passed ({failed}); kept for study as {bundle / 'rejected.tflite'}, see {bundle / 'report.html'}"
        )


def _show_islands(islands: list[dict[str, Any]]) -> None:
    """What computes in float within an integer model, and what helps."""
    if islands:
        content = [
            [i["op"], i["tensor"], i["layer"] or "unknown", f"{i['reason']}. To mend it: {i['fix']}"] for i in islands
        ]
        show.rows("Float islands", ["operator", "tensor", "layer", "why, and what to do"], content)
