"""What a check says."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Severity = Literal["error", "warning", "note"]


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that a rule has to say about a layout.

    Attributes:
        code: Stable code such as ``P101``; ``rltui explain P101`` tells its story.
        severity: ``error`` stops a launch, ``warning`` does not, ``note`` is for information.
        message: One sentence with the numbers in it.
        key: Dotted key of the layout, such as ``roles.learner.gpus``.
        file: Path of the layout as the user named it.
        line: Line of the key in the file, from 1, or of its section where the value is a default; 0 for an override.
        fix: Overrides (``key.path=value``) that would settle it; empty where only the user can decide.
    """

    code: str
    severity: Severity
    message: str
    key: str = ""
    file: str = ""
    line: int = 0
    fix: tuple[str, ...] = ()
