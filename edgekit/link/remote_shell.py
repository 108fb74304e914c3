"""How a program is run through whatever login shell a user has, so that only the program's own words come back.

sshd hands a command to the login shell, which may be fish, may print a greeting from its ``.bashrc``, and leaves the program running
when the channel closes. So the command is one fixed line that every shell reads alike, which starts ``sh``; that reads what to do
from the first line of its input. Before the program starts, both streams get a mark with the process group; what came
earlier is not the program's. Beside the program a watcher reads the rest of the channel: when it closes while the program is still
running, the whole process group is killed.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence

MARK = b"\x1e"
_SIGNALS = range(1, 65)


@dataclasses.dataclass(frozen=True)
class Split:
    """A stream, parted at the mark: ``noise`` came before it. ``group`` is the process group, None where the mark says none."""

    noise: bytes
    output: bytes
    group: int | None


def command_line(token: str) -> str:
    """What the login shell is given. No character in it means different things to different shells."""
    return f"exec sh -c 'IFS= read -r line; eval \"$line\"' edgekit-{token}"


def first_line(argv: Sequence[str], token: str, stdin_bytes: int) -> bytes:
    """What ``sh`` is given as the first line of its input; ``stdin_bytes`` bytes for the program follow."""
    newline = 'n=$(printf "\\nx"); n=${n%x}; ' if any("\n" in word for word in argv) else ""
    words = " ".join(_quoted(word) for word in argv)
    mark = f"printf '\\036{token} %s\\n' $$; printf '\\036{token}\\n' >&2; "
    watcher = "(exec 4>&-; cat <&3; kill -0 $$ && kill -s KILL -- -$$) >/dev/null 2>&1 &"
    program = f"(exec 2>&4 3<&- 4>&-; exec {words})"
    if stdin_bytes:
        work = f"{{ head -c {stdin_bytes} <&3; {watcher} }} | {program}"
    else:
        work = f"{watcher} {program}"
    return f"exec 3<&0 </dev/null; {newline}{mark}exec 4>&2 2>/dev/null; {work}; exit $?\n".encode(
        "utf-8", "surrogateescape"
    )


def split(stream: bytes, token: str) -> Split | None:
    """The stream without what came before the program; None when the mark never came."""
    noise, found, rest = stream.partition(MARK + token.encode())
    if not found:
        return None
    line, _, output = rest.partition(b"\n")
    return Split(noise, output, int(line) if line.strip().isdigit() else None)


def returncode(exit_status: int) -> int:
    """The shell's exit status as :class:`edgekit.link.base.Completed` says it: negative for a signal."""
    return -(exit_status - 128) if exit_status - 128 in _SIGNALS else exit_status


def kill_group(group: int, token: str) -> list[str]:
    """The command that ends a process group, unless its number belongs to somebody else by now."""
    script = 'grep -q "$2" "/proc/$1/cmdline" 2>/dev/null && kill -s KILL -- "-$1"'
    return ["sh", "-c", script, "sh", str(group), f"edgekit-{token}"]


def _quoted(word: str) -> str:
    return shlex.quote(word).replace("\n", "'\"$n\"'")
