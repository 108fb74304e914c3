"""Which host keys are known. Reads what OpenSSH writes, passes over what it does not understand, and only ever appends.

A line is ``[@marker] names type key [comment]``. Names are patterns (``*``, ``?``, ``!`` for "not"), or a salted hash of one name.
``@revoked`` keys are refused. ``@cert-authority`` lines are passed over: keys are checked as they are, without certificates.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import enum
import fnmatch
import hashlib
import hmac
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from edgekit.errors import LinkError, OutputError
from edgekit.link.questions import NewHostKey, Questions

DEFAULT_PORT = 22


class Verdict(enum.Enum):
    """What the files say about a key."""

    KNOWN = "known"
    NEW = "new"
    CHANGED = "changed"
    REVOKED = "revoked"


@dataclasses.dataclass(frozen=True)
class KnownKey:
    """One line of a known_hosts file. ``marker`` is "" or ``@revoked``."""

    file: Path
    line: int
    marker: str
    names: str
    key_type: str
    key: bytes

    def is_for(self, label: str) -> bool:
        """Whether the line names this host, ``host`` or ``[host]:port``."""
        if self.names.startswith("|1|"):
            return _hash_matches(self.names, label)
        label, found = label.lower(), False
        for pattern in self.names.lower().split(","):
            wanted = pattern.removeprefix("!")
            if fnmatch.fnmatchcase(label, re.sub(r"([\[])", r"[\1]", wanted)):  # a bracket here is no character class
                if pattern.startswith("!"):
                    return False
                found = True
        return found


def label_of(host: str, port: int) -> str:
    """How known_hosts names a host at a port."""
    return host if port == DEFAULT_PORT else f"[{host}]:{port}"


def fingerprint(key: bytes) -> str:
    """``SHA256:...`` as ``ssh-keygen -l`` prints it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")


def read_known_hosts(files: Sequence[Path]) -> list[KnownKey]:
    """Every line that can be understood; files that do not exist or cannot be read hold none."""
    return [known for file in files for known in _lines(file)]


def judge(known: Sequence[KnownKey], label: str, key_type: str, key: bytes) -> tuple[Verdict, KnownKey | None]:
    """What is known about this key of this host, and the line that says so.

    A host of which only keys of other types are known counts as changed: OpenSSH asks a server for the types that it knows first, so
    one that shows another type no longer has them.
    """
    ours = [one for one in known if one.is_for(label)]
    for one in ours:
        if one.marker == "@revoked" and one.key == key:
            return Verdict.REVOKED, one
    plain = [one for one in ours if not one.marker]
    for one in plain:
        if one.key == key:
            return Verdict.KNOWN, one
    same_type = [one for one in plain if one.key_type == key_type]
    if plain:
        return Verdict.CHANGED, (same_type or plain)[0]
    return Verdict.NEW, None


def types_of(known: Sequence[KnownKey], label: str) -> list[str]:
    """The types of the keys that are known of a host, in the order of the file."""
    return list(dict.fromkeys(one.key_type for one in known if not one.marker and one.is_for(label)))


def check_host_key(
    known: Sequence[KnownKey],
    *,
    label: str,
    key_type: str,
    key: bytes,
    append_to: Path,
    hashed: bool,
    questions: Questions,
) -> None:
    """Returns when the key is the board's: because a file says so, or because it is new and was accepted; then it is appended.

    Raises :class:`LinkError` with code ``hostkey_changed``, ``hostkey_revoked`` or ``hostkey_unknown``.
    """
    verdict, line = judge(known, label, key_type, key)
    shown = fingerprint(key)
    if verdict is Verdict.KNOWN:
        return
    if line is not None:
        raise _refusal(verdict, line, label, key_type, shown)
    if not questions.may_trust(NewHostKey(label, key_type, shown)):
        raise LinkError(
            f"the host key of {label} is not known yet: {key_type} {shown}",
            code="hostkey_unknown",
            hint="compare it with `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the board; to accept it: "
            "edgekit device add NAME user@host --accept-new",
            details={"host": label, "key_type": key_type, "fingerprint": shown},
        )
    append_host_key(append_to, label, key_type, key, hashed=hashed)


def append_host_key(file: Path, label: str, key_type: str, key: bytes, *, hashed: bool) -> None:
    """Adds one line; what is in the file stays as it is."""
    names = _hashed(label) if hashed else label
    line = f"{names} {key_type} {base64.b64encode(key).decode()}\n"
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "r+b", buffering=0) as handle:
            size = os.fstat(descriptor).st_size
            open_ended = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            handle.write(("\n" if open_ended else "").encode() + line.encode())
    except OSError as error:
        raise OutputError(
            f"{file} cannot be written: {error.strerror or error}", hint="the accepted host key has to be kept there"
        ) from error


def _refusal(verdict: Verdict, line: KnownKey, label: str, key_type: str, shown: str) -> LinkError:
    where = f"{line.file}:{line.line}"
    details = {"host": label, "key_type": key_type, "fingerprint": shown, "known_in": where}
    if verdict is Verdict.REVOKED:
        return LinkError(
            f"{label} shows a host key that is revoked: {key_type} {shown} ({where})",
            code="hostkey_revoked",
            hint="do not connect; give the board a new key: sudo ssh-keygen -A, after removing the old ones",
            details=details,
        )
    return LinkError(
        f"the host key of {label} has changed: it shows {key_type} {shown}, "
        f"known is {line.key_type} {fingerprint(line.key)} ({where})",
        code="hostkey_changed",
        hint=f"a board that was set up anew has a new key, and so has somebody in between. If it is the board: "
        f"ssh-keygen -R '{label}' -f {line.file}",
        details={**details, "known_fingerprint": fingerprint(line.key)},
    )


def _lines(file: Path) -> Iterator[KnownKey]:
    try:
        text = file.read_bytes().decode("utf-8", "replace")
    except OSError:
        return
    for number, line in enumerate(text.split("\n"), 1):
        words = line.split()
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        if len(words) < 3 or words[0].startswith("#") or marker not in ("", "@revoked"):
            continue
        try:
            key = base64.b64decode(words[2], validate=True)
        except (binascii.Error, ValueError):
            continue
        yield KnownKey(file, number, marker, words[0], words[1], key)


def _hash_matches(names: str, label: str) -> bool:
    try:
        salt, digest = (base64.b64decode(part, validate=True) for part in names[3:].split("|"))
    except (binascii.Error, ValueError):
        return False
    return hmac.compare_digest(hmac.digest(salt, label.lower().encode(), "sha1"), digest)


def _hashed(label: str) -> str:
    salt = os.urandom(20)
    digest = hmac.digest(salt, label.lower().encode(), "sha1")
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"
