"""The transport through the user's own ssh: for Kerberos, hardware keys and a live master connection."""

from __future__ import annotations

import json
import os
import re
import select
import shlex
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from rltui.cluster import askpass
from rltui.cluster.local_transport import LocalStream, cleaned_environment
from rltui.cluster.plain_text import printable
from rltui.cluster.profile import Profile
from rltui.cluster.prompts import NEXT_STEP, Field, Prompter, Question
from rltui.cluster.ssh_host import Hop, config_words, hop_words, ssh_binary
from rltui.cluster.ssh_session import (
    CONNECT_TIMEOUT_S,
    KEEPALIVE_S,
    SHELL_TIMEOUT_S,
    Opened,
    read_greeting,
    remote_command,
)
from rltui.cluster.transport import AuthFailedError, HostKeyError, NeedsAttentionError
from rltui.errors import ClusterError

LONGEST_LOGIN_S = 900.0
"""Where somebody is there to answer what ssh asks."""

MASTER_TIMEOUT_S = 5.0

SAFE_OPTIONS = (
    "ForwardAgent=no",
    "ForwardX11=no",
    "ClearAllForwardings=yes",
    "PermitLocalCommand=no",
    "RequestTTY=no",
    "LogLevel=ERROR",
    "RemoteCommand=none",
    f"ConnectTimeout={CONNECT_TIMEOUT_S:.0f}",
    f"ServerAliveInterval={KEEPALIVE_S}",
    "ServerAliveCountMax=2",
)


class OpenSshTransport:
    """Opens a relay on a remote machine with the ssh of this one.

    Args:
        hop: The machine, as the user's SSH configuration names it.
        prompter: Who is asked for what a login needs; where nobody is there, ssh runs in batch mode.
        identity_file: A key besides those of the configuration; empty: none.
        proxy_jump: Machines to go through instead of those of the configuration; empty: those.

    Attributes:
        opened: How the last connection came about.
    """

    def __init__(self, hop: Hop, prompter: Prompter, identity_file: str = "", proxy_jump: Sequence[str] = ()) -> None:
        self._hop = hop
        self._prompter = prompter
        self._words = _way_words(identity_file, proxy_jump)
        self.place = hop.host
        self.opened = Opened()

    def argv(self, command: str, attended: bool) -> list[str]:
        """The ssh command that runs ``command`` in the login shell there.

        Raises:
            ClusterError: There is no ssh on this machine.
        """
        # a background connection uses the user's master where there is one, and never becomes one
        batch = () if attended else ("BatchMode=yes", "StrictHostKeyChecking=yes", "ControlMaster=no")
        options = [word for option in (*SAFE_OPTIONS, *batch) for word in ("-o", option)]
        where = (*config_words(), *hop_words(self._hop), *self._words)
        return [_binary(), "-T", *where, *options, "--", self._hop.host, command]

    def open(self) -> LocalStream:
        """Connect and start the relay's interpreter; see ``Transport``.

        Raises:
            NeedsAttentionError: A person has to act first.
        """
        attended = self._prompter.attended
        command, mark = remote_command()
        began = time.monotonic()
        if not attended:
            return self._start(self.argv(command, False), mark, None, began)
        with answering(self._prompter, self.place) as environment:
            return self._start(self.argv(command, True), mark, environment, began)

    def _start(self, argv: list[str], mark: bytes, environment: dict[str, str] | None, began: float) -> LocalStream:
        # a file: a pipe that nobody reads fills up, and ssh would wait
        said = tempfile.TemporaryFile()  # noqa: SIM115 (kept by the stream)
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                bufsize=0,
                env={**cleaned_environment(os.environ), **(environment or {})},
                # without a terminal of its own ssh asks through SSH_ASKPASS, and ctrl+c does not reach it
                start_new_session=True,
            )
        except OSError as error:
            said.close()
            raise ClusterError(f"Cannot start {argv[0]}: {error.strerror}.", "Check the limit of processes.") from error
        stream = LocalStream(process, said)
        try:
            greeting = _greeting(process, mark, LONGEST_LOGIN_S if environment else SHELL_TIMEOUT_S)
        except BaseException:
            process.kill()
            stream.close()
            raise
        if greeting is None:
            stream.close()
            raise why_ssh_failed(stream.complaint(), self.place, bool(environment))
        self.opened = Opened(connect_s=time.monotonic() - began, auth="OpenSSH", greeting=greeting)
        return stream


def terminal_argv(profile: Profile, command: str) -> list[str]:
    """The user's own ssh with a terminal, for a person to work in: their configuration decides all else.

    Args:
        profile: The cluster; it has a host.
        command: A line for the login shell there.

    Raises:
        ClusterError: There is no ssh on this machine.
    """
    hop = Hop(profile.host, profile.user, profile.port)
    words = [_binary(), "-t", *config_words(), *hop_words(hop), *_way_words(profile.identity_file, profile.proxy_jump)]
    return [*words, "-o", "RemoteCommand=none", "--", hop.host, command]


def _binary() -> str:
    binary = ssh_binary()
    if binary is None:
        raise ClusterError("There is no ssh on this machine.", "Install OpenSSH's client, or use paramiko.")
    return binary


def _way_words(identity_file: str, proxy_jump: Sequence[str]) -> tuple[str, ...]:
    """The words that give ssh a key and machines to go through."""
    return (
        *(("-i", os.path.expanduser(identity_file)) if identity_file else ()),  # noqa: PTH111 (keeps "./")
        *(("-J", ",".join(proxy_jump)) if proxy_jump else ()),
    )


def _greeting(process: subprocess.Popen[bytes], mark: bytes, timeout_s: float) -> tuple[str, ...] | None:
    """What comes before ``mark``; None where ssh ended first, or took too long and was ended."""
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    deadline = time.monotonic() + timeout_s

    def read_byte() -> bytes:
        if not select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
            process.kill()
            return b""
        return os.read(descriptor, 1)

    return read_greeting(read_byte, mark)


_WORDINGS: tuple[tuple[str, type[ClusterError], str], ...] = (
    (
        r"IDENTIFICATION HAS CHANGED|REVOKED HOST KEY|Offending .* key",
        HostKeyError,
        "Somebody may be listening in, or the machine was set up anew. Compare with what the site publishes.",
    ),
    (
        r"Host key verification failed|No .* host key is known|host key is known for",
        NeedsAttentionError,
        "Connect by hand once: ssh {place} shows the key; compare it with what the site publishes.",
    ),
    (
        r"Permission denied|Too many authentication failures|authentication methods? available|sign_and_send_pubkey",
        AuthFailedError,
        NEXT_STEP,
    ),
    (r"Could not resolve", ClusterError, "Check host: of the profile, and DNS."),
    (r"timed out|No route|Network is unreachable|refused", ClusterError, "Check the network or VPN."),
    (r"Bad owner or permissions|Bad configuration option", ClusterError, "Look at ~/.ssh/config."),
)


def why_ssh_failed(said: str, place: str, attended: bool) -> ClusterError:
    """The error for what ssh wrote when it ended before the login shell was there."""
    lines = [printable(line) for line in said.splitlines() if line.strip() and not set(line.strip()) <= {"@"}]
    for pattern, kind, hint in _WORDINGS:
        for line in lines:
            if re.search(pattern, line, re.IGNORECASE):
                # in batch mode ssh says no more than that it was denied; a prompt may be all that is missing
                fits = NeedsAttentionError if kind is AuthFailedError and _may_ask(line) and not attended else kind
                return fits(f"ssh cannot log in to {place}: {line}", hint.format(place=place))
    last = lines[-1] if lines else "it ended without a word, or took too long"
    return ClusterError(f"ssh to {place} ended: {last}", f"Try `ssh {place}` by hand.")


def _may_ask(line: str) -> bool:
    return "password" in line or "keyboard-interactive" in line


def master_is_live(hop: Hop) -> bool:
    """Whether the user has a master connection to this machine; asks its socket, never the network."""
    binary = ssh_binary()
    if binary is None:
        return False
    argv = [binary, *config_words(), *hop_words(hop), "-O", "check", "--", hop.host]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=MASTER_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


MOST_QUESTION = 1 << 16
MOST_FOLDER = 70
"""Bytes of the folder for temporary files up to which a path of a socket fits: 103 on macOS, 107 on Linux."""


@contextmanager
def answering(prompter: Prompter, place: str) -> Iterator[dict[str, str]]:
    """Answer for the length of the block; yields the variables that ssh must be started with."""
    # the folder is the user's alone (0700), so nobody else can ask for passwords or read them
    where = None if len(os.fsencode(tempfile.gettempdir())) <= MOST_FOLDER else "/tmp"
    with (
        tempfile.TemporaryDirectory(prefix="rltui-ask-", dir=where) as folder,
        socket.socket(socket.AF_UNIX) as listener,
    ):
        path = f"{folder}/socket"
        listener.bind(path)
        listener.listen(1)
        program = Path(folder) / "askpass"
        command = shlex.join([sys.executable, "-I", "-S", askpass.__file__])
        program.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        program.chmod(0o700)
        threading.Thread(target=_serve, args=(listener, prompter, place), name="askpass", daemon=True).start()
        try:
            # force is known since OpenSSH 8.4; an older ssh asks so only where DISPLAY is set
            yield {"SSH_ASKPASS": str(program), "SSH_ASKPASS_REQUIRE": "force", askpass.SOCKET_VARIABLE: path}
        finally:
            with suppress(OSError):
                # a close alone wakes no thread that waits in accept(2)
                listener.shutdown(socket.SHUT_RDWR)


def _serve(listener: socket.socket, prompter: Prompter, place: str) -> None:
    while True:
        try:
            link, _ = listener.accept()
        except OSError:
            return
        with link, suppress(OSError, ValueError):
            asked = json.loads(link.makefile().readline(MOST_QUESTION))
            link.sendall(json.dumps(_answer(str(asked["text"]), asked["kind"], prompter, place)).encode() + b"\n")


def _answer(text: str, kind: str, prompter: Prompter, place: str) -> str | None:
    lines = [line for line in map(printable, text.splitlines()) if line]
    if not lines:
        return None
    is_host_key = "authenticity" in text or "fingerprint" in text
    question = Question(
        "host-key" if is_host_key else "passphrase" if "passphrase" in text else "interactive",
        place,
        (Field(lines[-1], echo=is_host_key or kind == "confirm"),),
        tuple(lines[:-1]),
    )
    try:
        return prompter.ask(question)[0]
    except NeedsAttentionError:
        return None
