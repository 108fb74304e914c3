"""``edgekit device``: add, list, info, prepare, set, remove."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgekit.cli import ask, options, show
from edgekit.errors import UsageError

if TYPE_CHECKING:
    from edgekit.push.bootstrap import Prepared
    from edgekit.push.facts import Facts


@click.group()
def device() -> None:
    """The boards that edgekit knows. Each is reached over SSH, as ~/.ssh/config says; 'local' is this machine and needs no adding.

    \b
    edgekit device add pi4 pi@192.168.1.20
    edgekit device add nano jetson@nano.local --key ~/.ssh/board --accept-new
    edgekit device list
    edgekit device info pi4
    edgekit device prepare pi4
    edgekit device remove pi4 --purge
    """


@device.command("add")
@click.argument("name")
@click.argument("address", metavar="USER@HOST[:PORT]")
@click.option("--key", type=options.PATH, help="The private key to log in with, and no other.")
@click.option("--accept-new", is_flag=True, help="Trust the host key of a board that was never seen before.")
@click.option("--no-check", is_flag=True, help="Add it without connecting, for a board that is off.")
@options.output_options
def add(name: str, address: str, key: Path | None, accept_new: bool, no_check: bool, as_json: bool, quiet: bool) -> int:
    """Connect to a board once and remember it as NAME.

    A new host key is shown, and kept in known_hosts when you say that it is the board's; one that changed is refused. Password and
    passphrase are asked for, or taken from EDGEKIT_PASSWORD and EDGEKIT_PASSPHRASE; they are never stored.
    """
    from edgekit.link.boards import Board, add_board, check_name, parse_address
    from edgekit.link.introduce import introduce

    check_name(name)
    user, host, port = parse_address(address)
    if key is not None and not key.expanduser().is_file():
        raise UsageError(f"--key {key} does not exist", hint=f"make one: ssh-keygen -t ed25519 -f {key}")
    board = Board(name, host, user=user, port=port, key=None if key is None else str(key.expanduser().absolute()))
    if no_check:
        add_board(board)
        met = None
    else:
        show.note(f"connecting to {board.address} ...", quiet=quiet or as_json)
        met = introduce(board, questions=ask.questions(accept_new=accept_new))
    if as_json:
        show.document({"ok": True, "name": name, "address": board.address, "reached": met})
    elif met is None:
        show.line(f"{name} is added: {board.address} (not reached yet)")
    else:
        show.line(f"{name} is added: {met.address}, {met.server}, {met.key_type} {met.fingerprint}")
    return 0


@device.command("list")
@options.output_options
def list_(as_json: bool, quiet: bool) -> int:
    """The boards that were added."""
    from edgekit.link.boards import all_boards, boards_file

    boards = all_boards()
    if as_json:
        show.document({"ok": True, "file": str(boards_file()), "devices": boards})
    elif boards:
        show.rows("", ["device", "address", "key"], [[board.name, board.address, board.key or ""] for board in boards])
    else:
        show.line("no boards yet: edgekit device add NAME user@host")
    return 0


@device.command("info")
@click.argument("device", metavar="NAME[,NAME...]")
@options.output_options
def info(device: str, as_json: bool, quiet: bool) -> int:
    """What boards are: model, clocks, memory, system, Pythons, sensors. Works on a board that was not prepared."""
    from edgekit.cli import fleet
    from edgekit.push.facts import facts_table, gather

    def row(facts: Facts) -> list[str]:
        memory = f"{(facts.memory_bytes or 0) / 1e6:,.0f} MB"
        python = ".".join(map(str, facts.python.version)) if facts.python else "none"
        return [facts.model or facts.title, memory, f"{facts.distribution} {facts.machine}", python]

    return fleet.finish(
        fleet.each(device, gather),
        as_json=as_json,
        columns=["board", "memory", "system", "Python"],
        row=row,
        alone=lambda facts: show.rows("", [facts.name, ""], [list(pair) for pair in facts_table(facts)]),
    )


@device.command("prepare")
@click.argument("device", metavar="NAME[,NAME...]")
@click.option("--wheels", type=options.PATH, help="A folder with the wheels, for a workstation without a network.")
@options.output_options
def prepare(device: str, wheels: Path | None, as_json: bool, quiet: bool) -> int:
    """Put an interpreter and numpy on boards, and prove with an inference that they run.

    The wheels are fetched here, kept, and unpacked into a folder on the board, which needs no pip, no venv and no internet.
    """
    from edgekit.cli import fleet
    from edgekit.push import bootstrap
    from edgekit.push.contact import Agent

    silent = quiet or as_json

    def alone(done: Prepared) -> None:
        show.line(f"{done.device} is ready: Python {done.python_version}, {', '.join(done.packages)}")
        if done.note:
            show.line(done.note)

    outcomes = fleet.each(
        device,
        lambda link: bootstrap.prepare(
            Agent(link), wheels=wheels, say=lambda text: show.note(f"{link.name}: {text} ...", quiet=silent)
        ),
    )
    return fleet.finish(
        outcomes,
        as_json=as_json,
        columns=["Python", "packages", "note"],
        row=lambda done: [done.python_version, ", ".join(done.packages), done.note],
        alone=alone,
    )


@device.command("set")
@click.argument("name")
@click.option(
    "--require-signed", type=options.PATH, metavar="KEY", help="Take only bundles signed by this key's owner."
)
@click.option("--allow-unsigned", is_flag=True, help="Take every bundle again.")
@click.option("--group", "groups", multiple=True, help="A group that the board belongs to; may be given again.")
@click.option("--no-groups", is_flag=True, help="Take the board out of its groups.")
@options.output_options
def set_(
    name: str,
    require_signed: Path | None,
    allow_unsigned: bool,
    groups: tuple[str, ...],
    no_groups: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Keep something about the board NAME. The key goes to the board too, which then asks every workstation for it."""
    from edgekit.link.boards import open_link, set_board
    from edgekit.push.contact import Agent
    from edgekit.push.sign import public_key

    if require_signed is not None or allow_unsigned:
        key = "" if require_signed is None else public_key(require_signed)
        with open_link(name, questions=ask.questions()) as link:
            Agent(link).ask("require_signed", {"key": key})
        set_board(name, require_signed=key or None)
    if groups or no_groups:
        set_board(name, groups=list(groups) or None)
    settings = dict(set_board(name).settings)
    if as_json:
        show.document({"ok": True, "name": name, "settings": settings})
    else:
        show.line(f"{name}: {', '.join(f'{key} = {value}' for key, value in settings.items()) or 'nothing is set'}")
    return 0


@device.command("remove")
@click.argument("name")
@click.option("--purge", is_flag=True, help="Also remove everything that edgekit put on the board.")
@options.output_options
def remove(name: str, purge: bool, as_json: bool, quiet: bool) -> int:
    """Forget the board NAME. What lies on the board stays there, unless --purge."""
    from edgekit.link.boards import find_board, open_link, remove_board

    find_board(name)
    purged = False
    if purge:
        from edgekit.push import bootstrap
        from edgekit.push.contact import Agent

        with open_link(name, questions=ask.questions()) as link:
            purged = bootstrap.purge(Agent(link))
    removed = remove_board(name)
    if as_json:
        show.document({"ok": True, "name": name, "removed": removed, "purged": purged})
    else:
        show.line(f"{name} is forgotten" + (", and nothing of edgekit is left on it" if purge else ""))
    return 0
