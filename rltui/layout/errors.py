"""What can be wrong with a layout before any rule is asked."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from rltui.errors import UsageError


class Problem(Struct, frozen=True):
    """One reason why a layout cannot be loaded, with its place.

    Attributes:
        message: Continues the place: ``grpo.yaml:7: roles.learner.gpus: must be at least 1``.
        file: File name as the user gave it; empty for overrides.
        line: Line from 1, or 0.
        key: Dotted key, or empty.
        hint: What to write instead, or empty.
    """

    message: str
    file: str = ""
    line: int = 0
    key: str = ""
    hint: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.file and self.line else self.file
        head = ": ".join(part for part in (place, self.key) if part)
        hint = f" ({self.hint})" if self.hint else ""
        return f"{head}: {self.message}{hint}" if head else f"{self.message}{hint}"


class LayoutError(UsageError):
    """A layout that cannot be read or is not a layout; carries every problem found."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in problems))
