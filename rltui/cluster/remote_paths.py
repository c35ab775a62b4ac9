"""Paths of a profile as the cluster sees them."""

from __future__ import annotations

from rltui.cluster.profile import Profile
from rltui.cluster.relay_client import RelayClient
from rltui.errors import UsageError

DEFAULT_RUN_ROOT = "~/.local/share/rltui/runs"


def expanded(client: RelayClient, path: str) -> str:
    """``path`` with the user's home over there for a leading ``~``."""
    return client.hello().home.rstrip("/") + path[1:] if path == "~" or path.startswith("~/") else path


class RemoteRoot:
    """The run root of a profile; a leading ``~`` is the user's home over there, asked once."""

    def __init__(self, client: RelayClient, profile: Profile) -> None:
        self._client = client
        self._profile = profile
        self._path = ""

    @property
    def path(self) -> str:
        """The absolute path.

        Raises:
            UsageError: The profile's path is neither absolute nor below the home.
        """
        if not self._path:
            self._path = self._expanded(self._profile.run_root or DEFAULT_RUN_ROOT)
        return self._path

    def _expanded(self, path: str) -> str:
        path = expanded(self._client, path)
        if not path.startswith("/"):
            name = self._profile.name
            raise UsageError(
                f"run_root of cluster {name} is {path[:80]!r}, which is neither absolute nor below ~.",
                "Write it as /path/… or ~/path/….",
            )
        return path.rstrip("/") or "/"
