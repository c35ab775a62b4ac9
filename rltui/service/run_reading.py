"""What a cockpit reads of one run when somebody asks: logs, samples, settings, causes; of any run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from rltui.errors import UsageError
from rltui.paths import cache_dir, ensure_private
from rltui.runs.claims import if_there
from rltui.runs.directory import read_layout
from rltui.service.describe import attempt_path
from rltui.service.log_stream import read_piece, search_run
from rltui.watch.log_part import read_part

if TYPE_CHECKING:
    from rltui.service.cockpit import WhyReport
    from rltui.service.config import RunConfig
    from rltui.service.context import Context
    from rltui.service.wandb_place import WandbPlace
    from rltui.watch.log_search import LogQuery, Searched
    from rltui.watch.samples import Sample, SampleGroup, SampleQuery, SamplesFound
    from rltui.watch.snapshots import LogPart, RunIdentity, RunSnapshot, RunSummary


def stragglers_in(picture: RunSnapshot) -> frozenset[tuple[str, int]]:
    """Node and index of the cards of a live run that their peers wait for."""
    if not picture.summary.is_live or not any(host.gpus for host in picture.hosts):
        return frozenset()
    from rltui.service.run_picture import stragglers_of

    return stragglers_of(picture)


class RunReading:
    """What only reads a run's files, of a run that is there; otherwise it raises ``RltuiError``."""

    def _found(self, run: RunIdentity) -> tuple[Context, RunSummary]:
        """Where a run's files are, and its newest row."""
        raise NotImplementedError

    def log_part(self, run: RunIdentity, name: str, line: int, offset: int | None = None) -> LogPart:
        """The piece of a log of the newest attempt around ``line`` (counted from 1), which begins at ``offset``.

        Raises:
            RltuiError: The run or the log is not there.
        """
        context, row = self._found(run)
        return read_part(context.cluster.client, attempt_path(row), name, line, offset)

    def log_piece(
        self, run: RunIdentity, name: str, place: Mapping[str, int] | None, at: float | None = None
    ) -> LogPart:
        """A piece of a log of the newest attempt, or of all merged (``*``), around a place.

        Args:
            run: The run.
            name: The log, as in ``watch``.
            place: By log, bytes before the place; None: the end.
            at: When the line there was written, where ``place`` has only its log.
        """
        context, row = self._found(run)
        return read_piece(context.cluster.client, row, name, place, at)

    def search_log(self, run: RunIdentity, name: str, query: LogQuery) -> Iterator[Searched]:
        """Search a whole log of the newest attempt, or all (``*``), piece by piece.

        Raises:
            RltuiError: The run or the log is not there, or the pattern cannot be read.
        """
        context, row = self._found(run)
        return search_run(context.cluster.client, row, name, query)

    def samples(self, run: RunIdentity, query: SampleQuery) -> Iterator[SamplesFound]:
        """Search the samples of the newest attempt, or of the run's evaluations, piece by piece.

        Raises:
            RltuiError: The run is not there, or its samples cannot be ranked or searched so.
        """
        from rltui.service.samples import samples_of

        return samples_of(*self._found(run), query)

    def sample(self, run: RunIdentity, sample: Sample, evaluation: bool = False) -> SampleGroup:
        """A sample in full, with the other answers to its prompt.

        Raises:
            RltuiError: It is not there any more.
        """
        from rltui.service.samples import group_of

        return group_of(*self._found(run), sample, evaluation=evaluation)

    def config(self, run: RunIdentity) -> RunConfig:
        """Every setting of the newest attempt, where each comes from, and what it was in the attempt before.

        Raises:
            RltuiError: The run is not there, or its settings cannot be read.
        """
        from rltui.service.config import read_config

        return read_config(*self._found(run))

    def layout_file(self, run: RunIdentity) -> str:
        """A copy of the run's layout on this machine, for what reads and judges files."""
        context, row = self._found(run)
        text = if_there(lambda: read_layout(context.cluster.client, attempt_path(row)))
        if text is None:
            raise UsageError(f"{row.run_id} has no layout: it runs a script.", "s takes the words behind it.")
        path = ensure_private(cache_dir() / "layouts") / f"{row.identity}.yaml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    def wandb(self, run: RunIdentity) -> WandbPlace:
        """Where W&B has a run.

        Raises:
            RltuiError: The run is not there, or has left nothing of W&B.
        """
        from rltui.service.wandb_place import wandb_place

        return wandb_place(*self._found(run))

    def why(self, run: RunIdentity) -> WhyReport:
        """Why the run died or stands still, from its logs, stages, samples and the scheduler's word."""
        from rltui.service.attempt_differences import unexplained
        from rltui.service.why import examine_run, why_report

        context, row = self._found(run)
        found = examine_run(context, row)
        different = unexplained(context.cluster.client, row, found)
        return why_report(row, found, different, context.replacements.unfinished_words(row))

    def node_report(self, run: RunIdentity, node: str) -> str:
        """What the run's cluster remembers against ``node``, as a text for the site's administrators.

        Raises:
            RltuiError: Nothing is remembered against it, or the cluster is away.
        """
        from rltui.service.bad_nodes import report

        cluster = self._found(run)[0].cluster
        return report(cluster.client, cluster.run_root, cluster.name, node)
