"""What the services hand to a screen, and what it may ask of them: data only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec import Struct

from rltui.cluster.jobs import JobSnapshot
from rltui.watch.snapshots import RunIdentity

if TYPE_CHECKING:
    from rltui.check.findings import Finding
    from rltui.diagnose.verdicts import Diagnosis


class OpenJob(Struct, frozen=True, kw_only=True):
    """A job of the user's that is no run."""

    cluster: str
    job: JobSnapshot


Action = Literal["cancel", "resubmit", "exclude", "lower_memory", "edit", "fix", "auto", "signal"]
"""All but ``cancel``, ``auto`` and ``signal`` end in a resubmission: as it was, without some nodes, with less memory,
with edits, with what its causes call for."""

ACTION_WORDS: dict[Action, str] = {
    "cancel": "cancel",
    "resubmit": "resubmit",
    "exclude": "exclude nodes and resubmit",
    "lower_memory": "lower the memory peak and resubmit",
    "edit": "resubmit with changes",
    "fix": "fix",
    "auto": "switch hands-off mode of",
    "signal": "send a signal to",
}


class Ask(NamedTuple):
    """An action that is asked about: on which run, with what change, and on which ``others`` the same."""

    action: Action
    run: RunIdentity
    overrides: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    others: tuple[RunIdentity, ...] = ()
    signal: str = ""
    set_aside: str = ""
    """A damaged checkpoint that a resubmission is to rename first."""
    script: str = ""
    """Of a script's run: the edited file that the new attempt is to run."""

    @property
    def runs(self) -> tuple[RunIdentity, ...]:
        """All runs that it is for."""
        return (self.run, *self.others)

    @property
    def words(self) -> str:
        """What is asked, in words."""
        words = f"send SIG{self.signal} to" if self.signal else ACTION_WORDS[self.action]
        return f"{words} {f'{len(self.runs)} runs' if self.others else self.run.run_id}"

    def each(self) -> tuple[Ask, ...]:
        """The same for each run alone."""
        return tuple(self._replace(run=run, others=()) for run in self.runs)


class ActionPreview(Struct, frozen=True, kw_only=True):
    """What a destructive action would do, shown before it is confirmed; its target is fixed here."""

    run: RunIdentity
    title: str
    """A question, such as ``Cancel grpo-tiny-1a2b?``."""
    consequences: tuple[str, ...]
    """Plain sentences: age, step, newest checkpoint, what will be lost."""
    commands: tuple[str, ...]
    diff: tuple[str, ...] = ()
    """Lines of the layout's change, ``- roles.rollout.memory_utilization: 0.9`` and ``+ …: 0.8``."""
    findings: tuple[Finding, ...] = ()
    """What a check says of the changed layout."""
    overrides: tuple[str, ...] = ()
    """The change as ``key.path=value`` words; handing them to the action does exactly what is shown."""
    exclude: tuple[str, ...] = ()
    """Nodes that the new attempt keeps away from."""
    set_aside: str = ""
    """A damaged checkpoint that is renamed first."""
    script: str = ""
    """The edited file that the new attempt runs, if it is one."""
    switches_on: bool = False
    """Of hands-off mode: whether a yes switches it on; else it ends it."""
    parts: tuple[ActionPreview, ...] = ()
    """Of an action on several runs: what it does to each."""

    @classmethod
    def of(cls, run: RunIdentity, title: str, consequences: Iterable[str], command: str) -> ActionPreview:
        """A preview of what one ``command`` does, and that changes no layout."""
        return cls(run=run, title=title, consequences=tuple(consequences), commands=(command,))


class ClusterSummary(Struct, frozen=True, kw_only=True):
    """One row of the list of clusters."""

    name: str
    summary: str = ""
    scheduler: str = "local"
    place: str = ""
    """Where it is: ``this machine`` or the SSH host."""
    problem: str = ""
    """Why it is away; empty where it answers or has not been asked yet."""
    needs_attention: bool = False
    """Whether somebody must act before it is asked again: a prompt, an unknown host key, a failed authentication."""
    answered_at: float = 0.0
    """When it last answered, by this machine's clock; 0: never in this session."""


class WhyReport(Struct, frozen=True, kw_only=True):
    """What `!` shows of a run: its causes, evidence and remedies."""

    run: RunIdentity
    headline: str
    """The cause in one sentence, or that none is known and what to collect."""
    findings: tuple[Diagnosis, ...] = ()
    """Causes first, then what followed from them."""
    exception: tuple[str, int, str] | None = None
    """Where no cause is known: file, line and text of the first exception, out of its wrappers."""
    notes: tuple[str, ...] = ()
    """What else there is to say then: the exception's frames, and what is different since the last good attempt."""
