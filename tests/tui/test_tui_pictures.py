"""The picture of the README that moves: made of the kept recording, and harmless and small enough for a page."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_a_recording_becomes_one_picture_that_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import animation
    import screenshot

    monkeypatch.setattr(screenshot, "STORY", (("1", 3.0, 1.0), ("1", 25.0, 2.0), ("6", 40.0, 1.0)))
    frames = asyncio.run(screenshot.frames((80, 24)))
    svg = animation.animated(frames)
    texts = [text for text in ElementTree.fromstring(svg).itertext() if text.strip()]
    assert any("training" in text for text in texts)
    assert any("step\u00a0240/240" in text for text in texts)
    assert not re.search(r"<script|href|@font-face", svg)
    assert 'keyTimes="0;0.2500;0.7500" values="hidden;visible;hidden"' in svg
    styles: dict[str, str] = {}
    drawn = [animation.drawn(frame.svg, styles) for frame in frames]
    assert all(svg.count(piece) == 1 for piece in set().union(*drawn)), "what stays is drawn once"
    assert len(svg) < sum(len(frame.svg) for frame in frames) / 2
