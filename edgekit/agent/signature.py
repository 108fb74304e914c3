"""Whether a manifest was signed by the key that this board requires. Standard library, and ``cryptography`` where the board has it.

A signature is ``manifest.sig``: ``{"schema": 1, "algorithm": "ed25519", "public_key": BASE64, "signature": BASE64}`` over the bytes of
``manifest.json``, which names the sha256 of every other file. Keys are the 32 raw bytes in base64.
"""

from __future__ import annotations

import base64
import binascii
import json
import os

from edgekit.errors import UsageError

SIGNATURE_FILE = "manifest.sig"
KEY_FILE = "require-signed"
"""In edgekit's folder on the board: the key, one line."""


class NoCryptography(Exception):
    """This Python has no library that checks ed25519."""


def required_key(home: str) -> str:
    """The public key that this board asks for; "" when it asks for none."""
    try:
        with open(os.path.join(home, KEY_FILE), encoding="ascii", errors="replace") as file:
            return file.read().strip()
    except FileNotFoundError:
        return ""


def check_signature(folder: str, key: str) -> None:
    """Raises UsageError (``signature_missing``, ``signature_invalid``) unless ``key`` signed the manifest in ``folder``.

    Raises :class:`NoCryptography` where that cannot be known.
    """
    path = os.path.join(folder, SIGNATURE_FILE)
    if not os.path.isfile(path):
        raise UsageError(
            "the board takes signed bundles only, and this one has no signature",
            code="signature_missing",
            hint="edgekit sign BUNDLE --key FILE",
        )
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        signer, signature = str(document["public_key"]), base64.b64decode(document["signature"], validate=True)
        public = base64.b64decode(key, validate=True)
    except (OSError, ValueError, KeyError, TypeError, binascii.Error) as error:
        raise _invalid(f"{SIGNATURE_FILE} cannot be read: {type(error).__name__}") from error
    if signer != key:
        raise _invalid(f"it was signed by the key {signer[:16]}..., and the board wants {key[:16]}...")
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except Exception as error:  # absent, or built for another Python or libc: its Rust half fails in many ways
        raise NoCryptography(str(error)) from error
    with open(os.path.join(folder, "manifest.json"), "rb") as file:
        manifest = file.read()
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, manifest)
    except (InvalidSignature, ValueError) as error:
        raise _invalid("the manifest was changed after it was signed") from error


def _invalid(why: str) -> UsageError:
    return UsageError(
        f"the bundle's signature does not hold: {why}",
        code="signature_invalid",
        hint="sign it anew with the right key: edgekit sign BUNDLE --key FILE",
    )
