"""What both ways through SSH share: the remote command, and waiting until a login shell has come to it."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Callable

from msgspec import Struct

from rltui.cluster.plain_text import printable
from rltui.cluster.relay_program import relay_argv

CONNECT_TIMEOUT_S = 15.0
"""For a socket to open, a server to greet, and keys to be exchanged; each."""

SHELL_TIMEOUT_S = 60.0
"""For the login shell: start-up files on a slow parallel file system take tens of seconds at times."""

KEEPALIVE_S = 30
MOST_GREETING = 1 << 16


class Opened(Struct, frozen=True, kw_only=True):
    """How a connection came about, for `rltui doctor`. Times in seconds."""

    connect_s: float = 0.0
    """Until the host was connected to and its key was checked."""
    auth_s: float = 0.0
    """For logging in, thinking of the user included; with OpenSSH it is part of ``connect_s``."""
    shell_s: float = 0.0
    """From asking for the command until the login shell had come to it."""
    auth: str = ""
    """What the server accepted, in words."""
    host_key: str = ""
    """Type and fingerprint of the server's key."""
    greeting: tuple[str, ...] = ()
    """Lines that the login shell's start-up files print."""


def remote_command() -> tuple[str, bytes]:
    """The command line for the login shell, and the line that it prints when the shell has come to it.

    Only what sh, csh and fish understand alike; start-up files may print before it, so the line is unguessable.
    """
    mark = f"rltui-{secrets.token_hex(8)}"
    return f"echo {mark}; exec {shlex.join(relay_argv())}", mark.encode() + b"\n"


def read_greeting(read_byte: Callable[[], bytes], mark: bytes) -> tuple[str, ...] | None:
    """Read up to and including ``mark``, byte by byte so that nothing of the relay's is taken away.

    Returns:
        The lines before it, or None where the stream ended first.
    """
    seen = bytearray()
    while not seen.endswith(mark):
        byte = read_byte()
        if not byte:
            return None
        seen += byte
        if len(seen) > MOST_GREETING:
            del seen[: MOST_GREETING // 2]
    lines = bytes(seen[: -len(mark)]).decode("utf-8", "replace").splitlines()
    return tuple(line for line in map(printable, lines) if line)
