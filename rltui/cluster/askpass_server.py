"""Answers what ssh asks through its ``SSH_ASKPASS`` program, by asking a ``Prompter``."""

from __future__ import annotations

import json
import shlex
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rltui.cluster import askpass
from rltui.cluster.plain_text import printable
from rltui.cluster.prompts import Field, Prompter, Question
from rltui.cluster.transport import NeedsAttentionError

MOST_QUESTION = 1 << 16


@contextmanager
def answering(prompter: Prompter, place: str) -> Iterator[dict[str, str]]:
    """Answer for the length of the block; yields the variables that ssh must be started with."""
    # the folder is the user's alone (0700), so nobody else can ask for passwords or read them
    with tempfile.TemporaryDirectory(prefix="rltui-ask-") as folder, socket.socket(socket.AF_UNIX) as listener:
        path = f"{folder}/socket"
        listener.bind(path)
        listener.listen(1)
        program = Path(folder) / "askpass"
        command = shlex.join([sys.executable, "-I", "-S", askpass.__file__])
        program.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        program.chmod(0o700)
        threading.Thread(target=_serve, args=(listener, prompter, place), name="askpass", daemon=True).start()
        try:
            yield {"SSH_ASKPASS": str(program), "SSH_ASKPASS_REQUIRE": "force", askpass.SOCKET_VARIABLE: path}
        finally:
            with suppress(OSError):
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
