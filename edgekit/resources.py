"""Where the data files of edgekit lie (recipes, device profiles), and what a mistyped word probably meant."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Iterable, Optional

from edgekit.errors import UsageError

KINDS = ("recipes", "devices")
"""The folders of TOML files that come with edgekit."""


def resource_folder(kind: str) -> Path:
    """The folder that holds the TOML files of ``kind`` ("recipes" or "devices").

    An installed wheel carries them as ``edgekit/_data/<kind>``; in a checkout they lie beside the package. Raises
    :class:`UsageError` when neither is there.
    """
    if kind not in KINDS:
        raise UsageError(
            f"no resource folder is called {kind!r}", hint=did_you_mean(kind, KINDS) or f"one of {', '.join(KINDS)}"
        )
    package = Path(__file__).resolve().parent
    candidates = (package / "_data" / kind, package.parent / kind)
    for folder in candidates:
        if folder.is_dir():
            return folder
    raise UsageError(
        f"the {kind} that come with edgekit are missing: neither {candidates[0]} nor {candidates[1]} is a folder",
        code="installation_incomplete",
        hint="install edgekit again from its checkout",
    )


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """``did you mean "..."?`` with the closest of ``candidates``, or an empty string when none is close."""
    best = closest(word, candidates)
    return f'did you mean "{best}"?' if best is not None else ""


def closest(word: str, candidates: Iterable[str]) -> Optional[str]:
    """The candidate that ``word`` most resembles, ignoring case and ``-`` against ``_``; None when none is close."""
    by_folded = {candidate.lower().replace("-", "_"): candidate for candidate in candidates}
    matches = difflib.get_close_matches(word.lower().replace("-", "_"), list(by_folded), n=1, cutoff=0.6)
    return by_folded[matches[0]] if matches else None
