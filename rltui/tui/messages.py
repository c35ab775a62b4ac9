"""All messages of the cockpit, in one place: what the controller's threads and the widgets tell the screens.

Each carries one frozen snapshot or a few words. A picture replaces an older one of the same thing that still waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from textual.message import Message

if TYPE_CHECKING:
    from rltui.layout.fields import Field
    from rltui.service.cluster_queue import ClusterQueue
    from rltui.service.cockpit import ActionPreview, ClusterSummary, OpenJob, WhyReport
    from rltui.service.config import RunConfig
    from rltui.service.doors import PendingQuestion
    from rltui.service.launch_review import LaunchReview, PresetSummary
    from rltui.service.node_shell import NodeShell
    from rltui.service.outlook import LaunchOutlook
    from rltui.service.run_events import Event
    from rltui.service.shell import ShellCommand
    from rltui.service.wandb_place import WandbPlace
    from rltui.tui.refresh import Source
    from rltui.watch.log_search import LogQuery, Searched
    from rltui.watch.samples import SampleGroup, SampleQuery, SamplesFound
    from rltui.watch.snapshots import LogPart, RunSnapshot, RunsSnapshot

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
    run_id: str
    overrides: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    signal: str = ""

    @property
    def runs(self) -> tuple[str, ...]:
        """All runs that it is for."""
        return (self.run_id, *self.others)

    @property
    def words(self) -> str:
        """What is asked, in words."""
        words = f"send SIG{self.signal} to" if self.signal else ACTION_WORDS[self.action]
        return f"{words} {f'{len(self.runs)} runs' if self.others else self.run_id}"

    def each(self) -> tuple[Ask, ...]:
        """The same for each run alone."""
        return tuple(self._replace(run_id=run_id, others=()) for run_id in self.runs)


class CockpitMessage(Message, bubble=False):
    """What the controller posts to the application, from any thread."""


class RunsFetched(CockpitMessage):
    """A picture of all runs."""

    def __init__(self, snapshot: RunsSnapshot) -> None:
        super().__init__()
        self.snapshot = snapshot

    def can_replace(self, message: Message) -> bool:
        """A newer picture of all runs is enough."""
        return isinstance(message, RunsFetched)


class Happened(CockpitMessage):
    """Something happened to a run that people may want to be told."""

    def __init__(self, event: Event, terminal: str) -> None:
        super().__init__()
        self.event = event
        self.terminal = terminal
        """What this terminal is to be sent: ``bell``, ``osc9``, ``osc777`` or ``none``."""


class NotTold(CockpitMessage):
    """Somebody was to be told of a run, and could not be."""

    def __init__(self, sentence: str) -> None:
        super().__init__()
        self.sentence = sentence


class RunFetched(CockpitMessage):
    """A picture of one run."""

    def __init__(self, snapshot: RunSnapshot) -> None:
        super().__init__()
        self.snapshot = snapshot

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.snapshot.summary.run_id

    def can_replace(self, message: Message) -> bool:
        """A newer picture of the same run is enough."""
        return isinstance(message, RunFetched) and message.run_id == self.run_id


class FetchFailed(CockpitMessage):
    """A source could not be read; it will be tried again."""

    def __init__(self, source: Source, run_id: str, error: str, hint: str) -> None:
        super().__init__()
        self.source: Source = source
        self.run_id = run_id
        self.error = error
        self.hint = hint


class PresetsFetched(CockpitMessage):
    """The presets that can be launched."""

    def __init__(self, presets: tuple[PresetSummary, ...]) -> None:
        super().__init__()
        self.presets = presets


class ReviewFetched(CockpitMessage):
    """What launching a preset with these overrides would do."""

    def __init__(self, review: LaunchReview) -> None:
        super().__init__()
        self.review = review


class OutlookFetched(CockpitMessage):
    """When a launch would start, and what is different from the last run of that name."""

    def __init__(self, outlook: LaunchOutlook) -> None:
        super().__init__()
        self.outlook = outlook


class PreviewFetched(CockpitMessage):
    """What an action would do."""

    def __init__(self, ask: Ask, preview: ActionPreview) -> None:
        super().__init__()
        self.ask = ask
        self.preview = preview


class ClustersFetched(CockpitMessage):
    """The clusters, and how they are."""

    def __init__(self, clusters: tuple[ClusterSummary, ...]) -> None:
        super().__init__()
        self.clusters = clusters


class WhyFetched(CockpitMessage):
    """Why a run died or stands still."""

    def __init__(self, report: WhyReport) -> None:
        super().__init__()
        self.report = report


class FoundLine(NamedTuple):
    """A line that a search of whole logs found: when it was written, its log, its number from 1, where it begins."""

    at: float
    log: str
    line: int
    offset: int


def newest_lines(found: list[FoundLine], piece: Searched, most: int) -> list[FoundLine]:
    """``found`` and what one more piece of a search brought, by time, at most the newest ``most``."""
    times = piece.times or (0.0,) * len(piece.hits)
    lines = zip(times, piece.hits, strict=True)
    new = [FoundLine(at, hit.log, hit.line, hit.offset) for at, hit in lines]
    return sorted(found + new, key=lambda one: one.at)[-most:]


class LogSearched(CockpitMessage):
    """How far a search of whole logs is, and what it has found: the newest hits, oldest first."""

    def __init__(self, run_id: str, name: str, query: LogQuery, hits: tuple[FoundLine, ...], share: float) -> None:
        super().__init__()
        self.run_id, self.name, self.query, self.share = run_id, name, query, share
        self.hits = hits


class SamplesArrived(CockpitMessage):
    """What a search for samples has found so far, and how far it is."""

    def __init__(self, run_id: str, query: SampleQuery, found: SamplesFound) -> None:
        super().__init__()
        self.run_id, self.query, self.found = run_id, query, found


class SampleRead(CockpitMessage):
    """A sample in full, with its siblings."""

    def __init__(self, run_id: str, group: SampleGroup) -> None:
        super().__init__()
        self.run_id, self.group = run_id, group


class BesideFetched(CockpitMessage):
    """A picture of a run that is drawn over the charts of another."""

    def __init__(self, run_id: str, snapshot: RunSnapshot) -> None:
        super().__init__()
        self.run_id, self.snapshot = run_id, snapshot


class WandbFound(CockpitMessage):
    """Where W&B has a run."""

    def __init__(self, run_id: str, place: WandbPlace) -> None:
        super().__init__()
        self.run_id, self.place = run_id, place


class ConfigRead(CockpitMessage):
    """Every setting of an attempt, and where each comes from."""

    def __init__(self, run_id: str, config: RunConfig) -> None:
        super().__init__()
        self.run_id, self.config = run_id, config


class LogPartFetched(CockpitMessage):
    """A piece of a log of a run."""

    def __init__(self, run_id: str, part: LogPart) -> None:
        super().__init__()
        self.run_id = run_id
        self.part = part


class NodeReportFetched(CockpitMessage):
    """What is remembered against a node, as a text for the site's administrators."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class QuestionAsked(CockpitMessage):
    """A cluster asks for something on the way in: a password, a one-time code, a look at its host key."""

    def __init__(self, cluster: str, pending: PendingQuestion) -> None:
        super().__init__()
        self.cluster = cluster
        self.pending = pending


class Connected(CockpitMessage):
    """A cluster that needed somebody was let in, or was not; ``sentence`` says what came of it."""

    def __init__(self, cluster: str, sentence: str) -> None:
        super().__init__()
        self.cluster = cluster
        self.sentence = sentence


class ActionDone(CockpitMessage):
    """An action was carried out; ``sentence`` says what was done."""

    def __init__(self, ask: Ask, sentence: str) -> None:
        super().__init__()
        self.ask = ask
        self.sentence = sentence


class Launched(CockpitMessage):
    """A run was launched, or all runs of a sweep."""

    def __init__(self, run_ids: tuple[str, ...]) -> None:
        super().__init__()
        self.run_ids = run_ids
        self.sentence = f"launched {run_ids[0]}{f' and {len(run_ids) - 1} more of its sweep' if run_ids[1:] else ''}"


class FieldsRead(CockpitMessage):
    """A layout as a form."""

    def __init__(self, preset: str, overrides: tuple[str, ...], fields: tuple[Field, ...]) -> None:
        super().__init__()
        self.preset = preset
        self.overrides = overrides
        self.fields = fields


class NodeShellReady(CockpitMessage):
    """A shell where a run is can be opened."""

    def __init__(self, run_id: str, shell: NodeShell) -> None:
        super().__init__()
        self.run_id = run_id
        self.shell = shell


def shell_phrase(run_id: str) -> str:
    """What is asked for a shell, in words."""
    return f"open a shell of {run_id}"


class JobsFetched(CockpitMessage):
    """The user's jobs that are no runs."""

    def __init__(self, jobs: tuple[OpenJob, ...]) -> None:
        super().__init__()
        self.jobs = jobs


class QueueFetched(CockpitMessage):
    """Everybody's jobs on a cluster."""

    def __init__(self, queue: ClusterQueue) -> None:
        super().__init__()
        self.queue = queue


class Adopted(CockpitMessage):
    """A job became a run."""

    def __init__(self, run_id: str) -> None:
        super().__init__()
        self.run_id = run_id
        self.sentence = f"{run_id} is a run now"


class ShellHeard(CockpitMessage):
    """A verb of the shell printed more, or ended."""

    def __init__(self, command: ShellCommand) -> None:
        super().__init__()
        self.command = command

    def can_replace(self, message: Message) -> bool:
        """The command itself has all that it printed."""
        return isinstance(message, ShellHeard) and message.command is self.command


class RequestFailed(CockpitMessage):
    """Something that was asked for did not work out; ``asked`` is a verb phrase such as ``launch local/grpo-tiny``."""

    def __init__(self, asked: str, error: str, hint: str) -> None:
        super().__init__()
        self.asked = asked
        self.error = error
        self.hint = hint


SEARCH_SAMPLES = "search the samples"
READ_CONFIG = "read the settings"
LIST_JOBS = "list the jobs"
"""The verb phrase of asking for jobs that are no runs."""


def why_phrase(run_id: str) -> str:
    """The verb phrase of asking why a run died."""
    return f"why {run_id}"


class CursorMoved(Message):
    """The mouse has moved the cursor of a list; of keys the screen knows itself."""

    def can_replace(self, message: Message) -> bool:
        """Only where the cursor ends counts."""
        return isinstance(message, CursorMoved) and message._sender is self._sender


class LogEdge(Message):
    """Somebody wants to see on beyond the first (-1) or last (1) line of a log's pane."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step


class LineOpened(Message):
    """A line of a list was double-clicked."""
