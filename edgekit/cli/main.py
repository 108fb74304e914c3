"""The entry point: verbs are imported when they are called, and every error ends in one shape and one exit code."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click

import edgekit
from edgekit.cli import stopping
from edgekit.errors import EdgekitError, UsageError
from edgekit.resources import did_you_mean

VERBS = {
    "inspect": "What is in a model file: inputs, operators, MACs, float islands, delegate partitions.",
    "convert": "Turn a float model into a verified full-integer TFLite bundle.",
    "verify": "Check everything again that a bundle says of itself.",
    "push": "Put a bundle on boards as a release that is checked there before it is used.",
    "rollback": "Go back to the release before.",
    "sign": "Sign a bundle, for boards that take signed ones only.",
    "bench": "Run a model for as long as it takes to know its speed, and keep every sample.",
    "jobs": "The benchmarks on boards that are running or wait to be collected.",
    "collect": "Bring home a benchmark that was left on a board.",
    "cancel": "End a benchmark on a board early.",
    "compare": "Say whether one run or model is faster than another, or that it cannot be told.",
    "report": "Write one offline HTML page about one run or several.",
    "device": "Add, list, look at, prepare or remove the boards that are reached over SSH.",
    "frontend": "Add, list or remove converter environments.",
    "doctor": "Look for what is wrong with this workstation or a board, and say how to put it right.",
}
INTERRUPTED = 130


class LazyGroup(click.Group):
    """Knows its verbs by name and one line; their modules are imported only when one is run or asked for help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of use, not of the alphabet."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb, imported now."""
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"edgekit.cli.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with a guess at what a mistyped verb meant."""
        name = args[0]
        if name not in VERBS and not name.startswith("-"):
            guess = did_you_mean(name, VERBS)
            raise UsageError(
                f"there is no verb {name!r}", hint=guess or f"verbs: {', '.join(VERBS)}; see edgekit --help"
            )
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """As click does; an interruption keeps its words, and a reader that went away is no error (click ends with 1 for both)."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise _interruption(error) from error
        except BrokenPipeError:  # edgekit ... | head: nobody is left to tell
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """From the table above, so that help imports no verb."""
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(edgekit.__version__, prog_name="edgekit")
def cli() -> None:
    """Take a trained network to a Raspberry Pi or a Jetson, and be told the truth about it on the way.

    \b
    edgekit frontend add onnx2tf
    edgekit convert model.onnx --data photos/ --resize 256 --crop 224 --mean 127 --std 128 --out model.bundle
    edgekit bench model.bundle --device local --duration 30s --with-float
    edgekit report last
    """


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and end the process with the exit code of the contract."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    stopping.listen()
    sys.exit(run(arguments))


def run(arguments: list[str]) -> int:
    """The exit code for ``arguments``; whatever goes wrong is shown, as JSON where ``--json`` was given."""
    as_json = "--json" in arguments
    try:
        result = cli.main(args=arguments, prog_name="edgekit", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return UsageError.exit_code
    except click.ClickException as error:
        return _show(_from_click(error), as_json)
    except EdgekitError as error:
        return _show(error, as_json)
    except (KeyboardInterrupt, click.exceptions.Abort) as error:  # before a verb was at work
        return _show(_interruption(error), as_json)
    except BrokenPipeError:  # as above, when the last lines are flushed
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        return _show(_own_fault(error), as_json)


def _show(error: EdgekitError, as_json: bool) -> int:
    from edgekit.cli import show

    show.error(error, as_json=as_json)
    return error.exit_code


def _from_click(error: click.ClickException) -> UsageError:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "edgekit"
    return UsageError(error.format_message().rstrip("."), hint=f"see {command} --help")


def _interruption(error: BaseException) -> EdgekitError:
    fault = EdgekitError(str(error) or "interrupted; nothing half-written was left behind", code="interrupted")
    fault.exit_code = INTERRUPTED
    return fault


def _own_fault(error: Exception) -> EdgekitError:
    """One line, and the trace in a file that the user can send."""
    words = str(error).splitlines()[0][:200] if str(error) else ""
    trace = _save_trace(f"edgekit {edgekit.__version__} {' '.join(sys.argv[1:])}\n\n{traceback.format_exc()}")
    return EdgekitError(
        f"a fault of edgekit itself: {type(error).__name__}: {words}",
        hint=f"the trace is in {trace}: please report it"
        if trace
        else "please report it; the trace could not be saved",
        details={"trace": str(trace) if trace else traceback.format_exc()},
    )


def _save_trace(text: str) -> Path | None:
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "edgekit"
    name = f"trace-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}.txt"
    for folder in (state, Path(tempfile.gettempdir())):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        except OSError:  # a read-only home, or a full disk
            continue
        return folder / name
    return None
