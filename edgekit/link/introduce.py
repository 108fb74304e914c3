"""Meeting a board for the first time: it is reached before it is added, so that a typing error shows at once."""

from __future__ import annotations

import dataclasses

from edgekit.link.boards import Board, add_board
from edgekit.link.hostkeys import fingerprint
from edgekit.link.questions import Questions
from edgekit.link.ssh import SshLink


@dataclasses.dataclass(frozen=True)
class Introduced:
    """A board that was reached: where it really is, after ``~/.ssh/config``, and what it showed."""

    board: Board
    address: str
    home: str
    server: str
    key_type: str
    fingerprint: str


def introduce(board: Board, *, questions: Questions) -> Introduced:
    """Connects to a board, runs a command there, and adds it to the list.

    Raises :class:`LinkError` when it cannot be reached or runs no commands; nothing is added then.
    """
    with SshLink(board, questions=questions) as link:
        connection = link.connect()
        link.run(["true"], timeout_s=30.0)
        home = link.home()
        key = connection.transport.get_remote_server_key()
        introduced = Introduced(
            board,
            connection.target.address,
            home,
            str(connection.transport.remote_version),
            key.get_name(),
            fingerprint(key.asbytes()),
        )
    add_board(board)
    return introduced
