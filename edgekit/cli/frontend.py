"""``edgekit frontend``: add, list, remove."""

from __future__ import annotations

from pathlib import Path

import click

from edgekit.cli import options, show


@click.group()
def frontend() -> None:
    """Converter environments: each lives in a virtual environment of its own, made with pip under the user's cache.

    \b
    edgekit frontend list
    edgekit frontend add onnx2tf
    edgekit frontend remove tensorflow
    """


@frontend.command("add")
@click.argument("name")
@click.option(
    "--python", type=options.PATH, help="The interpreter to make the environment with.  [default: the newest that fits]"
)
@click.option("--index-url", help="A further package index for pip, such as one with CPU builds of PyTorch.")
@options.output_options
def add(name: str, python: Path | None, index_url: str | None, as_json: bool, quiet: bool) -> int:
    """Install the front end NAME (onnx2tf, tensorflow, torch). Done at once where it is there already."""
    from edgekit.intake import frontends

    silent = quiet or as_json
    added = frontends.add(name, python=python, index_url=index_url, progress=lambda text: show.note(text, quiet=silent))
    if as_json:
        show.document({"ok": True, "name": added.name, "python": str(added.python)})
    else:
        show.line(f"{added.name} is ready: {added.folder or 'in edgekit’s own environment'}")
    return 0


@frontend.command("list")
@options.output_options
def list_(as_json: bool, quiet: bool) -> int:
    """The front ends, what each is for, and whether it is installed."""
    from edgekit.intake import frontends

    found = {front.name: front for front in frontends.installed()}
    listed = [
        {
            "name": kind.name,
            "purpose": kind.purpose,
            "size_mb": kind.size_mb,
            "installed": kind.name in found,
            "python": str(found[kind.name].python) if kind.name in found else None,
        }
        for kind in frontends.KINDS.values()
    ]
    if as_json:
        show.document({"ok": True, "frontends": listed})
        return 0
    rows = [[str(e["name"]), "yes" if e["installed"] else "no", str(e["size_mb"]), str(e["purpose"])] for e in listed]
    show.rows("", ["front end", "installed", "MB", "for"], rows, numbers=[2])
    return 0


@frontend.command("remove")
@click.argument("name")
@options.output_options
def remove(name: str, as_json: bool, quiet: bool) -> int:
    """Delete the environments of the front end NAME."""
    from edgekit.intake import frontends

    removed = frontends.remove(name)
    if as_json:
        show.document({"ok": True, "name": name, "removed": removed})
    else:
        show.line(f"{name} is removed" if removed else f"{name} was not installed")
    return 0
