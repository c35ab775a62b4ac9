"""Showing what would be done, and asking for a yes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rltui.cli.output import talk
from rltui.errors import UNCONFIRMED, UsageError

if TYPE_CHECKING:
    from rltui.service.cockpit import ActionPreview


def confirm(preview: ActionPreview) -> None:
    """Show what would be done and ask.

    Raises:
        UsageError: Nobody is there to ask, or the answer is no.
    """
    show(preview)
    ask(preview.title)


def ask(question: str) -> None:
    """Go on only if somebody says yes.

    Raises:
        UsageError: Nobody is there to ask, or the answer is no.
    """
    if not sys.stdin.isatty():
        raise UsageError(f"{question} {UNCONFIRMED}", "Add --yes.")
    if not is_agreed(question):
        raise UsageError("Not done.")


def is_agreed(question: str) -> bool:
    """Whether somebody who is there says yes."""
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def show(preview: ActionPreview) -> None:
    """Say what would be done: consequences, change, and what a check thinks of the change."""
    for line in (*preview.consequences, *preview.diff):
        talk(f"  {line}")
    for finding in preview.findings:
        talk(f"  {finding.severity} {finding.code} {finding.key}: {finding.message}")
