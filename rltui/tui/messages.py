"""All messages of the cockpit, in one place: what the controller's threads and the widgets tell the screens.

Each carries one frozen snapshot or a few words. A picture replaces an older one of the same thing that still waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from textual.message import Message
from typing_extensions import dataclass_transform

if TYPE_CHECKING:
    from rltui.cluster.prompts import PendingQuestion
    from rltui.layout.fields import Field
    from rltui.service.cluster_queue import ClusterQueue
    from rltui.service.cockpit import ActionPreview, Ask, ClusterSummary, OpenJob, WhyReport
    from rltui.service.config import RunConfig
    from rltui.service.launch_review import LaunchReview, PresetSummary
    from rltui.service.node_shell import NodeShell
    from rltui.service.review import LaunchOutlook
    from rltui.service.run_events import Event
    from rltui.service.shell import ShellCommand
    from rltui.service.wandb_place import WandbPlace
    from rltui.tui.refresh import Source
    from rltui.watch.log_search import LogQuery, Searched
    from rltui.watch.samples import SampleGroup, SampleQuery, SamplesFound
    from rltui.watch.snapshots import LogPart, RunIdentity, RunSnapshot, RunsSnapshot


@dataclass_transform(eq_default=False)
class CockpitMessage(Message, bubble=False):
    """What the controller posts to the application, from any thread; made of its attributes, in their order."""

    def __init__(self, *values: object) -> None:
        super().__init__()
        for name, value in zip(type(self).__annotations__, values, strict=True):
            setattr(self, name, value)


class ScreenMessage(CockpitMessage, bubble=False):
    """What the application hands to every screen as it is; each takes what concerns it."""


class RunsFetched(CockpitMessage):
    """A picture of all runs."""

    snapshot: RunsSnapshot

    def can_replace(self, message: Message) -> bool:
        """A newer picture of all runs is enough."""
        return isinstance(message, RunsFetched)


class Happened(CockpitMessage):
    """Something happened to a run that people may want to be told."""

    event: Event
    terminal: str
    """What this terminal is to be sent: ``bell``, ``osc9``, ``osc777`` or ``none``."""


class NotTold(CockpitMessage):
    """Somebody was to be told of a run, and could not be."""

    sentence: str


class RunFetched(CockpitMessage):
    """A picture of one run."""

    snapshot: RunSnapshot

    @property
    def run(self) -> RunIdentity:
        """Which run this is a picture of."""
        return self.snapshot.summary.identity

    def can_replace(self, message: Message) -> bool:
        """A newer picture of the same run is enough."""
        return isinstance(message, RunFetched) and message.run == self.run


class FetchFailed(CockpitMessage):
    """A source could not be read; it will be tried again."""

    source: Source
    error: str
    hint: str


class PresetsFetched(ScreenMessage):
    """The presets that can be launched."""

    presets: tuple[PresetSummary, ...]


class ReviewFetched(ScreenMessage):
    """What launching a preset with these overrides would do."""

    review: LaunchReview


class OutlookFetched(ScreenMessage):
    """When a launch would start, and what is different from the last run of that name."""

    outlook: LaunchOutlook


class PreviewFetched(CockpitMessage):
    """What an action would do."""

    ask: Ask
    preview: ActionPreview


class ClustersFetched(CockpitMessage):
    """The clusters, and how they are."""

    clusters: tuple[ClusterSummary, ...]


class WhyFetched(CockpitMessage):
    """Why a run died or stands still."""

    report: WhyReport


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


class LogSearched(ScreenMessage):
    """How far a search of whole logs is, and what it has found: the newest hits, oldest first."""

    run: RunIdentity
    name: str
    query: LogQuery
    hits: tuple[FoundLine, ...]
    share: float


class SamplesArrived(ScreenMessage):
    """What a search for samples has found so far, and how far it is."""

    run: RunIdentity
    query: SampleQuery
    found: SamplesFound


class SampleRead(ScreenMessage):
    """A sample in full, with its siblings."""

    run: RunIdentity
    group: SampleGroup


class BesideFetched(ScreenMessage):
    """A picture of a run that is drawn over the charts of another."""

    run: RunIdentity
    snapshot: RunSnapshot


class WandbFound(ScreenMessage):
    """Where W&B has a run."""

    run: RunIdentity
    place: WandbPlace


class ConfigRead(ScreenMessage):
    """Every setting of an attempt, and where each comes from."""

    run: RunIdentity
    config: RunConfig


class LogPartFetched(ScreenMessage):
    """A piece of a log of a run."""

    run: RunIdentity
    part: LogPart


class NodeReportFetched(CockpitMessage):
    """What is remembered against a node, as a text for the site's administrators."""

    text: str


class QuestionAsked(CockpitMessage):
    """A cluster asks for something on the way in: a password, a one-time code, a look at its host key."""

    cluster: str
    pending: PendingQuestion


class Connected(CockpitMessage):
    """A cluster that needed somebody was let in, or was not; ``sentence`` says what came of it."""

    cluster: str
    sentence: str


def launch_phrase(preset: str) -> str:
    """The verb phrase of launching."""
    return f"launch {preset}"


class ActionDone(CockpitMessage):
    """An action was carried out; ``sentence`` says what was done."""

    ask: Ask
    sentence: str


class Launched(CockpitMessage):
    """A run was launched, or all runs of a sweep."""

    runs: tuple[RunIdentity, ...]

    @property
    def sentence(self) -> str:
        """What to say of it."""
        more = f" and {len(self.runs) - 1} more of its sweep" if self.runs[1:] else ""
        return f"launched {self.runs[0].run_id}{more}"


class FieldsRead(ScreenMessage):
    """A layout as a form."""

    preset: str
    overrides: tuple[str, ...]
    fields: tuple[Field, ...]


class NodeShellReady(ScreenMessage):
    """A shell where a run is can be opened."""

    run: RunIdentity
    shell: NodeShell


def shell_phrase(run: RunIdentity) -> str:
    """What is asked for a shell, in words."""
    return f"open a shell of {run.run_id}"


class JobsFetched(ScreenMessage):
    """The user's jobs that are no runs."""

    jobs: tuple[OpenJob, ...]


class QueueFetched(ScreenMessage):
    """Everybody's jobs on a cluster."""

    queue: ClusterQueue


class Adopted(CockpitMessage):
    """A job became a run."""

    run_id: str

    @property
    def sentence(self) -> str:
        """What to say of it."""
        return f"{self.run_id} is a run now"


class ShellHeard(ScreenMessage):
    """A verb of the shell printed more, or ended."""

    command: ShellCommand

    def can_replace(self, message: Message) -> bool:
        """The command itself has all that it printed."""
        return isinstance(message, ShellHeard) and message.command is self.command


class RequestFailed(CockpitMessage):
    """Something that was asked for did not work out; ``asked`` is a verb phrase such as ``launch local/grpo-tiny``."""

    asked: str
    error: str
    hint: str


SEARCH_SAMPLES = "search the samples"
READ_CONFIG = "read the settings"
LIST_JOBS = "list the jobs"
"""The verb phrase of asking for jobs that are no runs."""


def why_phrase(run: RunIdentity) -> str:
    """The verb phrase of asking why a run died."""
    return f"why {run.run_id}"


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
