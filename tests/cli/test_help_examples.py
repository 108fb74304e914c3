"""The examples that the help shows, typed as they stand, in the order in which a user would."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from bundles import SAMPLES, require_frontend
from command_line import run

from edgekit.cli.main import VERBS, cli

ORDER = ("frontend", "inspect", "convert", "verify", "bench", "compare", "report")
ON_A_BOARD = ("device", "push", "rollback", "sign", "jobs", "attach", "collect", "cancel", "doctor")
"""Their examples name boards of a user who is not here: those are read here, and run against boards that are in the verbs' own tests."""
NEEDS_A_BUNDLE = re.compile(r"^edgekit inspect \S*\.bundle")
NOT_TYPED = {"edgekit frontend remove tensorflow": "it would take away what other tests need"}


def examples(*verb: str) -> list[str]:
    """The lines of ``edgekit VERB --help`` that begin with edgekit, continuation lines joined."""
    command: click.Command = cli
    context = click.Context(cli, info_name="edgekit")
    for name in verb:
        assert isinstance(command, click.Group)
        found = command.get_command(context, name)
        assert found is not None
        command, context = found, click.Context(found, info_name=name, parent=context)
    text = command.get_help(context).replace("\\\n", " ")
    return [re.sub(r" +", " ", line.strip()) for line in text.splitlines() if line.strip().startswith("edgekit ")]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_shows_two_or_more(verb: str) -> None:
    assert verb in ORDER + ON_A_BOARD, f"say where {verb} comes in the order of use"
    shown = examples(verb)
    assert len(shown) >= 2 and all(line.startswith(f"edgekit {verb}") or verb == "sign" for line in shown)


@pytest.mark.parametrize("line", examples() + [line for verb in VERBS if verb in ON_A_BOARD for line in examples(verb)])
def test_examples_that_need_somebody_else_s_things_parse(line: str) -> None:
    """They name files and boards of a user who is not here; verbs, options and their values are right."""
    _, *words = shlex.split(line)
    command: click.Command = cli
    context = click.Context(cli, info_name="edgekit")
    while isinstance(command, click.Group):
        name = words.pop(0)
        found = command.get_command(context, name)
        assert found is not None, line
        command, context = found, click.Context(found, info_name=name, parent=context)
    command.make_context(str(context.info_name), words, parent=context.parent)


@pytest.mark.timeout(900)  # a dozen conversions and benchmarks
def test_examples_run(tmp_path: Path) -> None:
    """In one folder, one after the other; those of ``inspect`` that need a bundle after the bundle is made."""
    require_frontend("onnx2tf")  # an example adds it
    (tmp_path / "sample_models").symlink_to(SAMPLES)
    lines = [line for verb in ORDER for line in examples(verb)]
    lines.sort(
        key=lambda line: ORDER.index("convert") + 0.5 if NEEDS_A_BUNDLE.match(line) else ORDER.index(line.split()[1])
    )
    for line in lines:
        if line in NOT_TYPED:
            continue
        # ten seconds of measurement say no more here than one
        said = run(*shlex.split(re.sub(r"--duration \d+s", "--duration 1s", line))[1:], cwd=tmp_path)
        assert said.exit_code == 0, f"{line}\n{said.out}\n{said.err}"
        assert said.out
