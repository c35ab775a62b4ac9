"""What a confirmation says: what would happen, to which run, what changes, by which commands. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from rltui.service.cockpit import ActionPreview
from rltui.tui.glyphs import Glyphs
from rltui.tui.messages import Ask
from rltui.tui.spans import BLANK, Line, Role, Span, line, rule, wrapped
from rltui.tui.views.launch import finding_lines


def confirm_lines(preview: ActionPreview, width: int, glyphs: Glyphs) -> list[Line]:
    """The text of the confirmation."""
    lines = [*wrapped(preview.title, width, " ", "title"), BLANK]
    for sentence in preview.consequences:
        lines += wrapped(sentence, width, f" {glyphs.dot} ", "text")
    if preview.diff:
        lines += [BLANK, rule([("what changes", "dim")], [], width, glyphs), *_diff(preview.diff, width)]
    if preview.findings:
        lines += [BLANK, rule([("what a check says", "dim")], [], width, glyphs)]
        lines += finding_lines(preview.findings, width, glyphs)
    if preview.commands:
        lines += [BLANK, rule([("what will run", "dim")], [], width, glyphs)]
        for command in preview.commands:
            lines += wrapped(command, width, "   ", "accent")
    return lines


def _diff(rows: Sequence[str], width: int) -> list[Line]:
    lines: list[Line] = []
    for row in rows:
        role: Role = "ok" if row.startswith("+") else "bad" if row.startswith("-") else "text"
        lines += wrapped(row[1:].lstrip(), width, "", role, mark=(f"   {row[:1]} ", role))
    return lines


def why_not(ask: Ask, preview: ActionPreview) -> str:
    """Why what is shown cannot be done; empty where it can."""
    if any(finding.severity == "error" for finding in preview.findings):
        return "errors stand in the way: e edits the changes"
    if ask.action == "lower_memory" and not preview.overrides:
        return "there is nothing to change that would help"
    return ""


def buttons(problem: str, can_edit: bool, below: int, width: int, glyphs: Glyphs) -> Line:
    """The answers; the default is No. Nobody is to answer without knowing that there are ``below`` lines more."""
    gap = " " * (4 if width >= 50 or not below else 1)
    more = f" {glyphs.down} {below} more" if width >= 50 else f"{glyphs.down}{below}"
    spans: list[Span] = [(f"{more}{gap[1:]}", "attention")] if below else []
    spans += [(" y ", "off" if problem else "key"), ("do it", "off" if problem else "text")]
    spans += [(f"{gap}n ", "key"), ("no", "text"), (" (default)", "dim")]
    if can_edit:
        spans += [(f"{gap}e ", "key"), ("edit", "text")]
    return line(*spans)
