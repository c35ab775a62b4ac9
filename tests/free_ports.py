"""Ports for servers that are told theirs: free ones, which stay free until the server listens."""

from __future__ import annotations

import contextlib
import os
import socket

FIRST, COUNT = 4000, 6000
"""Below those that the kernel draws for whoever connects, and for whoever asks for any: of them each may be taken again
in the seconds until a server is up, even by the one that connects to see whether it is. Blocks of the product's begin
above them, see ``rltui/onnode/node_network.py``."""

_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Different TCP ports of loopback, each given once; two processes begin at different ones."""
    found: list[int] = []
    for number in range(COUNT):
        port = FIRST + (os.getpid() * 97 + number) % COUNT
        if len(found) < count and port not in _given and _is_free(port):
            _given.add(port)
            found.append(port)
    assert len(found) == count, f"{count} ports from {FIRST} to {FIRST + COUNT - 1} are not free"
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.bind(("", port))
        return True
    return False
