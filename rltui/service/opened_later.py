"""The live cockpit, imported and made by the first call: until then the screen is drawn from what was last seen."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rltui.service.live_cockpit import LiveCockpit


class OpenedLater:
    """Stands for a ``LiveCockpit``; its first call must not come from the thread of the screen."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._live: LiveCockpit | None = None

    def __getattr__(self, name: str) -> Any:
        """What the live cockpit has of that name."""
        with self._lock:
            if self._live is None:
                from rltui.service.live_cockpit import LiveCockpit

                self._live = LiveCockpit()
        return getattr(self._live, name)

    def close(self) -> None:
        """End all relays, if there are any."""
        if self._live is not None:
            self._live.close()
