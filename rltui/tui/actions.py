"""Actions of one run or of several marked ones: what they would do together, and doing exactly that."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from rltui.errors import RltuiError, tried
from rltui.service.cockpit import ACTION_WORDS, ActionPreview, Ask
from rltui.watch.snapshots import names_of

if TYPE_CHECKING:
    from rltui.service.live_cockpit import LiveCockpit


def preview(cockpit: LiveCockpit, ask: Ask) -> ActionPreview:
    """What ``ask`` would do.

    Of several runs, one for which it is refused is left alone and named with the reason; the others are its parts.

    Raises:
        RltuiError: It cannot be done to any of them.
    """
    if not ask.others:
        return cockpit.preview(ask)
    names = names_of(ask.runs)
    answers = [(names[one.run], *tried(partial(_changeable, cockpit, one))) for one in ask.each()]
    parts = tuple(part for _, part, _ in answers if part is not None)
    left_alone = [f"{name} is left alone: {error.message}" for name, _, error in answers if error is not None]
    if not parts:
        raise RltuiError(f"none of the {len(ask.runs)} can be changed so.", "\n".join(left_alone))
    return _together(ask, parts, left_alone)


def carry_out(cockpit: LiveCockpit, ask: Ask, shown: ActionPreview) -> str:
    """Do exactly what was shown, of several runs one after the other; returns what was done, in a sentence.

    Raises:
        RltuiError: It was not done; of several, what did not work is named with what did.
    """
    if not ask.others:
        return cockpit.carry_out(ask, shown)
    names = names_of(ask.runs)
    asks = [(ask._replace(run=part.run, others=()), part) for part in shown.parts]
    answers = [(names[one.run], *tried(partial(cockpit.carry_out, one, part))) for one, part in asks]
    done = [name for name, sentence, _ in answers if sentence is not None]
    failed = [f"{name}: {error.message}" for name, _, error in answers if error is not None]
    if failed:
        raise RltuiError(f"done for {len(done)} of {len(answers)}.", "\n".join(failed))
    return f"{ACTION_WORDS[ask.action]}: done for {len(done)}, {', '.join(done)}"


def _changeable(cockpit: LiveCockpit, ask: Ask) -> ActionPreview:
    """The preview of one run; what stands in its way is raised, as it is not to stand in the way of the others."""
    shown = cockpit.preview(ask)
    for finding in shown.findings:
        if finding.severity == "error":
            raise RltuiError(f"{finding.code} {finding.message}")
    return shown


def _together(ask: Ask, parts: tuple[ActionPreview, ...], left_alone: list[str]) -> ActionPreview:
    names = names_of(ask.runs)
    sentences = [f"{names[one.run]}: {'; '.join(text.rstrip('.') for text in one.consequences)}" for one in parts]
    changes = [line for one in parts if one.diff for line in (f" {names[one.run]}", *one.diff)]
    return ActionPreview(
        run=ask.run,
        title=f"{ACTION_WORDS[ask.action].capitalize()} {len(parts)} runs?",
        consequences=(*sentences, *left_alone),
        commands=tuple(command for one in parts for command in one.commands),
        diff=tuple(changes),
        findings=tuple(
            structs.replace(finding, message=f"{names[one.run]}: {finding.message}")
            for one in parts
            for finding in one.findings
        ),
        parts=parts,
    )
