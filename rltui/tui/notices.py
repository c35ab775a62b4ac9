"""Notifications: each once while it can be read, never too many; and what a terminal is sent for who looks away."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from textual.app import App

from rltui.tui.host import Severity
from rltui.tui.own_keys import all_problems, keys_file
from rltui.tui.places import key_tables
from rltui.tui.spans import clean

READ_PER_S = 20
"""Characters that somebody reads in a second."""

MOST = 3
"""Notifications at a time: more would hide what they are about."""


class Notices:
    """What is said in the corner of the screen.

    Args:
        app: The application that shows it.
        clock: Seconds that only grow.
    """

    def __init__(self, app: App[Any], clock: Callable[[], float]) -> None:
        self._app = app
        self._clock = clock
        self._said: dict[str, float] = {}

    def say(self, text: str, severity: Severity) -> None:
        """Show a notification, once while it can be read; never as markup."""
        text = "\n".join(clean(row) for row in text.splitlines())
        now = self._clock()
        self._said = {old: until for old, until in self._said.items() if until > now}
        if text and text not in self._said and self._app.screen_stack:
            shown_s = max(self._app.NOTIFICATION_TIMEOUT, len(text) / READ_PER_S)
            self._said[text] = now + shown_s
            self._app.notify(text, severity=severity, timeout=shown_s, markup=False)
            self._app.call_later(self._keep_few)

    def tell_of_keys(self) -> None:
        """Say what of the user's own keys is ignored; without such keys nothing is looked at."""
        problems = all_problems(key_tables()) if keys_file().exists() else ()
        if problems:
            self.say(f"{keys_file().name}: {problems[0]}\nrltui keys --check tells all", "warning")

    def _keep_few(self) -> None:
        for old in list(self._app._notifications)[:-MOST]:
            self._app._unnotify(old)

    def hush(self) -> None:
        """Take all away; what is said again is shown again."""
        self._said.clear()
        self._app.clear_notifications()


BELL = "\a"
MAX_CHARS = 200


def signal(kind: str, title: str, text: str, environment: Mapping[str, str] = os.environ) -> str:
    """The bytes for one notification; empty where the terminal is not to be sent any.

    Args:
        kind: ``bell``, ``osc9`` (iTerm2, WezTerm, kitty, Ghostty, Windows Terminal), ``osc777`` (VTE, foot, urxvt) or
            ``none``. A bell comes with both, since nothing tells whether a terminal knows them.
        title: One line; what could end or change the sequence is taken out of it.
        text: The same; only its first line is sent.
        environment: Where a terminal multiplexer leaves its mark.
    """
    title, text = _words(title), _words(text.partition("\n")[0])
    if kind == "osc9":
        # what begins with a digit and a semicolon is another command there (ConEmu's progress)
        return (
            _through(f"\x1b]9;{_words(f'rltui – {title}: {text}' if text else f'rltui – {title}')}\a", environment)
            + BELL
        )
    if kind == "osc777":
        return _through(f"\x1b]777;notify;rltui – {title};{text}\a", environment) + BELL
    return BELL if kind == "bell" else ""


def _words(text: str) -> str:
    """``text`` without control characters, and without the semicolons that separate what a sequence holds."""
    return clean(text.replace("\n", " ")).replace(";", ",")[:MAX_CHARS]


def _through(sequence: str, environment: Mapping[str, str]) -> str:
    """``sequence`` wrapped for tmux, which hands it on where ``allow-passthrough`` is on, and else drops it whole."""
    if not environment.get("TMUX"):
        return sequence
    return "\x1bPtmux;" + sequence.replace("\x1b", "\x1b\x1b") + "\x1b\\"
