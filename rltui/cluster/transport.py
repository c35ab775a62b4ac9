"""A way to reach a cluster: it opens one byte stream for the relay's client, or fails as only a person can mend."""

from __future__ import annotations

from typing import Protocol

from rltui.errors import ClusterError


class ByteStream(Protocol):
    """Both directions of one channel to a relay; it may be written and read by two threads at once."""

    def send(self, data: bytes, timeout_s: float) -> None:
        """Send all of ``data``.

        Raises:
            TimeoutError: The other side did not take it in time; part of it may be sent, so the stream is spoilt.
            OSError: The other side is gone.
        """

    def receive(self, limit: int) -> bytes:
        """Wait for at least one byte and return at most ``limit``; nothing at the end of the stream, never an error."""

    def close(self) -> None:
        """End the other side; a ``receive`` that waits returns. May be called again."""

    def complaint(self) -> str:
        """What the other side said on its error channel, its last lines; for error messages."""

    def was_cut(self) -> bool:
        """Of a stream that has ended, whether the way there broke; else the program at its other end has ended."""


class Transport(Protocol):
    """A way to reach one cluster."""

    @property
    def place(self) -> str:
        """Where it leads, in words for messages: ``this machine``, ``login.example.org``."""

    def open(self) -> ByteStream:
        """Start ``relay_program.relay_argv()`` there and return its standard streams."""


class NeedsAttentionError(ClusterError):
    """Somebody has to act first: answer a prompt, confirm a host key, renew a certificate.

    A ``RelayClient`` that meets one asks that cluster nothing more until it is closed, which is how the user's acting
    is told to it: background refreshes would otherwise raise prompts, or count as attacks and lock the account.
    """


class AuthFailedError(NeedsAttentionError):
    """The server refused the user."""


class HostKeyError(NeedsAttentionError):
    """The server's key is not the one that is known for this host."""
