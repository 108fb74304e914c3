"""``edgekit sign``"""

from __future__ import annotations

import os
from pathlib import Path

import click

from edgekit.cli import options, show


@click.command()
@click.argument("bundle", type=options.PATH)
@click.option("--key", type=options.PATH, required=True, help="An ed25519 private key, as ssh-keygen makes it or PEM.")
@options.output_options
def sign(bundle: Path, key: Path, as_json: bool, quiet: bool) -> int:
    """Sign BUNDLE, for boards that take signed bundles only.

    The signature is over the manifest, which names the hash of every file. A passphrase is taken from EDGEKIT_PASSPHRASE.

    \b
    ssh-keygen -t ed25519 -f signing
    edgekit sign fashion.bundle --key signing
    edgekit device set pi4 --require-signed signing.pub
    """
    from edgekit.push.sign import public_key_of, sign_bundle

    passphrase = os.environ.get("EDGEKIT_PASSPHRASE")
    written = sign_bundle(bundle, key, passphrase=passphrase.encode() if passphrase else None)
    signer = public_key_of(written)
    if as_json:
        show.document({"ok": True, "signature": str(written), "public_key": signer})
    else:
        show.line(f"{bundle} is signed by {signer}")
    return 0
