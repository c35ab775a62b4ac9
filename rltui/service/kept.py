"""What the user chose and wants to find again at the next start: small text files in the state directory."""

from __future__ import annotations

from rltui.errors import RltuiError
from rltui.paths import ensure_private, state_dir


def kept_text(name: str) -> str:
    """What was kept under ``name``, a file in the state directory; empty where nothing was, or it cannot be read."""
    try:
        return (state_dir() / name).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def keep(name: str, text: str) -> str:
    """Keep ``text`` for the next start; what comes back is why it could not be kept."""
    try:
        (ensure_private(state_dir()) / name).write_text(text, encoding="utf-8")
    except (OSError, RltuiError) as error:
        return f"{name}: not kept: {error}"
    return ""
