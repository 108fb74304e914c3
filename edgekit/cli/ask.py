"""Who answers while a link is made: the person at the terminal, where there is one."""

from __future__ import annotations

import sys

import click

from edgekit.link.questions import NewHostKey, Questions


def questions(*, accept_new: bool = False) -> Questions:
    """Asks on the terminal; without one only the environment answers, and a new host key needs ``--accept-new``."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return Questions(accept_new=accept_new)
    return Questions(ask_secret=_secret, confirm_host_key=_confirm, accept_new=accept_new)


def _secret(prompt: str) -> str | None:
    answer: str = click.prompt(prompt.rstrip(": "), hide_input=True, default="", show_default=False, err=True)
    return answer or None


def _confirm(new: NewHostKey) -> bool:
    click.echo(f"The host key of {new.host} is not known yet:\n  {new.key_type} {new.fingerprint}", err=True)
    click.echo(
        "On the board, ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub (or _rsa_, _ecdsa_) prints it.", err=True
    )
    return click.confirm("Is this the board's key?", default=False, err=True)
