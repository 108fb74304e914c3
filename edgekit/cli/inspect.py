"""``edgekit inspect``"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgekit.cli import options, show

if TYPE_CHECKING:
    from edgekit.intake.arena import ArenaPeak
    from edgekit.intake.inspect import Inspection, TensorInfo
    from edgekit.intake.inspect_costs import KindCost
    from edgekit.intake.runtimes import Requirements

_LEVELS = {"refuse": "cannot be converted", "warn": "may go wrong", "note": "note"}


@click.command()
@click.argument("model", type=options.PATH)
@click.option(
    "--input-shape", "input_shape", multiple=True, metavar="NAME=SHAPE", help="Fix an open shape of an ONNX model."
)
@click.option("--no-run", is_flag=True, help="Read the file only; do not load it into the interpreter.")
@click.option("--html", type=options.PATH, metavar="FILE", help="Also write one offline page, every operator on it.")
@click.option(
    "--timeout", type=click.FloatRange(min=1), default=60.0, show_default=True, help="Seconds for the interpreter."
)
@options.output_options
def inspect(
    model: Path,
    input_shape: tuple[str, ...],
    no_run: bool,
    html: Path | None,
    timeout: float,
    as_json: bool,
    quiet: bool,
) -> int:
    """What is in MODEL (.onnx, .tflite, or a bundle): inputs, outputs, operators with their MACs and the bytes that they move, weights,
    float islands, who holds the memory at its peak, how many pieces the delegate of the real runtime cuts it into, which runtimes can
    run it, and what may stand in the way of a conversion.

    \b
    edgekit inspect sample_models/fashion_relu6.onnx
    edgekit inspect fashion.bundle
    edgekit inspect fashion.bundle/model.tflite --json
    edgekit inspect fashion.bundle --html fashion.html
    """
    from edgekit.intake.inspect import inspect_model

    shapes = options.input_shapes(input_shape)
    found = inspect_model(_file_of(model), input_shapes=shapes, run_interpreter=not no_run, timeout_s=timeout)
    if html is not None:
        from edgekit.report.inspect_view import write_inspection
        from edgekit.values import to_json

        write_inspection(to_json(found), html)
    if as_json:
        show.document({"ok": True, "inspection": found})
    else:
        _show(found)
        if html is not None:
            show.note(f"written: {html}", quiet=quiet)
    return 0


def _file_of(model: Path) -> Path:
    """The model file of a bundle, or the path itself."""
    if (model / "manifest.json").is_file():
        delivered = model / "model.tflite"
        return delivered if delivered.is_file() else model / "rejected.tflite"
    return model


def _show(found: Inspection) -> None:
    show.line(f"{found.path}: {found.format}, {found.size_bytes / 1e6:.2f} MB, sha256 {found.sha256[:16]}")
    for key, value in found.facts.items():
        show.line(f"  {key}: {value}")
    ends = [("input", tensor) for tensor in found.inputs] + [("output", tensor) for tensor in found.outputs]
    show.rows(
        "", ["", "name", "shape", "type", "scale, zero point"], [[kind, *_tensor_row(tensor)] for kind, tensor in ends]
    )
    operators = [[op.operator, op.dtype, str(op.count), "custom" if op.custom else ""] for op in found.operators]
    show.rows(f"{found.operators_total} operators", ["operator", "type", "count", ""], operators, numbers=[2])
    show.rows(
        "What they cost in one run",
        ["operator", "count", "MACs", "bytes moved", "MACs per byte"],
        [_cost_row(cost) for cost in found.costs_by_kind],
        numbers=[1, 2, 3, 4],
    )
    weights = ", ".join(f"{size:,} bytes {dtype}" for dtype, size in found.weights.bytes_by_dtype.items())
    show.line(f"parameters          {found.weights.parameters:,} ({weights})")
    show.line(f"MACs                {_macs(found)}")
    if found.arena is not None:
        _show_arena(found.arena)
    if found.full_integer is not None:
        show.line(f"full integer        {'yes' if found.full_integer else 'no'}")
    for island in found.float_islands:
        show.line(
            f"float island        {', '.join(island.names)} between {', '.join(island.inputs)} and {', '.join(island.outputs)}"
        )
    _show_interpreter(found)
    if found.runtimes is not None:
        _show_runtimes(found.runtimes)
    for note in found.notes:
        show.line(f"note                {note}")
    for finding in found.findings:
        show.line(f"{_LEVELS[finding.level.value]:<20}{finding.sentence}; {finding.advice}")


def _cost_row(cost: KindCost) -> list[str]:
    ratio = cost.macs_per_byte
    return [
        cost.operator,
        str(cost.count),
        "unknown" if cost.macs is None else f"{cost.macs:,}",
        "unknown" if cost.moved_bytes is None else f"{cost.moved_bytes:,}",
        "" if not ratio else f"{ratio:.1f}",
    ]


def _show_arena(arena: ArenaPeak) -> None:
    show.line(
        f"activation peak     {arena.peak_bytes:,} bytes alive at once while {arena.operator} {arena.index} writes {arena.tensor!r}; packed "
        f"as the interpreter does: {arena.planned_bytes:,} bytes"
    )
    for holder in arena.holders[:3]:
        show.line(f"  held by           {holder.size_bytes:,} bytes: {holder.tensor!r} of {holder.producer}")


def _show_runtimes(asked: Requirements) -> None:
    if asked.declared:
        show.line(f"runtime wanted      TensorFlow {asked.declared} or newer, says the file")
    able = [fit.name for fit in asked.runtimes if fit.runs]
    show.line(
        f"runtimes            {', '.join(able) or 'none of those known'} (operator versions, asked of each runtime)"
    )
    for fit in asked.runtimes:
        if not fit.runs:
            show.line(f"  too old           {fit.sentence}")


def _tensor_row(tensor: TensorInfo) -> list[str]:
    shape = "unknown" if tensor.shape is None else "x".join(str(size) for size in tensor.shape) or "scalar"
    quant = tensor.quant
    if quant is None:
        scale = ""
    elif quant.scale is None:
        scale = f"one for each of axis {quant.axis}"
    else:
        scale = f"{quant.scale:.6g}, {quant.zero_point}"
    return [tensor.name, shape, tensor.dtype, scale]


def _macs(found: Inspection) -> str:
    macs = found.macs
    if macs.total is not None:
        return f"{macs.total:,}"
    missing = "; ".join(f"{item.operator}: {item.reason}" for item in macs.uncounted[:3])
    return f"unknown: at least {macs.counted:,}, without {len(macs.uncounted)} operators ({missing})"


def _show_interpreter(found: Inspection) -> None:
    ran = found.interpreter
    if ran is None:
        return
    if not ran.ok:
        show.line(f"interpreter         {ran.failure}")
        return
    taken = ran.delegation
    if taken is None or not taken.partitions:
        show.line(f"delegate            none takes part in {ran.interpreter} {ran.version}")
        return
    show.line(
        f"delegate            {taken.name} in {ran.interpreter} {ran.version}: {taken.delegated_operators} of {taken.total_operators} "
        f"operators in {taken.partitions} partition{'s' if taken.partitions != 1 else ''}"
    )
