"""Proving to a server who we are: keys from files and agent, then a password. Each way of failing has its own words."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

from edgekit.errors import LinkError
from edgekit.link.hostkeys import fingerprint
from edgekit.link.keys import KeyFile, agent_keys, public_part, read_key_file
from edgekit.link.questions import Questions
from edgekit.link.sshconfig import Target

if TYPE_CHECKING:
    import paramiko

PASSWORD_ATTEMPTS = 3


@dataclasses.dataclass
class Secrets:
    """What was typed, so that a reconnect need not ask again. It lives as long as the link and is never written anywhere."""

    password: str | None = None
    passphrases: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class _Offer:
    """A key to try: from the agent, or from a file that may need its passphrase first."""

    words: str
    agent: paramiko.AgentKey | None = None
    file: KeyFile | None = None


def log_in(
    transport: paramiko.Transport, target: Target, questions: Questions, secrets: Secrets, *, step_timeout_s: float
) -> None:
    """Returns when the server has accepted us.

    Raises :class:`LinkError`: ``auth_refused`` (no key or password was the right one), ``passphrase_wrong``, ``passphrase_missing``,
    ``key_invalid``, ``key_unsupported``, ``password_wrong``, ``too_many_keys`` (the server hung up after so many keys), ``connect_timeout``.
    """
    attempt = _Attempt(transport, target, questions, secrets, step_timeout_s)
    attempt.run()


class _Attempt:
    """One log-in: what the server allows, and what was tried."""

    def __init__(
        self,
        transport: paramiko.Transport,
        target: Target,
        questions: Questions,
        secrets: Secrets,
        step_timeout_s: float,
    ) -> None:
        self._transport = transport
        self._target = target
        self._questions = questions
        self._secrets = secrets
        self._step_timeout_s = step_timeout_s
        self._tried: list[str] = []
        self._locked: list[KeyFile] = []
        self._unusable: list[LinkError] = []
        self._further: list[str] = []
        transport.auth_timeout = step_timeout_s

    def run(self) -> None:
        allowed = self._allowed()
        if allowed is None:
            return
        if "publickey" in allowed and self._keys():
            return
        allowed = self._further or allowed
        if {"password", "keyboard-interactive"} & set(allowed) and self._password(allowed):
            return
        raise self._refused(allowed)

    def _allowed(self) -> list[str] | None:
        """The methods that the server allows; None when it lets us in without any."""
        import paramiko

        began = time.monotonic()
        try:
            self._transport.auth_none(self._target.user)
        except paramiko.BadAuthenticationType as error:
            return list(error.allowed_types)
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise self._cut(began) from error
        return None

    def _keys(self) -> bool:
        """Whether a key was accepted. What the user named comes first, what needs a passphrase last."""
        with agent_keys() as held:
            for offer in self._offers(held):
                if offer.agent is not None:
                    key: paramiko.PKey | None = offer.agent
                else:
                    assert offer.file is not None
                    key = self._opened(offer.file)
                if key is not None and self._accepts(key, offer.words):
                    return True
                if self._further:
                    return False
        return False

    def _offers(self, held: list[paramiko.AgentKey]) -> list[_Offer]:
        by_public = {key.asbytes(): key for key in held}
        named: list[_Offer] = []
        locked: list[_Offer] = []
        for path in self._target.keys:
            public = public_part(path)
            if public is not None and public in by_public:
                named.append(_Offer(f"{path} ({fingerprint(public)}, in the agent)", agent=by_public.pop(public)))
                continue
            try:
                file = read_key_file(path)
            except LinkError as error:
                self._unusable.append(error)
                continue
            if file is not None:
                (locked if file.encrypted else named).append(_Offer(str(file), file=file))
        others = [] if self._target.only_these_keys else list(by_public.values())
        agent = [_Offer(f"agent: {fingerprint(key.asbytes())} {key.comment}".rstrip(), agent=key) for key in others]
        return [*named, *agent, *locked]

    def _opened(self, file: KeyFile) -> paramiko.PKey | None:
        """The key in a file; None when it is of no use, or encrypted and nobody has the passphrase."""
        if not file.encrypted:
            try:
                return file.load(None)
            except LinkError as error:
                self._unusable.append(error)
                return None
        known = self._secrets.passphrases.get(str(file.path))
        passphrase = known if known is not None else self._questions.passphrase(f"Passphrase of {file.path}: ")
        if passphrase is None:
            self._locked.append(file)
            return None
        key = file.load(passphrase)
        self._secrets.passphrases[str(file.path)] = passphrase
        return key

    def _accepts(self, key: paramiko.PKey, words: str) -> bool:
        import paramiko

        began = time.monotonic()
        try:
            further = self._transport.auth_publickey(self._target.user, key)
        except paramiko.BadAuthenticationType:
            return False
        except (paramiko.SSHException, EOFError, OSError) as error:
            if not self._transport.is_active() or self._ran_out(began):
                raise self._cut(began) from error
            self._tried.append(words)
            return False
        self._tried.append(words)
        self._further = list(further)  # the key is right, and the server wants a password as well
        return not further

    def _password(self, allowed: list[str]) -> bool:
        asked = 0
        while asked < PASSWORD_ATTEMPTS:
            password = self._secrets.password or self._questions.password(f"Password of {self._target.address}: ")
            if password is None:
                return False
            asked += 1 if self._questions.asks else PASSWORD_ATTEMPTS
            if self._accepts_password(password, allowed):
                self._secrets.password = password
                return True
            self._secrets.password = None
        raise LinkError(
            f"{self._target.address} refuses the password",
            code="password_wrong",
            hint=f"try it with: ssh {self._target.ssh_words}; or use a key: ssh-copy-id {self._target.ssh_words}",
        )

    def _accepts_password(self, password: str, allowed: list[str]) -> bool:
        import paramiko

        began = time.monotonic()
        try:
            if "password" in allowed:
                return not self._transport.auth_password(self._target.user, password, fallback=False)
            answers = self._transport.auth_interactive(self._target.user, lambda *asked: [password] * len(asked[2]))
            return not answers
        except (paramiko.SSHException, EOFError, OSError) as error:
            if not self._transport.is_active() or self._ran_out(began):
                raise self._cut(began) from error
            return False

    def _ran_out(self, began: float) -> bool:
        return time.monotonic() - began >= self._step_timeout_s

    def _cut(self, began: float) -> LinkError:
        """The server hung up, or says nothing any more."""
        if self._ran_out(began):
            return LinkError(
                f"{self._target.address} did not answer within {self._step_timeout_s:g} s while logging in",
                code="connect_timeout",
                hint="the link may be down; try again",
            )
        if len(self._tried) < 2:
            return LinkError(
                f"{self._target.address} hung up while logging in",
                code="link_lost",
                hint="its log says why: journalctl -u ssh",
            )
        return LinkError(
            f"{self._target.address} hung up after {len(self._tried)} keys, before the right one had its turn",
            code="too_many_keys",
            hint="name the key: edgekit device add NAME user@host --key FILE, or IdentityFile with IdentitiesOnly yes in ~/.ssh/config",
            details={"tried": self._tried},
        )

    def _refused(self, allowed: list[str]) -> LinkError:
        address, words = self._target.address, self._target.ssh_words
        details = {"allowed": allowed, "tried": self._tried}
        if self._unusable and not self._tried:
            return self._unusable[0]
        if self._locked and not self._tried:
            path = self._locked[0].path
            return LinkError(
                f"the key {path} is encrypted and nobody gave its passphrase",
                code="passphrase_missing",
                hint=f"ssh-add {path}, or set EDGEKIT_PASSPHRASE",
                details=details,
            )
        if self._tried:
            return LinkError(
                f"{address} refuses every key: {'; '.join(self._tried)}",
                code="auth_refused",
                hint=f"ssh-copy-id {words} puts yours there; name another with --key; a password comes from EDGEKIT_PASSWORD",
                details=details,
            )
        return LinkError(
            f"there is no key and no password for {address}, which allows {', '.join(allowed)}",
            code="auth_refused",
            hint=f"ssh-keygen -t ed25519 && ssh-copy-id {words}; or set EDGEKIT_PASSWORD",
            details=details,
        )
