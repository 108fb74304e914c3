"""Private keys from files and from the agent, each with the words to speak of it. Nothing secret is kept."""

from __future__ import annotations

import base64
import binascii
import contextlib
import dataclasses
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.errors import LinkError
from edgekit.link.hostkeys import fingerprint

if TYPE_CHECKING:
    import paramiko

_OPENSSH_MAGIC = b"openssh-key-v1\0"
_AGENT_TIMEOUT_S = 60.0
"""An agent may ask its user to confirm."""


@dataclasses.dataclass(frozen=True)
class KeyFile:
    """A private key file. ``public`` is its public part, None where it cannot be known without the passphrase."""

    path: Path
    public: bytes | None
    encrypted: bool

    def load(self, passphrase: str | None) -> paramiko.PKey:
        """The key, of any type that paramiko has, with its certificate (``-cert.pub``) if there is one.

        Raises :class:`LinkError`: ``passphrase_wrong``, ``key_unsupported`` or ``key_invalid``.
        """
        import paramiko

        key = _as_paramiko(_loaded(self.path, passphrase, encrypted=self.encrypted), self.path)
        certificate = self.path.with_name(self.path.name + "-cert.pub")
        if certificate.is_file():
            try:
                key.load_certificate(str(certificate))
            except (paramiko.SSHException, ValueError) as error:
                raise LinkError(
                    f"{certificate} is no certificate for {self.path}: {error}", code="key_invalid"
                ) from error
        return key

    def __str__(self) -> str:
        return f"{self.path}{f' ({fingerprint(self.public)})' if self.public else ''}"


def read_key_file(path: Path) -> KeyFile | None:
    """What can be known of a key file without a passphrase; None when neither it nor its ``.pub`` exists."""
    public = _public_part(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        if path.exists():
            raise _invalid(f"the key {path} cannot be read: {error.strerror}", path) from error
        return None
    if path.suffix == ".pub":
        return None
    return KeyFile(path, public or _public_in_container(data), _is_encrypted(data))


def public_part(path: Path) -> bytes | None:
    """The public key that goes with a file, also where only the ``.pub`` lies here and the key is in the agent."""
    if public := _public_part(path):
        return public
    try:
        return _public_in_container(path.read_bytes())
    except OSError:
        return None


@contextlib.contextmanager
def agent_keys() -> Iterator[list[paramiko.AgentKey]]:
    """What the agent at ``$SSH_AUTH_SOCK`` holds, to be used within the block; nothing when there is none."""
    import paramiko

    try:
        agent = paramiko.Agent()
    except (paramiko.SSHException, OSError):
        yield []
        return
    with contextlib.closing(agent):
        connection = getattr(agent, "_conn", None)
        if connection is not None:
            connection.settimeout(_AGENT_TIMEOUT_S)
        yield list(agent.get_keys())


def _public_part(path: Path) -> bytes | None:
    file = path if path.suffix == ".pub" else path.with_name(path.name + ".pub")
    try:
        return base64.b64decode(file.read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return None


def _public_in_container(data: bytes) -> bytes | None:
    """The public key that an OpenSSH container carries in clear."""
    fields = _container_fields(data)
    return fields[3] if fields else None


def _container_fields(data: bytes) -> list[bytes] | None:
    """Cipher, kdf, kdf options and public key of an OpenSSH container; None for other formats."""
    lines = [line for line in data.splitlines() if line and not line.startswith(b"-----")]
    try:
        body = base64.b64decode(b"".join(lines))
    except (binascii.Error, ValueError):
        return None
    if not body.startswith(_OPENSSH_MAGIC):
        return None
    place, fields = len(_OPENSSH_MAGIC), []
    for number in range(4):
        place += 4 if number == 3 else 0  # the count of keys
        length = int.from_bytes(body[place : place + 4], "big")
        fields.append(body[place + 4 : place + 4 + length])
        place += 4 + length
    return fields


def _is_encrypted(data: bytes) -> bool:
    fields = _container_fields(data)
    if fields is not None:
        return fields[0] != b"none"
    return b"Proc-Type: 4,ENCRYPTED" in data or b"BEGIN ENCRYPTED PRIVATE KEY" in data


def _loaded(path: Path, passphrase: str | None, *, encrypted: bool) -> object:
    from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization

    data = path.read_bytes()
    secret = passphrase.encode() if passphrase is not None and encrypted else None
    load = (
        serialization.load_ssh_private_key
        if _container_fields(data) is not None
        else serialization.load_pem_private_key
    )
    try:
        return load(data, password=secret)
    except UnsupportedAlgorithm as error:
        raise _unsupported(path) from error
    except (ValueError, TypeError, InvalidTag) as error:
        if encrypted:
            raise LinkError(
                f"the passphrase does not open {path}",
                code="passphrase_wrong",
                hint=f"check it with: ssh-keygen -yf {path}",
            ) from error
        raise _invalid(f"{path} is no private key: {str(error).split('. See ')[0]}", path) from error


def _as_paramiko(loaded: object, path: Path) -> paramiko.PKey:
    import paramiko
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    kinds: list[tuple[type, type[paramiko.PKey]]] = [
        (rsa.RSAPrivateKey, paramiko.RSAKey),
        (ec.EllipticCurvePrivateKey, paramiko.ECDSAKey),
        (ed25519.Ed25519PrivateKey, paramiko.Ed25519Key),
    ]
    for kind, wrapper in kinds:
        if isinstance(loaded, kind):
            text = loaded.private_bytes(  # type: ignore[attr-defined]
                serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
            ).decode()
            return wrapper.from_private_key(io.StringIO(text))
    raise _unsupported(path)


def _invalid(message: str, path: Path) -> LinkError:
    return LinkError(message, code="key_invalid", hint=f"check it with: ssh-keygen -yf {path}")


def _unsupported(path: Path) -> LinkError:
    return LinkError(
        f"{path} is of a type that edgekit cannot use (DSA, or a key on a security token)",
        code="key_unsupported",
        hint="make one for the board: ssh-keygen -t ed25519 -f ~/.ssh/board && ssh-copy-id -i ~/.ssh/board user@host",
    )
