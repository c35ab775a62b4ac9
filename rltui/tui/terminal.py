"""What a terminal is sent so that somebody who looks elsewhere is told: a bell, or words that it shows as it likes."""

from __future__ import annotations

import os
from collections.abc import Mapping

from rltui.tui.spans import clean

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
