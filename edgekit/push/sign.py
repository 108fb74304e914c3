"""Bundles signed with ed25519: one signature over the manifest, which names the sha256 of every other file."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from edgekit.agent.signature import SIGNATURE_FILE, NoCryptography, check_signature
from edgekit.bundle.folder import staging
from edgekit.errors import UsageError
from edgekit.runtime.naming import MANIFEST_FILE, read_bundle
from edgekit.values import SCHEMA


def sign_bundle(bundle: Path, key: Path, *, passphrase: bytes | None = None) -> Path:
    """Writes ``manifest.sig`` beside the manifest and returns its path. ``key`` is an ed25519 private key in OpenSSH or PEM form.

    Raises :class:`UsageError` (``key_unusable``) for a key that is none, is of another kind or needs another passphrase, and
    :class:`ModelFileError` for a folder that is no bundle.
    """
    from edgekit.push.release import shipped_files

    read_bundle(bundle)
    shipped_files(bundle)  # what is signed must hold
    private = _private(key, passphrase)
    manifest = (bundle / MANIFEST_FILE).read_bytes()
    document = {
        "schema": SCHEMA,
        "algorithm": "ed25519",
        "public_key": base64.b64encode(private.public_key().public_bytes_raw()).decode(),
        "signature": base64.b64encode(private.sign(manifest)).decode(),
    }
    target = bundle / SIGNATURE_FILE
    try:
        with staging(target) as folder:
            written = folder / SIGNATURE_FILE
            written.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
            written.replace(target)
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror or error}", code="output_unwritable") from error
    return target


def public_key_of(signature: Path) -> str:
    """Whose signature is in a ``manifest.sig``."""
    return str(json.loads(signature.read_text(encoding="utf-8"))["public_key"])


def verify_bundle(bundle: Path, key: str) -> None:
    """Raises :class:`UsageError` (``signature_missing``, ``signature_invalid``) unless the public ``key`` signed this bundle."""
    try:
        check_signature(str(bundle), key)
    except NoCryptography as error:
        raise UsageError(
            f"signatures cannot be checked here: {error}",
            code="cryptography_missing",
            hint="pip install cryptography (paramiko brings it)",
        ) from error


def public_key(path: Path) -> str:
    """The public half of a key file, or of a public key file (``ssh-ed25519 AAAA...`` or PEM), as 32 bytes in base64."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key, load_ssh_public_key

    data = _read(path)
    for load in (load_ssh_public_key, load_pem_public_key):
        try:
            found = load(data)
        except Exception:  # not this form
            continue
        if isinstance(found, Ed25519PublicKey):
            return base64.b64encode(found.public_bytes_raw()).decode()
        raise _unusable(path, f"it is no ed25519 key but {type(found).__name__.removesuffix('PublicKey')}")
    return base64.b64encode(_private(path, None).public_key().public_bytes_raw()).decode()


def _private(path: Path, passphrase: bytes | None):  # type: ignore[no-untyped-def]
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_private_key

    data = _read(path)
    complaints = []
    for load in (load_ssh_private_key, load_pem_private_key):
        try:
            found = load(data, passphrase)
        except Exception as error:
            complaints.append(str(error) or type(error).__name__)
            continue
        if isinstance(found, Ed25519PrivateKey):
            return found
        raise _unusable(path, f"it is no ed25519 key but {type(found).__name__.removesuffix('PrivateKey')}")
    raise _unusable(path, complaints[0 if b"OPENSSH" in data else -1])


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error


def _unusable(path: Path, why: str) -> UsageError:
    return UsageError(
        f"{path} cannot be used as a key: {why}",
        code="key_unusable",
        hint="make one: ssh-keygen -t ed25519 -f edgekit-signing",
    )
