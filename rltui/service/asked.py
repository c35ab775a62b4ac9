"""An action that somebody asks for on one run, by its name: what it would do, and doing exactly that."""

from __future__ import annotations

from msgspec import structs

from rltui.service import actions
from rltui.service.cockpit import ActionPreview, Ask
from rltui.service.context import Context
from rltui.service.fixes import lower_memory
from rltui.service.hands_off_rules import Policy
from rltui.service.hands_off_switch import preview_switch, switch_off, switch_on
from rltui.service.one_fix import Fix, compose_fix, preview_fix
from rltui.service.one_fix import carry_out as do_fix
from rltui.service.resubmit import changed, preview_resubmit
from rltui.watch.snapshots import RunSummary


def preview(context: Context, run: RunSummary, ask: Ask) -> ActionPreview:
    """What ``ask`` would do to ``run``; a live run that is resubmitted is cancelled first.

    Raises:
        RltuiError: It cannot be done.
    """
    if ask.action == "cancel":
        return actions.preview_cancel(context, run)
    if ask.action == "signal":
        return actions.preview_signal(context, run, ask.signal)
    if ask.action == "auto":
        return preview_switch(context, run)
    if ask.action == "fix":
        return preview_fix(context, run, compose_fix(context, run))
    if ask.action == "lower_memory":
        return _preview_lower_memory(context, run)
    if ask.set_aside:
        return preview_fix(context, run, _fix(ask))
    change = changed(context, run, ask.overrides, ask.exclude, ask.script)
    return preview_resubmit(context, run, ask.overrides, ask.exclude, change)


def _preview_lower_memory(context: Context, run: RunSummary) -> ActionPreview:
    fix = lower_memory(context, run)
    shown = preview_resubmit(context, run, fix.overrides)
    title = f"Lower the memory peak of {run.run_id} and resubmit it?"
    return structs.replace(shown, title=title, consequences=(*fix.words, *shown.consequences))


def carry_out(context: Context, run: RunSummary, ask: Ask, shown: ActionPreview) -> str:
    """Do exactly what was shown; returns one sentence on what was done.

    Raises:
        RltuiError: It was not done.
    """
    if ask.action == "cancel":
        return actions.cancel(context, run)
    if ask.action == "signal":
        return actions.send_signal(context, run, ask.signal)
    if ask.action == "auto":
        return let_go_on(context, run) if shown.switches_on else switch_off(context, run)
    launched = do_fix(context, run, _fix(shown), cancel_first=True, script=shown.script)
    return f"Attempt {launched.attempt} of {launched.run_id} is on its way."


def let_go_on(context: Context, run: RunSummary) -> str:
    """Let ``run`` go on by itself from now on, within the usual limits; returns one sentence on what was done."""
    return switch_on(context, run, Policy())


def _fix(change: Ask | ActionPreview) -> Fix:
    return Fix(overrides=change.overrides, exclude=change.exclude, set_aside=change.set_aside)
