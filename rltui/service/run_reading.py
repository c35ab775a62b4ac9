"""What a cockpit reads of one run when somebody asks: logs, samples, settings, causes; of any run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from rltui.cluster.relay_types import RelayError
from rltui.errors import UsageError
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
    from rltui.watch.snapshots import LogPart, RunSnapshot, RunSummary


def stragglers_in(picture: RunSnapshot) -> frozenset[tuple[str, int]]:
    """Node and index of the cards of a live run that their peers wait for."""
    if not picture.summary.is_live or not any(host.gpus for host in picture.hosts):
        return frozenset()
    from rltui.service.run_picture import stragglers_of

    return stragglers_of(picture)


class RunReading:
    """The part of ``rltui.service.cockpit.Cockpit`` that only reads a run's files."""

    def _found(self, run_id: str) -> tuple[Context, RunSummary]:
        """Where a run's files are, and its newest row."""
        raise NotImplementedError

    def log_part(self, run_id: str, name: str, line: int, offset: int | None = None) -> LogPart:
        context, row = self._found(run_id)
        return read_part(context.cluster.client, attempt_path(row), name, line, offset)

    def log_piece(self, run_id: str, name: str, place: Mapping[str, int] | None, at: float | None = None) -> LogPart:
        context, row = self._found(run_id)
        return read_piece(context.cluster.client, row, name, place, at)

    def search_log(self, run_id: str, name: str, query: LogQuery) -> Iterator[Searched]:
        context, row = self._found(run_id)
        return search_run(context.cluster.client, row, name, query)

    def samples(self, run_id: str, query: SampleQuery) -> Iterator[SamplesFound]:
        from rltui.service.samples import samples_of

        return samples_of(*self._found(run_id), query)

    def sample(self, run_id: str, sample: Sample, evaluation: bool = False) -> SampleGroup:
        from rltui.service.samples import group_of

        return group_of(*self._found(run_id), sample, evaluation=evaluation)

    def config(self, run_id: str) -> RunConfig:
        from rltui.service.config import read_config

        return read_config(*self._found(run_id))

    def layout_file(self, run_id: str) -> str:
        """A copy of the run's layout on this machine, for what reads and judges files."""
        from rltui.paths import cache_dir, ensure_private
        from rltui.runs.directory import read_layout

        context, row = self._found(run_id)
        try:
            text = read_layout(context.cluster.client, attempt_path(row))
        except RelayError as error:
            if error.kind != "missing":
                raise
            raise UsageError(
                f"{row.run_id} has no layout: it runs a script.", "s takes the words behind it."
            ) from error
        path = ensure_private(cache_dir() / "layouts") / f"{row.run_id}.yaml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    def wandb(self, run_id: str) -> WandbPlace:
        from rltui.service.wandb_place import wandb_place

        return wandb_place(*self._found(run_id))

    def why(self, run_id: str) -> WhyReport:
        from rltui.service.attempt_differences import unexplained
        from rltui.service.why import examine_run, why_report

        context, row = self._found(run_id)
        found = examine_run(context, row)
        different = unexplained(context.cluster.client, row, found)
        return why_report(row, found, different, context.replacements.unfinished_words(row))

    def node_report(self, run_id: str, node: str) -> str:
        from rltui.service.bad_nodes import report

        cluster = self._found(run_id)[0].cluster
        return report(cluster.client, cluster.run_root, cluster.name, node)
