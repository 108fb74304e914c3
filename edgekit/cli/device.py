"""``edgekit device``: add, list, remove."""

from __future__ import annotations

from pathlib import Path

import click

from edgekit.cli import ask, options, show
from edgekit.errors import UsageError


@click.group()
def device() -> None:
    """The boards that edgekit knows. Each is reached over SSH, as ~/.ssh/config says; 'local' is this machine and needs no adding.

    \b
    edgekit device add pi4 pi@192.168.1.20
    edgekit device add nano jetson@nano.local:2222 --key ~/.ssh/board --accept-new
    edgekit device list
    edgekit device remove pi4
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


@device.command("remove")
@click.argument("name")
@options.output_options
def remove(name: str, as_json: bool, quiet: bool) -> int:
    """Forget the board NAME. What lies on the board stays there."""
    from edgekit.link.boards import find_board, remove_board

    find_board(name)
    removed = remove_board(name)
    if as_json:
        show.document({"ok": True, "name": name, "removed": removed})
    else:
        show.line(f"{name} is forgotten")
    return 0
