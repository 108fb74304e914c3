"""A connection to a board: socket, jumps, handshake, host key, log-in. Every step has its deadline and its own words for failing."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.errors import LinkError
from edgekit.link.boards import Board, parse_address
from edgekit.link.hostkeys import check_host_key, label_of, read_known_hosts, types_of
from edgekit.link.login import Secrets, log_in
from edgekit.link.questions import Questions
from edgekit.link.sshconfig import Target, resolve
from edgekit.link.watchdog import PING_EVERY_S, CountedStream, Watchdog, harden, tcp_evidence

if TYPE_CHECKING:
    import paramiko

STEP_TIMEOUT_S = 9.0
"""For each step of connecting: whatever freezes on the way is noticed within 10 s."""

MAX_SESSIONS = 4
"""On one connection; sshd refuses the eleventh."""

MAX_JUMPS = 5

_SETTLES_WITHIN_S = 0.5

_ALGORITHMS = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}
"""Signatures that a host key of a type makes, where they have other names than the type."""

logging.getLogger("paramiko").addHandler(logging.NullHandler())  # else Python prints its complaints: ours are raised


class Connection:
    """A logged-in connection and the watchdog over it. ``name`` is what errors call the board."""

    def __init__(
        self, name: str, target: Target, transport: paramiko.Transport, watchdog: Watchdog, via: Connection | None
    ) -> None:
        self.name = name
        self.target = target
        self.transport = transport
        self.watchdog = watchdog
        self._via = via
        self._sessions = threading.BoundedSemaphore(MAX_SESSIONS)

    @property
    def alive(self) -> bool:
        """Whether nothing is known to be wrong with it."""
        return bool(self.transport.is_active())

    def has_ended(self) -> bool:
        """Whether it is dead, asked after a channel closed without a word: paramiko closes channels a moment before it says so."""
        end = time.monotonic() + _SETTLES_WITHIN_S
        while self.alive and time.monotonic() < end:
            time.sleep(0.02)
        return not self.alive

    @contextlib.contextmanager
    def session(self) -> Iterator[paramiko.Channel]:
        """A channel for one command or subsystem, closed at the end."""
        if not self._sessions.acquire(timeout=STEP_TIMEOUT_S):
            raise LinkError(f"{self.name}: {MAX_SESSIONS} sessions are open already", code="too_many_sessions")
        try:
            channel = self._opened()
            try:
                yield channel
            finally:
                channel.close()
        finally:
            self._sessions.release()

    def _opened(self) -> paramiko.Channel:
        import paramiko

        try:
            return self.transport.open_session(timeout=STEP_TIMEOUT_S)
        except paramiko.ChannelException as error:
            raise LinkError(
                f"{self.target.address} gives no further session on this connection: {error.text}",
                code="session_refused",
                hint="MaxSessions in /etc/ssh/sshd_config there has to be 3 or more (it is 10 where nothing is said)",
            ) from error

    def lost(self, error: BaseException | None = None) -> LinkError:
        """What to raise when the link broke."""
        via = self._via.watchdog.reason if self._via is not None else ""
        reason = self.watchdog.reason or (f"the way through the jump host broke: {via}" if via else "")
        reason = reason or (str(error) if error is not None else "") or "the connection was closed by the other side"
        return LinkError(
            f"the link to {self.name} ({self.target.address}) broke: {reason}",
            code="link_lost",
            hint="is the board on, and in reach? what was done stays done; the same command goes on from there",
        )

    def close(self) -> None:
        """Ends it, and the jumps that it went through."""
        self.watchdog.stop()
        self.transport.close()
        if self._via is not None:
            self._via.close()


def connect(board: Board, questions: Questions, secrets: dict[str, Secrets]) -> Connection:
    """A logged-in connection to a board. ``secrets`` keeps what was typed for the life of the link, by address.

    Raises :class:`LinkError`: ``host_unknown``, ``connection_refused``, ``connect_timeout``, ``unreachable``, ``no_ssh_server``,
    ``sshd_too_old``, ``jump_refused``, those of :func:`edgekit.link.hostkeys.check_host_key` and :func:`edgekit.link.login.log_in`.
    """
    target = resolve(board.host, user=board.user, port=board.port, key=board.key)
    return _connect(board.name, target, questions, secrets, depth=0)


def _connect(name: str, target: Target, questions: Questions, secrets: dict[str, Secrets], *, depth: int) -> Connection:
    via = _jump(name, target, questions, secrets, depth=depth)
    try:
        stream, evidence = _stream(target, via)
        transport = _handshake(target, stream, questions)
        try:
            log_in(
                transport,
                target,
                questions,
                secrets.setdefault(target.address, Secrets()),
                step_timeout_s=STEP_TIMEOUT_S,
            )
        except BaseException:
            transport.close()
            raise
    except BaseException:
        if via is not None:
            via.close()
        raise
    every_s = min(target.alive_every_s or PING_EVERY_S, PING_EVERY_S)
    return Connection(name, target, transport, Watchdog(transport, evidence, ping_every_s=every_s), via)


def _jump(
    name: str, target: Target, questions: Questions, secrets: dict[str, Secrets], *, depth: int
) -> Connection | None:
    """The connection to the last jump host, reached through those before it; None when the way is straight."""
    if not target.jumps:
        return None
    if depth >= MAX_JUMPS:
        raise LinkError(f"more than {MAX_JUMPS} jump hosts on the way to {name}", code="jump_refused")
    *before, last = target.jumps
    user, host, port = parse_address(last.removeprefix("ssh://"))
    hop = resolve(host, user=user, port=port)
    if before:
        hop = dataclasses.replace(hop, jumps=tuple(before))
    return _connect(f"{name}'s jump host", hop, questions, secrets, depth=depth + 1)


Stream = socket.socket | CountedStream


def _stream(target: Target, via: Connection | None) -> tuple[Stream, Callable[[], Hashable]]:
    """The bytes' way to the server, and what shows that they move."""
    import paramiko

    if via is not None:
        try:
            channel = via.transport.open_channel(
                "direct-tcpip", (target.host, target.port), ("127.0.0.1", 0), timeout=STEP_TIMEOUT_S
            )
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise LinkError(
                f"{via.target.address} does not pass on to {target.host}:{target.port}: {error}",
                code="jump_refused",
                hint=f"from the jump host, does `nc -z {target.host} {target.port}` work? its sshd needs AllowTcpForwarding yes",
            ) from error
        counted = CountedStream(channel)
        return counted, counted.evidence
    if target.proxy_command:
        counted = _command_stream(target.proxy_command)
        return counted, counted.evidence
    sock = _socket(target)
    return sock, tcp_evidence(sock)


def _command_stream(command: str) -> CountedStream:
    """The two ends of a ``ProxyCommand``. paramiko's own never notices that the command has ended."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            ["sh", "-c", f"exec {command}"],
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def end() -> None:
        process.terminate()
        process.wait()

    return CountedStream(ours, end)


def _socket(target: Target) -> socket.socket:
    where = f"{target.host}:{target.port}"
    try:
        sock = socket.create_connection((target.host, target.port), timeout=STEP_TIMEOUT_S)
    except socket.gaierror as error:
        raise LinkError(
            f"there is no host called {target.host!r} ({error.strerror})",
            code="host_unknown",
            hint="try its address, like 192.168.1.20; a .local name needs mDNS (avahi) on both sides",
        ) from error
    except TimeoutError as error:
        raise LinkError(
            f"{where} did not answer within {STEP_TIMEOUT_S:g} s",
            code="connect_timeout",
            hint=f"is the board on, and in the same network? ping {target.host}",
        ) from error
    except ConnectionRefusedError as error:
        raise LinkError(
            f"{where} refuses connections: the board is on, but no sshd listens there",
            code="connection_refused",
            hint="on the board: sudo systemctl enable --now ssh; or is the port another one?",
        ) from error
    except OSError as error:
        raise LinkError(
            f"{where} cannot be reached: {error.strerror or error}", code="unreachable", hint=f"ping {target.host}"
        ) from error
    harden(sock)
    return sock


def _handshake(target: Target, stream: Stream, questions: Questions) -> paramiko.Transport:
    """Keys agreed on, and the server known to be the right one."""
    import paramiko

    label = target.alias or label_of(target.host, target.port)
    known = read_known_hosts([*target.known_hosts, *target.system_known_hosts])
    transport = paramiko.Transport(stream)
    try:
        transport.banner_timeout = transport.handshake_timeout = STEP_TIMEOUT_S
        _prefer(transport, types_of(known, label))
        _negotiate(transport, target)
        key = transport.get_remote_server_key()
        check_host_key(
            known,
            label=label,
            key_type=key.get_name(),
            key=key.asbytes(),
            append_to=(target.known_hosts or (Path.home() / ".ssh" / "known_hosts",))[0],
            hashed=target.hash_known_hosts,
            questions=_as_configured(questions, target),
        )
        return transport
    except BaseException:
        transport.close()
        raise


def _prefer(transport: paramiko.Transport, known_types: list[str]) -> None:
    """Asks the server for the host key that is known; ciphers with authentication built in come first, they are the fastest here."""
    names = [name for kind in known_types for name in _ALGORITHMS.get(kind, (kind,))]
    options = transport.get_security_options()
    options.key_types = _first(options.key_types, names)
    options.ciphers = _first(options.ciphers, ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com"))


def _first(all_names: Sequence[str], preferred: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*(name for name in preferred if name in all_names), *all_names]))


def _negotiate(transport: paramiko.Transport, target: Target) -> None:
    import paramiko

    done = threading.Event()
    transport.start_client(event=done)
    in_time = done.wait(STEP_TIMEOUT_S) or (bool(transport.remote_version) and done.wait(STEP_TIMEOUT_S))
    if in_time and transport.is_active():
        return
    error = transport.get_exception()
    where, server = f"{target.host}:{target.port}", str(transport.remote_version).strip()
    if isinstance(error, paramiko.ssh_exception.IncompatiblePeer):
        raise LinkError(
            f"the sshd of {where} ({server or 'unknown version'}) is too old: {error}",
            code="sshd_too_old",
            hint="upgrade the board's OpenSSH to 7.2 or later; if it has to stay, paramiko<4 still speaks with it",
            details={"server": server},
        ) from error
    if server.startswith("SSH-"):
        raise LinkError(
            f"{where} ({server}) did not finish the handshake{f': {error}' if error and str(error) else ''}",
            code="connect_timeout",
            hint="the link may be down, or the board overloaded; try again",
        ) from error
    if not in_time or transport.is_active():
        raise LinkError(
            f"{where} accepts the connection and says nothing for {STEP_TIMEOUT_S:g} s",
            code="connect_timeout",
            hint="the board may hang, or the port belongs to another program",
        )
    raise LinkError(
        f"{where} does not speak SSH, or hangs up at once: {error or 'no banner'}",
        code="no_ssh_server",
        hint="is the port right? an sshd with too many half-open connections hangs up too; try again in a moment",
    ) from error


def _as_configured(questions: Questions, target: Target) -> Questions:
    """``StrictHostKeyChecking`` of the ssh configuration in our words."""
    if target.strict:
        return dataclasses.replace(questions, confirm_host_key=None, accept_new=False)
    return dataclasses.replace(questions, accept_new=questions.accept_new or target.accept_new)
