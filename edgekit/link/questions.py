"""What only the person at the workstation can answer while a link is made: secrets, and whether a new host key is the board's."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable

PASSWORD_VARIABLE = "EDGEKIT_PASSWORD"
PASSPHRASE_VARIABLE = "EDGEKIT_PASSPHRASE"


@dataclasses.dataclass(frozen=True)
class NewHostKey:
    """A host key that no known_hosts file names yet. ``fingerprint`` is as ``ssh-keygen -l`` prints it."""

    host: str
    key_type: str
    fingerprint: str


@dataclasses.dataclass(frozen=True)
class Questions:
    """Who is asked. None of the answers is kept beyond the link; without ``ask_secret`` only the environment answers.

    ``ask_secret(prompt)`` gives a password or passphrase, None for "I have none". ``confirm_host_key(new)`` says whether that key is
    the board's; ``accept_new`` answers yes to it for keys of hosts that were never seen. A changed key is refused in any case.
    """

    ask_secret: Callable[[str], str | None] | None = None
    confirm_host_key: Callable[[NewHostKey], bool] | None = None
    accept_new: bool = False

    @property
    def asks(self) -> bool:
        """Whether there is somebody who may answer differently the next time."""
        return self.ask_secret is not None and os.environ.get(PASSWORD_VARIABLE) is None

    def password(self, prompt: str) -> str | None:
        """The password for the board: ``$EDGEKIT_PASSWORD``, else by asking."""
        return self._secret(PASSWORD_VARIABLE, prompt)

    def passphrase(self, prompt: str) -> str | None:
        """The passphrase of a key file: ``$EDGEKIT_PASSPHRASE``, else by asking."""
        return self._secret(PASSPHRASE_VARIABLE, prompt)

    def may_trust(self, new: NewHostKey) -> bool:
        """Whether a new host key is accepted."""
        return self.accept_new or (self.confirm_host_key is not None and self.confirm_host_key(new))

    def _secret(self, variable: str, prompt: str) -> str | None:
        given = os.environ.get(variable)
        if given is not None or self.ask_secret is None:
            return given
        return self.ask_secret(prompt)
