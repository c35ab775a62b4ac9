"""Opening the cockpit from the shell."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Any, cast

from rltui.cli.verbs import importing
from rltui.errors import UsageError

if TYPE_CHECKING:
    from rltui.service.live_cockpit import LiveCockpit
    from rltui.service.replay import ReplayCockpit
    from rltui.tui.first_frame import FirstFrame


def has_screen() -> bool:
    """Whether the standard streams are a terminal that can show a screen (Textual draws on stderr)."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return all(stream.isatty() for stream in streams) and os.environ.get("TERM", "") not in ("", "dumb")


def open_cockpit(run_id: str | None = None, *, readonly: bool = False, ascii_only: bool = False) -> int:
    """Open the cockpit, on ``run_id`` if given, and return its exit code.

    Raises:
        UsageError: There is no terminal to show it on.
    """
    _require_screen("In scripts use `rltui ps`, `rltui show RUN` or `rltui logs RUN`.")
    ascii_only = ascii_only or not _speaks_utf8()
    if run_id is not None:
        return _run_cockpit(None, open_run=run_id, readonly=readonly, ascii_only=ascii_only)
    from rltui.tui.first_frame import FirstFrame

    first = FirstFrame(readonly=readonly, ascii_only=ascii_only)
    try:
        first.show()
        return _run_cockpit(first, readonly=readonly, ascii_only=ascii_only)
    finally:
        first.close()


def _run_cockpit(first: FirstFrame | None, **options: Any) -> int:
    with importing():
        from rltui.tui.app import run_cockpit

    cockpit = OpenedLater()
    try:
        return run_cockpit(cast("LiveCockpit", cockpit), first=first, **options)
    finally:
        cockpit.close()


def open_replay(cockpit: ReplayCockpit, *, ascii_only: bool = False) -> int:
    """Show a recording, and return the exit code.

    Raises:
        UsageError: There is no terminal to show it on.
    """
    _require_screen("In scripts use `rltui replay FILE --at TIME --json`.")
    from rltui.tui.replay import run_replay

    return run_replay(cockpit, ascii_only=ascii_only or not _speaks_utf8())


def _require_screen(hint: str) -> None:
    if not has_screen():
        raise UsageError("The cockpit needs a terminal.", hint)


def _speaks_utf8() -> bool:
    return "utf" in (sys.stdout.encoding or "").lower()


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
