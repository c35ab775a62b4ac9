"""States, once: the word, glyph and colour role of each run state, actor state and finding severity."""

from __future__ import annotations

from typing import NamedTuple

from rltui.tui.glyphs import Glyphs
from rltui.tui.spans import Role


class Look(NamedTuple):
    """How a state looks everywhere: never by colour alone."""

    word: str
    glyph: str
    ascii_glyph: str
    role: Role

    def sign(self, glyphs: Glyphs) -> str:
        """Its glyph in an alphabet."""
        return self.ascii_glyph if glyphs.ascii_only else self.glyph


RUN_STATES: dict[str, Look] = {
    "queued": Look("queued", "◷", "o", "waiting"),
    "starting": Look("starting", "◔", "+", "accent"),
    "running": Look("running", "▶", ">", "ok"),
    "stopping": Look("stopping", "◌", "~", "attention"),
    "finished": Look("finished", "✓", "*", "ok"),
    "failed": Look("failed", "✗", "x", "bad"),
    "cancelled": Look("cancelled", "■", "#", "dim"),
    "lost": Look("lost", "▲", "!", "bad"),
    "unknown": Look("unknown", "?", "?", "attention"),
}

ACTOR_STATES: dict[str, Look] = {
    "ALIVE": Look("alive", "▶", ">", "ok"),
    "DEAD": Look("dead", "✗", "x", "bad"),
    "STOPPED": Look("stopped", "▲", "!", "attention"),
    "RESTARTING": Look("restarting", "◔", "+", "attention"),
    "PENDING_CREATION": Look("pending", "◷", "o", "waiting"),
    "DEPENDENCIES_UNREADY": Look("waiting", "◷", "o", "waiting"),
}

SEVERITIES: dict[str, Look] = {
    "error": Look("error", "✗", "x", "bad"),
    "warning": Look("warning", "▲", "!", "attention"),
    "note": Look("note", "·", "-", "dim"),
}

UNKNOWN = Look("unknown", "?", "?", "attention")


def run_look(state: str) -> Look:
    """The look of a run state; a word from a newer rltui still shows, as unknown."""
    return RUN_STATES.get(state, Look(state, UNKNOWN.glyph, UNKNOWN.ascii_glyph, UNKNOWN.role))


def actor_look(state: str) -> Look:
    """The look of a Ray actor state."""
    return ACTOR_STATES.get(state, Look(state.lower(), UNKNOWN.glyph, UNKNOWN.ascii_glyph, UNKNOWN.role))
