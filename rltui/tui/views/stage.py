"""Where a run stands: the rail of stages, the bar of steps, and how it ended."""

from __future__ import annotations

from rltui.tui import braille, formats, progress
from rltui.tui.compose import Section
from rltui.tui.glyphs import Glyphs
from rltui.tui.spans import Line, Role, Span, cell_width, clip, cut, line, width_of, wrapped
from rltui.tui.states import run_look
from rltui.watch.silence import no_step_words
from rltui.watch.snapshots import RunSnapshot, RunSummary

REASON_CELLS = 70
"""Cells for which a section asks for rows for the reason of an end: what it is given decides how it is wrapped."""


def state_spans(summary: RunSummary, glyphs: Glyphs) -> tuple[Span, ...]:
    """Glyph and word of the run's state."""
    look = run_look(summary.state)
    word = progress.state_word(summary, look.word)
    return ((f"{look.sign(glyphs)} {word}", look.role),)


def rail(summary: RunSummary, width: int, glyphs: Glyphs) -> Line:
    """All stages with what is done, current and to come; fewer words where the line is short."""
    stages, shown = progress.rail_of(summary), progress.stage_shown(summary)
    now_at = stages.index(shown) if shown in stages else -1
    marks = [_mark(index, now_at, summary, glyphs) for index in range(len(stages))]
    named = [(f"{glyph}{name}", role) for name, (glyph, role) in zip(stages, marks, strict=True)]
    for gap in (3, 2, 1):
        if sum(cell_width(text) for text, _ in named) + gap * (len(named) - 1) + 2 <= width:
            return _joined(named, " " * gap)
    short = [named[i] if i in (now_at, now_at + 1) else marks[i] for i in range(len(marks))]
    return _joined(short, " ")


def title(summary: RunSummary, glyphs: Glyphs) -> tuple[Span, ...]:
    """Where the run stands, and in which job."""
    job = ((f" {glyphs.dot} job {summary.job.job_id}", "dim"),) if summary.job is not None else ()
    return ("stage ", "title"), (progress.stage_shown(summary), "accent"), *job


def _mark(index: int, now_at: int, summary: RunSummary, glyphs: Glyphs) -> tuple[str, Role]:
    if index < now_at:
        return glyphs.done, "dim"
    if index > now_at:
        return glyphs.pending, "dim"
    if summary.is_live:
        return glyphs.current, "accent"
    look = run_look(summary.state)
    return look.sign(glyphs), look.role


def _joined(pieces: list[tuple[str, Role]], gap: str) -> Line:
    spans: list[Span] = [(" ", "text")]
    for index, piece in enumerate(pieces):
        spans.extend(((gap if index else "", "text"), piece))
    return Line(tuple(spans))


def step_bar(snapshot: RunSnapshot, width: int, glyphs: Glyphs) -> Line:
    """The bar of training steps with counts, per cent and time to go; the stage's own share before training."""
    summary = snapshot.summary
    share = progress.step_share(summary)
    step, steps = summary.stage.step, summary.stage.steps
    if summary.state == "starting" and summary.stage.progress is not None:
        share, words = summary.stage.progress, f"{summary.stage.stage} {summary.stage.progress * 100:3.0f}%"
    elif share is None or steps is None:
        detail = (
            progress.state_detail(summary, snapshot.taken_at) if summary.is_live else ""
        )  # the verdict has the end's
        words = detail or ("" if step is not None else summary.stage.stage)
        counted = f"step {step}  " if step is not None else ""
        return line((f" {counted}", "text"), (clip(words, width - 1 - len(counted)), "dim"))
    else:
        words = f"{step:>{len(str(steps))}}/{steps} {share * 100:5.1f}%"
    tail: list[Span] = [(f" {words}", "text")]
    left = progress.remaining_s(summary, snapshot.metrics, snapshot.taken_at)
    if summary.state == "starting" and summary.stage.progress is None and summary.stage.detail:
        tail.append((f"  {clip(summary.stage.detail, width // 2)}", "dim"))
    if summary.no_step_s:
        tail.append((f"  {no_step_words(summary)}", "attention"))
    elif left is not None:
        tail += [("  to go ", "dim"), (f"{formats.duration(left):>5}", "text")]
    full, empty = braille.bar(share, max(4, width - 4 - width_of(tail)), glyphs)
    done: Role = "accent" if summary.is_live else "dim"
    return line((f" {glyphs.bar_left}", "rule"), (full, done), (empty, "rule"), (glyphs.bar_right, "rule"), *tail)


def verdict(summary: RunSummary, width: int, glyphs: Glyphs) -> list[Line]:
    """How an ended run ended, and the word of its diagnosis; nothing for a live one."""
    if summary.is_live or summary.end is None:
        return []
    look = run_look(summary.state)
    glyph = look.sign(glyphs)
    reason = progress.end_words(summary)
    says_how = summary.state == "cancelled" or "exit" in reason  # what a signal ended has its number for a code
    code = f" (exit {summary.end.exit_code})" if summary.end.exit_code and not says_how else ""
    mark = f" {glyph} {look.word}  "
    rows = wrapped(reason + code or " ", width, "", "text", mark=(mark, look.role))
    if summary.failure:
        rows.append(line((f"   {summary.failure}", "bad"), ("  ! ", "key"), ("shows evidence and remedies", "dim")))
    elif summary.state == "cancelled" and not summary.is_adopted:  # of most of these nobody has the script
        rows.append(line(("   r ", "key"), ("starts it again, from a checkpoint if it has one", "dim")))
    return rows


def unfinished_lines(summary: RunSummary, width: int) -> list[Line]:
    """A change of the run that is under way, or was cut off in the middle."""
    return wrapped(summary.unfinished, width, "   ", "attention") if summary.unfinished else []


def symptom_line(summary: RunSummary) -> list[Line]:
    """What a live run suffers from, in a word."""
    if not summary.symptom or not summary.is_live:
        return []
    return [line((f"   {summary.symptom}", "attention"), ("  ! ", "key"), ("shows the numbers and what helps", "dim"))]


def roles_line(summary: RunSummary, width: int, glyphs: Glyphs) -> list[Line]:
    """State of each role while the run loads."""
    if summary.state != "starting" or not summary.stage.roles:
        return []
    spans: list[Span] = []
    for name, state in summary.stage.roles.items():
        ready = state == "ready"
        spans += [
            (f" {glyphs.done if ready else glyphs.pending} ", "ok" if ready else "waiting"),
            (clip(name, 24), "text"),
        ]
        spans.append((f" {clip(state, 20)} ", "dim"))
    return [Line(cut(spans, width, glyphs.ellipsis))]


def section(snapshot: RunSnapshot, glyphs: Glyphs, left: tuple[Span, ...]) -> Section:
    """The stage as the first section of a run's pane."""
    summary = snapshot.summary

    def body(width: int, height: int) -> list[Line]:
        bar = [step_bar(snapshot, width, glyphs)] if has_bar else []
        extra = verdict(summary, width, glyphs) + unfinished_lines(summary, width) + symptom_line(summary)
        extra += roles_line(summary, width, glyphs)
        return [rail(summary, width, glyphs), *bar, *extra][:height]

    # of a run that ended before its first step the bar would only say what the verdict says
    has_bar = summary.is_live or summary.end is None or summary.stage.step is not None
    rows = 1 + has_bar + len(verdict(summary, REASON_CELLS, glyphs)) + len(symptom_line(summary))
    rows += len(unfinished_lines(summary, REASON_CELLS)) + len(roles_line(summary, 80, glyphs))
    spent = progress.elapsed_s(summary, snapshot.taken_at)
    right: tuple[Span, ...] = ((formats.duration(spent), "dim"),) if spent is not None else ()
    job = summary.job
    if job is not None and job.time_limit_s and job.started_at and summary.is_live:
        ran = formats.duration(snapshot.taken_at - job.started_at)
        right = ((f"{ran} of {formats.duration(job.time_limit_s)}", "dim"),)
    if job is not None and job.restarts:
        right = ((f"requeued {job.restarts}{glyphs.times}  ", "attention"), *right)
    if summary.hands_off:
        on = summary.hands_off == "on"
        right = (("hands-off  ", "ok") if on else ("hands-off ended  ", "attention"), *right)
    return Section(left, right, body, least=1 + has_bar, wanted=rows, rank=0)
