"""Text that is shown holds nothing that a terminal would obey, whatever bytes it came from."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltui.watch.text import LINE_LIMIT, plain, plain_line, plain_value

BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
FORBIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}

escapes = st.sampled_from(
    [
        "\x1b[31m",
        "\x1b]0;title\x07",
        "\x1b]52;c;aGk=\x1b\\",
        "\x9b1m",
        "\x1bP1$r\x1b\\",
        "\x1b",
        "\x9d",
        "\r",
        "\x07",
        *BIDI,
    ]
)
dirty = st.lists(st.text(max_size=8) | escapes, max_size=12).map("".join)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain é ☃ text", "plain é ☃ text"),
        ("\x1b[1;31mred\x1b[0m and \x1b[2Kerased", "red and erased"),
        ("\x1b]0;evil title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]52;c;cm0gLXJm\x9cafter", "after"),
        ("\x1bPq#0;2\x1b\\sixel", "sixel"),
        ("\x9b31mC1\x9b0m", "C1"),
        ("\x1b(Bcharset\x1bM\x1b7\x1b=", "charset"),
        ("an \x1b]unended title", "an unended title"),
        ("an unended \x1b[31", "an unended 31"),
        ("tab\there", "tab here"),
        ("bell\x07 null\x00 back\x08 del\x7f", "bell null back del"),
        ("user\u202eresu\u2066x", "userresux"),
        ("line\u2028sep\u2029arator\x85next", "line sep arator next"),
        ("lone \ud800 surrogate", "lone  surrogate"),
        ("[bold]markup[/] stays", "[bold]markup[/] stays"),
    ],
)
def test_plain(raw: str, shown: str) -> None:
    assert plain(raw) == shown


def test_no_control_character_of_unicode_is_left() -> None:
    left = plain("".join(map(chr, range(0x110000))))
    assert not {unicodedata.category(letter) for letter in left} & FORBIDDEN
    assert not set(BIDI) & set(left)
    assert {"a", "é", "☃", "漢", "🚀"} <= set(left)


@given(dirty)
def test_plain_text_is_printable_and_stays_as_it_is(text: str) -> None:
    shown = plain(text)
    assert shown == "" or shown.isprintable()
    assert plain(shown) == shown


@given(st.binary(max_size=500) | dirty.map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_lines_of_random_bytes_are_printable_and_short(raw: bytes) -> None:
    shown = plain_line(raw)
    assert shown == "" or shown.isprintable()
    assert len(shown) <= LINE_LIMIT
    json.dumps(shown).encode()
    shown.encode("utf-8")


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b" 10%|#   |\r 50%|## |\r100%|####|", "100%|####|"),
        (b" 10%|#   |\r 50%|## |\r", " 50%|## |"),
        (b"dos line\r", "dos line"),
        (b"\r\r\r", ""),
        (b"Error: no route to host\rWarning", "Error: no route to host Warning"),
        (b"loading the model\r\x1b[Kdone", "loading the model done"),
        (b"CUDA error: out of memory\r\r", "CUDA error: out of memory"),
        (b"50%\r   \x1b[K", "   "),
        (b"caf\xc3\xa9 \xff", "café \ufffd"),
        (b"\x1b[32m50%\x1b[0m\r\x1b[32m60%\x1b[0m", "60%"),
    ],
)
def test_progress_bars_fold_to_their_last_state(raw: bytes, shown: str) -> None:
    assert plain_line(raw) == shown


@pytest.mark.parametrize(
    "raw", [b"x" * 10**7, b"\x1b[31m" * 10**6, "é".encode() * 10**6, b"\x9d" * 10**6, b"\xc2\x9d" * 10**6]
)
def test_huge_lines_are_cut_quickly(raw: bytes) -> None:
    shown = plain_line(raw)
    assert len(shown) <= LINE_LIMIT
    assert shown.endswith("…") == (not raw.startswith((b"\x1b", b"\xc2")))


def test_values_are_made_plain_all_the_way_down() -> None:
    value: Any = {"a\x1b[1m": ["\x07x", {"b": "c\u202e"}, 1, None, True, 2.5]}
    assert plain_value(value) == {"a": ["x", {"b": "c"}, 1, None, True, 2.5]}
