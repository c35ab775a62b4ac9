"""The dashboard of a standing Ray that the user's profile names: asked wherever it is, with what it wants to see."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from rltui.cluster.profile import Profile
from rltui.cluster.relay_client import RelayClient
from rltui.cluster.relay_types import OUTCOME_UNKNOWN, RelayError
from rltui.errors import ClusterError

TOKEN_FILE = ".ray/auth_token"
"""Where Ray keeps the token of the clusters that a user talks to; it is read there and never stored here."""

LARGEST = 1 << 14
KEPT_S = 60.0
"""How long what was read is used: a token that is put there, or renewed, counts while a cockpit stays open."""

_HEADER = re.compile(r"([A-Za-z0-9-]+):[ \t]*(\S.*?)[ \t]*\Z")
# ls, as the options of stat(1) differ from system to system
_MODE = ["sh", "-c", 'ls -ldL -- "$1"', "sh"]


class TrustedServer:
    """A server that a relay client may ask beyond the loopback of the relay's machine.

    Args:
        address: Its URL; what begins at another scheme, host or port is not trusted.
        headers: Reads what it wants to see; called for the first question, and from time to time.
    """

    def __init__(self, address: str, headers: Callable[[], Mapping[str, str]]) -> None:
        self._origin = _origin(address)
        self._read = headers
        self._headers: Mapping[str, str] = {}
        self._read_at = -math.inf

    def headers_for(self, url: str) -> Mapping[str, str] | None:
        """What it wants to see; None where ``url`` is not of this server.

        Raises:
            ClusterError: It cannot be read, or not by its owner alone.
        """
        if _origin(url) != self._origin:
            return None
        if time.monotonic() - self._read_at > KEPT_S:
            self._headers, self._read_at = self._read(), time.monotonic()
        return self._headers


def trust_ray(client: RelayClient, profile: Profile) -> None:
    """Let ``client`` ask the dashboard that ``profile`` names, with the token and headers that lie on its machine."""
    server = TrustedServer(profile.ray_address, lambda: _headers(client, profile.ray_headers_file))
    client.trusted = server.headers_for


def is_in_the_clear(address: str) -> bool:
    """Whether what is sent there can be read on the way: no https, and beyond the relay's own machine."""
    scheme, host, _ = _origin(address)
    return scheme == "http" and host not in ("127.0.0.1", "localhost", "::1")


def _origin(url: str) -> tuple[str, str, int | None]:
    try:
        parts = urlsplit(url)
        return parts.scheme, (parts.hostname or "").lower(), parts.port
    except ValueError:
        return "", "", None


def _headers(client: RelayClient, path: str) -> dict[str, str]:
    home = client.hello().home
    token = _text(client, f"{home}/{TOKEN_FILE}").strip()
    found = {"Authorization": f"Bearer {token}"} if token else {}
    if not path:
        return found
    path = f"{home}{path[1:]}" if path.startswith("~/") else path
    mode = client.run([*_MODE, path], timeout_s=10, idempotent=True)
    if mode.rc or not _text(client, path):
        raise ClusterError(
            f"ray_headers_file {path} cannot be read.", "It holds Name: value lines, and is on the host."
        )
    # of -rw-r----- the owner's three letters are followed by what group and others may
    if mode.out[4:10].strip("-"):
        raise ClusterError(f"ray_headers_file {path} can be read by others.", f"chmod 600 {path}")
    lines = [line for line in _text(client, path).splitlines() if line.strip() and not line.startswith("#")]
    for number, line in enumerate(lines, start=1):
        match = _HEADER.match(line)
        if match is None:
            raise ClusterError(f"{path}, line {number}: no header.", "A line is such as X-Team: rl.")
        found[match[1]] = match[2]
    return found


def _text(client: RelayClient, path: str) -> str:
    try:
        return client.read(path, 0, LARGEST).data.decode("utf-8", "replace")
    except RelayError as error:
        if error.kind in OUTCOME_UNKNOWN:
            raise
        return ""  # a cluster without tokens
