"""The launch screen's text: one line a preset, and everything to see before a launch. Pure functions."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rltui.service.sweep_points import NO_SWEEP
from rltui.tui import formats
from rltui.tui.picking import fits
from rltui.tui.spans import BLANK, Line, clip, clip_start, line, pad, rule, wrapped
from rltui.tui.states import SEVERITIES

if TYPE_CHECKING:
    from rltui.check.findings import Finding
    from rltui.service.launch_review import LaunchReview, PresetSummary
    from rltui.service.review import LaunchOutlook
    from rltui.service.sweep_points import Sweep
    from rltui.tui.glyphs import Glyphs
    from rltui.tui.spans import Role, Span


def preset_row(preset: PresetSummary, width: int, selected: bool, glyphs: Glyphs) -> Line:
    """One preset of the list."""
    size = f"{preset.nodes}{glyphs.times}{preset.gpus_per_node}"
    kind = f"{preset.algorithm.upper():5} {size:>5}" if preset.nodes else preset.algorithm
    name_width = max(8, width - 14)
    return line(
        (glyphs.cursor if selected else " ", "accent"),
        (pad(clip_start(preset.name, name_width, glyphs.ellipsis), name_width), "text"),
        (f" {pad(kind, 11)} ", "dim"),
        selected=selected,
    )


def preset_fits(preset: PresetSummary, words: str) -> bool:
    """Whether every word occurs in the preset."""
    return fits(f"{preset.name} {preset.summary} {preset.algorithm} {preset.gpu}", words)


def verdict(review: LaunchReview | None, readonly: bool, glyphs: Glyphs) -> tuple[Span, ...]:
    """In a few words whether this can be launched; without a review it is being checked."""
    if review is None:
        return ((f"checking {glyphs.ellipsis}", "waiting"),)
    errors, warnings = _number(review.findings, "error"), _number(review.findings, "warning")
    if errors:
        return ((f"{glyphs.failed} {errors} error{'s' * (errors > 1)}: cannot launch", "bad"),)
    if readonly:
        return (("read-only: cannot launch", "dim"),)
    if warnings:
        return ((f"{glyphs.attention} {warnings} warning{'s' * (warnings > 1)}: can launch", "attention"),)
    return ((f"{glyphs.done} ready: {glyphs.enter} launches{f' {_runs(review)}' if review.swept else ''}", "ok"),)


def _number(findings: Iterable[Finding], severity: str) -> int:
    return sum(finding.severity == severity for finding in findings)


def review_lines(
    preset: PresetSummary | None,
    review: LaunchReview | None,
    overrides: Sequence[str],
    width: int,
    glyphs: Glyphs,
    beside: Sequence[Line] = (),
    sweep: Sweep = NO_SWEEP,
) -> list[Line]:
    """All there is to see before a launch, errors and warnings first; ``beside`` is what ``outlook_lines`` makes."""
    lines: list[Line] = []
    if preset is not None and preset.summary:
        lines += [*wrapped(preset.summary, width, " ", "dim"), BLANK]
    if overrides:
        lines += _set(preset, overrides, width, glyphs)
    if sweep.words:
        lines += _part(
            f"sweep{sweep.limit_in_words}", _sweep(review, sweep, width, glyphs), width, glyphs, _runs(review)
        )
    if review is None:
        return lines
    judged = {word: [one for one in review.findings if one.severity == word] for word in SEVERITIES}
    for severity in ("error", "warning"):
        if judged[severity]:
            lines += _part(f"{severity}s", finding_lines(judged[severity], width, glyphs), width, glyphs)
    lines += _part("what was read", _texts(review.notes, width, "text"), width, glyphs)
    lines += _part("layout", _drawing(review.drawing, width), width, glyphs)
    lines += _part("arithmetic", _texts(review.arithmetic, width, "text"), width, glyphs)
    lines += _part("plan", _texts(review.plan, width, "text"), width, glyphs, "estimate")
    lines += beside
    if judged["note"] or not review.findings:
        lines += _part("findings", finding_lines(judged["note"], width, glyphs), width, glyphs)
    lines += _part("what will run", _texts(review.commands, width, "accent"), width, glyphs, review.cluster)
    memory = [line("  ", (clip(text, max(0, width - 2), glyphs.ellipsis), "text")) for text in review.memory]
    return lines + _part("memory", memory, width, glyphs, "estimate")


def _drawing(drawing: Sequence[str], width: int) -> list[Line]:
    """The picture as it is, and its legend on as many lines as it needs."""
    from rltui.placement.draw import WALL

    shown: list[Line] = []
    for text in drawing:
        is_picture = WALL in text
        shown += [line("  ", (text, "text"))] if is_picture else wrapped(text, width, "  ", "text")
    return shown


def outlook_lines(outlook: LaunchOutlook, is_old: bool, now: float, width: int, glyphs: Glyphs) -> list[Line]:
    """When a launch would start, and what is different from the last run of that name, with their age.

    Args:
        outlook: What the cluster was asked.
        is_old: Whether something else is set since; it is being asked anew.
        now: Epoch seconds.
        width: Cells of a line.
        glyphs: The alphabet.
    """
    age = f"{outlook.cluster}, {formats.ago(now - outlook.taken_at)}" + (", outdated" if is_old else "")
    said = outlook.start
    role: Role = "text"
    if outlook.refusal:
        said, role = f"{glyphs.failed} {outlook.cluster} would not take it: {outlook.refusal}", "bad"
    elif outlook.problem:
        said, role = f"not known: {outlook.problem}", "dim"
    lines = _part("expected start", _texts([said] if said else [], width, role), width, glyphs, age)
    changes = [line("  ", (text, "bad" if text.startswith("-") else "ok")) for text in outlook.changes]
    if outlook.last_run and not changes:
        changes = [line(("  nothing is different", "dim"))]
    return lines + _part("since the last of its name", changes, width, glyphs, outlook.last_run)


def _set(preset: PresetSummary | None, overrides: Sequence[str], width: int, glyphs: Glyphs) -> list[Line]:
    """Overrides, a line each; a script's words, as one command line."""
    if preset is not None and preset.is_script:
        return _part("with", _texts([shlex.join(overrides)], width, "accent"), width, glyphs)
    return _part("overrides", [line("  ", (text, "accent")) for text in overrides], width, glyphs)


def _sweep(review: LaunchReview | None, sweep: Sweep, width: int, glyphs: Glyphs) -> list[Line]:
    """Each run of a sweep, and whether an error of those below stands in its way; before it is known, what is swept."""
    if review is None or review.sweep != sweep:
        return [line("  ", (text, "accent")) for text in sweep.words]
    lines: list[Line] = []
    for settings, error in review.swept:
        mark: Span = (f"  {glyphs.failed} ", "bad") if error else (f"  {glyphs.done} ", "ok")
        lines.append(line(mark, (clip(settings, max(0, width - 4), glyphs.ellipsis), "accent")))
    return lines


def _runs(review: LaunchReview | None) -> str:
    return f"{len(review.swept)} runs" if review is not None and review.swept else ""


def script_row(number: int, text: str, width: int, glyphs: Glyphs) -> Line:
    """One line of a job script; directives of the scheduler stand out from commands and comments."""
    role: Role = "accent" if text.startswith("#SBATCH") else "dim" if text.lstrip().startswith("#") else "text"
    return line((f"{number:4} ", "dim"), (clip(text, max(0, width - 5), glyphs.ellipsis), role))


def _part(title: str, rows: list[Line], width: int, glyphs: Glyphs, right: str = "") -> list[Line]:
    if not rows:
        return []
    return [rule([(title, "title")], [(right, "dim")] if right else [], width, glyphs), *rows]


def _texts(texts: Iterable[str], width: int, role: Role) -> list[Line]:
    return [row for text in texts for row in wrapped(text, width, "  ", role)]


def finding_lines(findings: Sequence[Finding], width: int, glyphs: Glyphs) -> list[Line]:
    """What a check says, the worst first, each with its place and its fix."""
    if not findings:
        return [line((f"  {glyphs.done} nothing to say against it", "ok"))]
    order = ("error", "warning", "note")
    lines: list[Line] = []
    for finding in sorted(findings, key=lambda finding: order.index(finding.severity)):
        look = SEVERITIES[finding.severity]
        mark = look.sign(glyphs)
        lines += wrapped(f"{finding.code} {finding.message}", width, "", "text", mark=(f"  {mark} ", look.role))
        place = f"{finding.file}:{finding.line} {finding.key}" if finding.line else finding.key
        if place:
            lines.append(line(("    ", "dim"), (clip_start(place, width - 4, glyphs.ellipsis), "dim")))
        if finding.fix:
            lines += wrapped("  ".join(finding.fix), width, "", "accent", mark=("    fix  ", "key"))
    return lines
