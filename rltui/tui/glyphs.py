"""The glyph vocabulary, in two alphabets: Unicode, and ASCII for terminals and fonts that have no more."""

from __future__ import annotations

import os
from typing import NamedTuple

from rich.cells import cell_len


class Glyphs(NamedTuple):
    """One alphabet, at first that of Unicode. Every glyph is one cell wide."""

    ascii_only: bool = False
    rule: str = "─"
    cursor: str = "›"
    ellipsis: str = "…"
    dot: str = "·"
    times: str = "×"
    arrow: str = "→"
    crumb: str = "›"
    bar_left: str = "▕"
    bar_right: str = "▏"
    bar_full: str = "█"
    bar_empty: str = "░"
    blocks: str = "▁▂▃▄▅▆▇█"
    """Heights of a sparkline, lowest first."""
    shades: str = "█▓▒░·"
    """Fillings that can be told apart without colour, the fullest first."""
    done: str = "✓"
    current: str = "▶"
    pending: str = "·"
    failed: str = "✗"
    attention: str = "▲"
    paused: str = "‖"
    free: str = "·"
    enter: str = "⏎"
    up: str = "↑"
    down: str = "↓"
    left: str = "←"
    right: str = "→"


UNICODE = Glyphs()

ASCII = Glyphs(
    ascii_only=True,
    rule="-",
    cursor=">",
    ellipsis="~",
    dot="-",
    times="x",
    arrow="->",
    crumb=">",
    bar_left="[",
    bar_right="]",
    bar_full="#",
    bar_empty=".",
    blocks="_.-=+*%#",
    shades="#%+-.",
    done="*",
    current=">",
    pending=".",
    failed="x",
    attention="!",
    paused="=",
    free=".",
    enter="enter",
    up="up",
    down="down",
    left="left",
    right="right",
)


CONSOLES = ("linux", "vt100", "vt220")
"""Terminals whose fonts have no braille."""


def alphabet(ascii_only: bool) -> Glyphs:
    """The alphabet for this terminal."""
    return ASCII if ascii_only or os.environ.get("TERM") in CONSOLES else UNICODE


_TO_ASCII = str.maketrans(
    {
        "×": "x",
        "·": "-",
        "–": "-",
        "…": "~",
        "→": ">",
        "›": ">",
        "≤": "<",
        "≥": ">",
        "┃": "|",
        "│": "|",
        "─": "-",
        "━": "-",
        "█": "#",
        "░": ".",
        "▶": ">",
        "▲": "!",
        "✓": "*",
        "✗": "x",
        "±": "~",
        "−": "-",
        "²": "2",
        "µ": "u",
        "÷": "/",
        "°": " ",
        "\u00a0": " ",
        "‘": "'",
        "’": "'",
        "“": '"',
        "”": '"',
    }
)


def to_ascii(text: str) -> str:
    """``text`` with every character outside ASCII replaced by one of the same role, or by a question mark."""
    if text.isascii():
        return text
    return "".join(char if char.isascii() else "?" * cell_len(char) for char in text.translate(_TO_ASCII))
