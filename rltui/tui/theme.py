"""Colours: a dark and a light theme of our own, and one without any colour. No other file names a colour.

Grey chrome, one accent, three state colours (bluish green, amber, vermilion after Okabe and Ito) that stay apart
for red-green colour blindness; a glyph and a word stand beside each of them.
"""

from __future__ import annotations

from textual.app import App
from textual.theme import Theme

from rltui.paths import keep, kept_text

DARK = "rltui-dark"
LIGHT = "rltui-light"
MONO = "rltui-mono"


def _theme(name: str, dark: bool, roles: dict[str, str], background: str, surface: str, panel: str) -> Theme:
    return Theme(
        name=name,
        dark=dark,
        primary=roles["accent"],
        accent=roles["accent"],
        warning=roles["attention"],
        error=roles["bad"],
        success=roles["ok"],
        foreground=roles["text"],
        background=background,
        surface=surface,
        panel=panel,
        variables={f"role-{role}": colour for role, colour in roles.items()}
        | {"cursor-row": panel, "block-cursor-text-style": "none"},
    )


_DARK_ROLES = {
    "text": "#d3d7de",
    "dim": "#8b939f",
    "rule": "#4a525e",
    "title": "#eef1f5",
    "accent": "#7fb2f0",
    "ok": "#45b8a0",
    "attention": "#e5a83b",
    "bad": "#f0805a",
    "waiting": "#b3a6e0",
    "bar": "#6d9fd8",
}

_LIGHT_ROLES = {
    "text": "#24292f",
    "dim": "#5c6570",
    "rule": "#b3bac2",
    "title": "#0b0e12",
    "accent": "#1f5fae",
    "ok": "#00705c",
    "attention": "#875500",
    "bad": "#a32a05",
    "waiting": "#5d4a9e",
    "bar": "#3c78c0",
}

_MONO_ROLES = dict.fromkeys(_DARK_ROLES, "ansi_default")

_ANSI_VARIABLES = (
    "ansi-background",
    "ansi-foreground",
    "block-cursor-background",
    "block-cursor-foreground",
    "border",
    "border-blurred",
    "input-cursor-background",
    "input-cursor-foreground",
    "input-selection-background",
    "input-selection-foreground",
    "screen-selection-background",
    "screen-selection-foreground",
)
"""What Textual's style sheets expect of a theme in the terminal's own colours."""

THEMES: tuple[Theme, ...] = (
    _theme(DARK, True, _DARK_ROLES, "#14171c", "#1b1f26", "#252b35"),
    _theme(LIGHT, False, _LIGHT_ROLES, "#fbfbfa", "#f1f2f3", "#e1e5ea"),
    Theme(
        name=MONO,
        ansi=True,
        primary="ansi_default",
        secondary="ansi_default",
        warning="ansi_default",
        error="ansi_default",
        success="ansi_default",
        accent="ansi_default",
        foreground="ansi_default",
        background="ansi_default",
        surface="ansi_default",
        panel="ansi_default",
        boost="ansi_default",
        variables={f"role-{role}": colour for role, colour in _MONO_ROLES.items()}
        | dict.fromkeys(("cursor-row", *_ANSI_VARIABLES), "ansi_default")
        | {"input-cursor-text-style": "reverse"},
    ),
)

KEPT_IN = "theme"
"""File of the state directory with the word of the theme that was chosen last."""

NAMES = {"dark": DARK, "light": LIGHT, "mono": MONO}
"""Words of the ``:theme`` command → themes."""


def begin(app: App[int], no_colour: bool) -> None:
    """Give the application our themes, and the one that was chosen last.

    Args:
        app: The application.
        no_colour: Whether the user wants no colour at all.
    """
    for each in THEMES:
        app.register_theme(each)
    app.theme = MONO if no_colour else remembered()


def remembered() -> str:
    """The theme that was chosen last; the dark one where none was, or where the file cannot be read."""
    return NAMES.get(kept_text(KEPT_IN), DARK)


def remember(word: str) -> str:
    """Keep the word of a theme for the next start; what comes back is why it could not be kept."""
    return keep(KEPT_IN, word)
