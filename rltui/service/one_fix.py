"""One fix for everything that went wrong with a run: what its causes call for, checked together as one change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct, structs

from rltui.diagnose.cause import Recovery
from rltui.diagnose.index import CAUSES
from rltui.diagnose.verdicts import SURE_ENOUGH, Diagnosis
from rltui.errors import RltuiError
from rltui.layout.load import dump_layout, load_text
from rltui.layout.schema import Layout
from rltui.memory.layouts import estimate_roles
from rltui.onnode import rundir
from rltui.runs.claims import parsed
from rltui.runs.directory import load_attempt_layout
from rltui.runs.script_job import LARGEST, ScriptJob, Work, read_script_job
from rltui.service.cockpit import ActionPreview
from rltui.service.context import Context
from rltui.service.damaged_checkpoints import CHECKPOINT_BROKEN, command_of, find_damage, set_aside
from rltui.service.describe import attempt_path, start_words
from rltui.service.fixes import VICTIMS, choose
from rltui.service.hands_off_rules import FROM_OUTSIDE, CauseFix
from rltui.service.recover import Interrupted
from rltui.service.resubmit import changed, preview_resubmit, resubmit
from rltui.service.run_commands import queued_again
from rltui.service.submit import Launched
from rltui.service.why import diagnose_run
from rltui.service.why_advice import TUNING
from rltui.watch.snapshots import RunSummary

_NODE_FILES = (rundir.END, rundir.SLURM)

SHARED_FAULT_NODES = 2
"""From so many nodes on, a fault that all of a run's nodes have is no node's fault."""


class Fix(Struct, frozen=True, kw_only=True):
    """Everything that the causes at hand call for, in one change."""

    causes: tuple[CauseFix, ...] = ()
    overrides: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    set_aside: str = ""

    @property
    def unmended(self) -> tuple[CauseFix, ...]:
        """Causes that need a person: with them in place a new attempt ends the same way.

        What only holds a run up ends none, so it does not stand in the way of what helps against the rest.
        """
        helps = any(one.helps for one in self.causes)
        return tuple(one for one in self.causes if not one.helps and not (helps and one.cause in TUNING))


def compose_fix(context: Context, run: RunSummary, overrides: Sequence[str] = (), exclude: Sequence[str] = ()) -> Fix:
    """What mends ``run``: a change for each of its causes, and the user's own words last.

    Raises:
        RltuiError: Nothing is wrong with it, or nothing that rltui could change mends it.
    """
    context.require_own(run)
    if run.state == "finished":
        raise RltuiError(f"{run.run_id} is finished: there is nothing to fix.")
    left = context.replacements.interrupted(run)
    causes = (_gone_on_with(left),) if left is not None else compose_causes(context, run)
    again = queued_again(run)
    if again:  # a new job would give up this one's place in the queue
        causes = tuple(one for one in causes if one.cause not in FROM_OUTSIDE)
        if not causes and not overrides and not exclude:
            hint = f"rltui update {run.run_id} changes what it waits with; rltui resubmit {run.run_id} --cancel"
            raise RltuiError(f"There is nothing to fix: {again}", f"{hint} drops it for a new job.")
    fix = _put_together(causes, overrides, exclude)
    if not overrides and not exclude:
        _require_remedy(context, run, fix)
    return fix


def _gone_on_with(left: Interrupted) -> CauseFix:
    """The rest of a fix that somebody looked at and confirmed already."""
    return CauseFix(
        cause="interrupted",
        recovery="restart",
        sentence=left.in_words(),
        overrides=left.overrides,
        exclude=left.exclude,
    )


def compose_causes(context: Context, run: RunSummary) -> tuple[CauseFix, ...]:
    """What helps against each cause of ``run`` that is sure enough, the first cause first."""
    causes = [one for one in diagnose_run(context, run) if not one.secondary and one.confidence >= SURE_ENOUGH]
    work = read_script_job(context.cluster.client, attempt_path(run)) or _layout(context, run)
    found: list[CauseFix] = []
    for cause in causes:
        found.append(_fix_of(context, run, work, cause, found))
    return tuple(found)


def preview_fix(context: Context, run: RunSummary, fix: Fix) -> ActionPreview:
    """What ``fix`` does to ``run``: a sentence a cause, the change, and where the new attempt goes on.

    Raises:
        RltuiError: The change is none.
    """
    commands: tuple[str, ...] = ()
    words = [f"{one.cause}: {one.sentence}" for one in fix.causes]
    change = changed(context, run, fix.overrides, fix.exclude)
    if fix.set_aside and (damage := find_damage(context, run)) is not None:
        change = structs.replace(change, start=start_words(damage.before))
        commands = (command_of(run, fix.set_aside),)
        words = words or [f"{CHECKPOINT_BROKEN}: {damage.words}"]
    preview = preview_resubmit(context, run, fix.overrides, fix.exclude, change)
    return structs.replace(
        preview,
        title=f"Fix {run.run_id}?",
        consequences=(*words, *preview.consequences),
        commands=(*commands, *preview.commands),
        set_aside=fix.set_aside,
    )


def carry_out(context: Context, run: RunSummary, fix: Fix, **how: Any) -> Launched:
    """Do what ``fix`` says: a damaged checkpoint is set aside first, then the new attempt is submitted.

    Args:
        context: The run's cluster.
        run: The run as it was seen.
        fix: What is done.
        **how: As of ``resubmit``.

    Raises:
        RltuiError: As ``resubmit``; or the checkpoint is not there any more.
    """
    if fix.set_aside:
        set_aside(context, run, fix.set_aside)
    return resubmit(context, run, fix.overrides, fix.exclude, **how)


def _layout(context: Context, run: RunSummary) -> Layout | None:
    path = attempt_path(run)
    return load_attempt_layout(context.cluster.client, path).layout


def _fix_of(
    context: Context, run: RunSummary, work: Work | None, cause: Diagnosis, before: Sequence[CauseFix]
) -> CauseFix:
    """The first of a cause's remedies that leaves a layout which can run; a person's work where there is none."""
    recovery, against = CAUSES[cause.id].recovery, ""
    for candidate in _candidates(context, run, work, cause, recovery):
        taken = {word.partition("=")[0] for one in before for word in one.overrides}
        own = tuple(word for word in candidate.overrides if word.partition("=")[0] not in taken)
        candidate = structs.replace(candidate, overrides=own)
        if not candidate.helps:
            continue
        refused = _refused(context, run, [*before, candidate])
        if not refused:
            return structs.replace(candidate, is_proven=_fits(work, [*before, candidate]))
        against = against or f" It cannot be done for you: {refused}"
    remedy = next(iter(cause.remedies), None)
    words = remedy.summary + against if remedy is not None else "nothing is known to mend it."
    commands = remedy.commands if remedy is not None else ()
    return CauseFix(cause=cause.id, recovery="person", sentence=words, happened=cause.summary, commands=commands)


def _candidates(
    context: Context, run: RunSummary, work: Work | None, cause: Diagnosis, recovery: Recovery
) -> Iterator[CauseFix]:
    if cause.id in VICTIMS and work is not None and not isinstance(work, ScriptJob):
        try:
            memory = choose(work, (cause,), run.run_id)
        except RltuiError:  # no setting lowers that peak any further
            return
        words = "; ".join(memory.words[1:] or memory.words)
        yield CauseFix(cause=cause.id, recovery=recovery, sentence=words, overrides=memory.overrides)
        return
    damage = find_damage(context, run) if cause.id == CHECKPOINT_BROKEN and not isinstance(work, ScriptJob) else None
    if damage is not None:
        yield CauseFix(cause=cause.id, recovery="restart", sentence=damage.words, set_aside=damage.name)
    nodes = _nodes_to_blame(context, run)
    for remedy in cause.remedies:
        exclude = tuple(node for node in remedy.exclude if node not in nodes.everywhere)
        if remedy.safe != "never" and (remedy.overrides or exclude):
            yield CauseFix(
                cause=cause.id,
                recovery=recovery,
                sentence=remedy.summary,
                overrides=_own_words(work, remedy.overrides),
                exclude=exclude,
            )
    if recovery == "elsewhere" and nodes.bad:
        words = f"keeps away from {', '.join(nodes.bad)}"
        yield CauseFix(cause=cause.id, recovery=recovery, sentence=words, exclude=nodes.bad)
    if recovery == "restart":
        words = "a new attempt from the newest checkpoint, as it was not the run's own doing"
        yield CauseFix(cause=cause.id, recovery=recovery, sentence=words)


class _Nodes(Struct, frozen=True):
    """Nodes that evidence blames, and those of a fault that all of them have."""

    bad: tuple[str, ...] = ()
    everywhere: frozenset[str] = frozenset()


def _nodes_to_blame(context: Context, run: RunSummary) -> _Nodes:
    """Nodes that the attempt's end or the scheduler names; where all of several are bad, it is none of them."""
    texts = {file.path: file.text for file in context.cluster.client.collect(attempt_path(run), _NODE_FILES, LARGEST)}
    ended, started = (parsed(texts.get(name)) for name in _NODE_FILES)
    of_job = run.job.failed_nodes if run.job is not None else ()
    bad = tuple(dict.fromkeys([*ended.get("bad_nodes", {}), *of_job]))
    nodes = started.get("nodes", [])
    if len(nodes) >= SHARED_FAULT_NODES and set(bad) >= set(nodes):
        return _Nodes((), frozenset(nodes))
    return _Nodes(bad)


def _own_words(work: Work | None, overrides: Sequence[str]) -> tuple[str, ...]:
    """Changes that a script's system has words for; a layout takes all."""
    if not isinstance(work, ScriptJob):
        return tuple(overrides)
    return tuple(word for word in overrides if work.dialect.own_words(word))


def _refused(context: Context, run: RunSummary, parts: Sequence[CauseFix]) -> str:
    """Why the next attempt cannot start with all of ``parts``; empty where it can."""
    fix = _put_together(parts, (), ())
    try:
        report = changed(context, run, fix.overrides, fix.exclude).report
    except RltuiError as error:
        return error.in_one_line
    errors = [finding.message for finding in report.findings if finding.severity == "error"] if report else []
    return errors[0] if errors else ""


def _fits(work: Work | None, parts: Sequence[CauseFix]) -> bool:
    """Whether the estimate says of every role that it fits with all changes of ``parts``; True where there are none."""
    words = _put_together(parts, (), ()).overrides
    if not words:
        return True
    if work is None or isinstance(work, ScriptJob):
        return False
    try:
        roles = estimate_roles(load_text(dump_layout(work), "", words).layout).roles
    except RltuiError:
        return False
    return all(role.verdict in ("fits", "tight") for role in roles)


def _put_together(parts: Sequence[CauseFix], overrides: Sequence[str], exclude: Sequence[str]) -> Fix:
    words = [word for one in parts for word in one.overrides]
    nodes = [node for one in parts for node in one.exclude]
    return Fix(
        causes=tuple(parts),
        overrides=tuple(dict.fromkeys([*words, *overrides])),
        exclude=tuple(dict.fromkeys([*nodes, *exclude])),
        set_aside=next((one.set_aside for one in parts if one.set_aside), ""),
    )


def _require_remedy(context: Context, run: RunSummary, fix: Fix) -> None:
    """Refuse to start again what would end the same way, or what nothing is known to be wrong with."""
    if not fix.causes:
        ended = "was cancelled" if run.state == "cancelled" else "ended for no known cause"
        live = "is live and nothing is known to be wrong with it" if run.is_live else ended
        raise RltuiError(
            f"{run.run_id} {live}: there is no fix to offer.",
            f"rltui why {run.run_id} shows what is known; rltui resubmit {run.run_id} [key=value …] starts it again.",
        )
    if fix.unmended:
        first = fix.unmended[0]
        todo = f" {first.commands[0]}" if first.commands else ""
        raise RltuiError(f"{first.cause} needs you: {first.sentence}{todo}", _by_hand(context, run))


def _by_hand(context: Context, run: RunSummary) -> str:
    """How ``run`` is started again once somebody has done what rltui cannot."""
    script = read_script_job(context.cluster.client, attempt_path(run))
    if script is not None and script.script and not script.passes_words:  # without --script its old copy would run
        return f"Then: rltui resubmit {run.run_id} --script {script.source}, which you have edited."
    return f"Then: rltui resubmit {run.run_id}. A change of your own goes along: rltui fix {run.run_id} key=value …"
