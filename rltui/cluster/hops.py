"""Names of machines and users as they may be handed to SSH: nothing that a program could take for an option."""

from __future__ import annotations

import re

from msgspec import Struct

_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,252}\Z|[0-9a-fA-F:]{2,39}(?:%[A-Za-z0-9]{1,15})?\Z")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+@\\-]{0,63}\Z")
_HOP = re.compile(
    r"(?:(?P<user>.*)@)?(?:\[(?P<six>[^\]]*)\]|(?P<host>[^:\[\]]*|[^:]*(?::[^:]*){2,}))(?::(?P<port>\d{1,5}))?\Z"
)


class Hop(Struct, frozen=True):
    """One machine on the way: an address or an alias of ``~/.ssh/config``."""

    host: str
    user: str = ""
    port: int = 0
    """0: what the SSH configuration says, else 22."""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host and self.port else self.host
        return f"{self.user}@{host}"[0 if self.user else 1 :] + (f":{self.port}" if self.port else "")


def parse_hop(text: str) -> Hop:
    """Read ``[user@]host[:port]``; an IPv6 address with a port stands in brackets.

    Raises:
        ValueError: It is none; the message continues "HOST: …".
    """
    match = _HOP.match(text.removeprefix("ssh://"))
    if match is None:
        raise ValueError("is not of the form [user@]host[:port]")
    hop = Hop(match["six"] or match["host"] or "", match["user"] or "", int(match["port"] or 0))
    check_hop(hop)
    return hop


def check_hop(hop: Hop) -> None:
    """Refuse names that no machine or user has.

    Raises:
        ValueError: The host, user or port cannot be one.
    """
    if not _HOST.match(hop.host):
        raise ValueError(f"{hop.host[:60]!r} is not the name of a machine")
    if hop.user and not _USER.match(hop.user):
        raise ValueError(f"{hop.user[:60]!r} is not the name of a user")
    if not 0 <= hop.port <= 65535:
        raise ValueError(f"{hop.port} is not a port")
