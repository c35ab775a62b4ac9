"""A cockpit over canned data, with faults that real services cannot be asked for: errors and slowness at will."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from canned_actions import CLUSTERS, FIX, LOWER_MEMORY, NOBODYS, WHY, resubmission
from canned_launch import PRESETS, review, script_review, swept_review
from canned_queue import QUEUE
from canned_runs import NOW, RUNS, log_lines, snapshot, summary
from canned_samples import CONFIG, canned_group, canned_samples

from rltui.cluster.jobs import JobSnapshot
from rltui.errors import ClusterError, RltuiError, UsageError
from rltui.layout.fields import Field, read_fields
from rltui.layout.presets import resolve
from rltui.paths import state_dir
from rltui.runs.journal import Journal
from rltui.service.cockpit import ActionPreview, Ask, ClusterSummary, OpenJob, WhyReport
from rltui.service.node_shell import NodeShell
from rltui.service.review import LaunchOutlook
from rltui.service.sweep_points import NO_SWEEP, Sweep, points_of
from rltui.service.wandb_place import WandbPlace
from rltui.watch.log_search import LogHit, LogQuery, Searched
from rltui.watch.samples import SamplesFound
from rltui.watch.snapshots import LogPart, LogSnapshot, RunIdentity, RunSnapshot, RunsSnapshot, RunSummary

JOBS = tuple(
    OpenJob(
        cluster="isambard",
        job=JobSnapshot(
            job_id=job_id, state=state, name=name, partition="gpu", started_at=NOW - 5400.0, nodes=nodes, node_count=2
        ),
    )
    for job_id, state, name, nodes in (
        ("48121", "running", "my-verl-grpo", ("node1", "node2")),
        ("48122_3", "pending", "sweep of learning rates", ()),
    )
)

if TYPE_CHECKING:
    from rltui.cluster.prompts import Prompter, Question
    from rltui.service.cluster_queue import ClusterQueue
    from rltui.service.config import RunConfig
    from rltui.service.launch_review import LaunchReview, PresetSummary
    from rltui.service.run_events import Event
    from rltui.watch.samples import Sample, SampleGroup, SampleQuery


HANG_S = 86400.0
"""For ``slow_s``, longer than a test waits for anything: what comes while calls hang did not wait for them."""


@dataclass
class FakeCockpit:
    """A cockpit for tests and pictures.

    Attributes:
        all_runs: What ``runs`` gives, newest first.
        slow_s: Seconds that every call takes; ``gate`` lets them go earlier.
        failing: Calls that raise, by name.
        live: Let the steps of running runs advance with the clock.
    """

    all_runs: tuple[RunSummary, ...] = RUNS
    slow_s: float = 0.0
    failing: set[str] = field(default_factory=set)
    live: bool = False
    lines: tuple[str, ...] | None = None
    all_clusters: tuple[ClusterSummary, ...] = CLUSTERS
    questions: tuple[Question, ...] = ()
    all_jobs: tuple[OpenJob, ...] = JOBS
    cluster_queue: ClusterQueue = QUEUE
    signal: str = "bell"
    wants_gpus: bool = False
    calls: list[tuple[str, ...]] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    error: RltuiError = field(
        default_factory=lambda: ClusterError("isambard does not answer", "try: ssh isambard true")
    )

    def _called(self, name: str, *words: str) -> None:
        self.calls.append((name, *words))
        if self.slow_s:
            self.gate.wait(self.slow_s)
        if name in self.failing:
            raise self.error

    def _find(self, run_id: str, cluster: str = "") -> RunSummary:
        for run in self.all_runs:
            if run.run_id == run_id and cluster in ("", run.identity.cluster):
                return self._advanced(run)
        raise UsageError(f"there is no run {run_id!r}", "rltui ps lists all runs")

    def _advanced(self, run: RunSummary) -> RunSummary:
        if not self.live or run.state != "running":
            return run
        step = (run.stage.step or 0) + int(time.monotonic() * 2) % 500
        rate = (run.tokens_per_second or 0.0) * random.uniform(0.9, 1.1)
        stage = msgspec.structs.replace(run.stage, step=min(step, run.stage.steps or step))
        rates = (*run.tokens_per_second_history[1:], rate)
        return msgspec.structs.replace(run, stage=stage, tokens_per_second=rate, tokens_per_second_history=rates)

    def runs(self) -> RunsSnapshot:
        self._called("runs")
        return RunsSnapshot(runs=tuple(self._advanced(run) for run in self.all_runs), taken_at=NOW)

    def want_gpus(self, *, on: bool) -> None:
        self.wants_gpus = on

    def watch(self, run: RunIdentity, log: str = "") -> RunSnapshot:
        self._called("watch", run.run_id, *([log] if log else []))
        picture = snapshot(self._find(run.run_id, run.cluster), self.lines)
        if log:
            lines = tuple(f"[{log}] {text}" for text in picture.log.lines[:50])
            picture = msgspec.structs.replace(picture, log=LogSnapshot(lines=lines, name=log))
        return picture

    def beside(self, run: RunIdentity) -> RunSnapshot:
        self._called("beside", run.run_id)
        return snapshot(self._find(run.run_id, run.cluster), self.lines)

    def wandb(self, run: RunIdentity) -> WandbPlace:
        self._called("wandb", run.run_id)
        shell = partial(NodeShell, self._find(run.run_id, run.cluster), Journal(state_dir()), "this machine")
        look, send = shell(["sh", "-c", "echo this is leet; exec cat"]), shell(["sh", "-c", "exec cat"])
        page = "https://wandb.ai/ada/tiny/runs/0c0ffee0"
        sync = "wandb sync wandb/offline-run-1"
        return WandbPlace(page, look, "wandb leet wandb", send, sync, ("wandb/offline-run-1",))

    def log_part(self, run: RunIdentity, name: str, line: int, offset: int | None = None) -> LogPart:
        self._called("log_part", run.run_id, name, str(line), *([] if offset is None else [str(offset)]))
        lines = log_lines(2000)
        first = max(1, line - 500)
        return LogPart(name=name, line=line, first_line=first, lines=lines[first - 1 : line + 1500])

    def log_piece(
        self, run: RunIdentity, name: str, place: Mapping[str, int] | None, at: float | None = None
    ) -> LogPart:
        self._called("log_piece", run.run_id, name, *(f"{log}:{offset}" for log, offset in (place or {}).items()))
        here = 2000 if place is None else next(iter(place.values())) // 100
        first, last = max(0, here - 500), min(2000, here + (500 if place is not None else 0))
        log = "out.log" if name == "*" else name
        return LogPart(
            name=name,
            lines=log_lines(2000)[first:last],
            places=tuple((log, 100 * number) for number in range(first, last)),
            here=here - first,
            top={log: 100 * first},
            bottom={log: 100 * last},
        )

    def search_log(self, run: RunIdentity, name: str, query: LogQuery) -> Iterator[Searched]:
        self._called("search_log", run.run_id, name, query.pattern)
        lines = log_lines(2000)
        hits = [(number, text) for number, text in enumerate(lines, 1) if re.search(query.pattern, text)]
        half = len(hits) // 2
        for found, offset in ((hits[:half], 500), (hits[half:], 1000)):
            log = "out.log" if name == "*" else name
            hits_here = tuple(LogHit(log, number, 100 * (number - 1), text) for number, text in found)
            times = tuple(float(number) for number, _ in found) if name == "*" else ()
            yield Searched(hits_here, offset, 1000, times)

    def samples(self, run: RunIdentity, query: SampleQuery) -> Iterator[SamplesFound]:
        self._called("samples", run.run_id, query.order, query.grep)
        if run == RUNS[2].identity:
            yield SamplesFound(
                note="run.sh writes none: with trainer.rollout_data_dir=FOLDER verl writes a file a step"
            )
            return
        found = canned_samples(query)
        yield SamplesFound(samples=found[:3], share=0.5, read_bytes=500_000_000)
        yield SamplesFound(samples=found, read_bytes=1_000_000_000)

    def sample(self, run: RunIdentity, sample: Sample, evaluation: bool = False) -> SampleGroup:
        self._called("sample", run.run_id, str(sample.offset))
        return canned_group(sample)

    def config(self, run: RunIdentity) -> RunConfig:
        self._called("config", run.run_id)
        return CONFIG

    def clusters(self) -> tuple[ClusterSummary, ...]:
        return self.all_clusters

    def connect(self, cluster: str, prompter: Prompter) -> str:
        self._called("connect", cluster)
        for question in self.questions:
            self.calls.append(("answered", *prompter.ask(question)))
        self.all_clusters = tuple(
            msgspec.structs.replace(one, problem="", needs_attention=False) if one.name == cluster else one
            for one in self.all_clusters
        )
        return f"{cluster} answers"

    def queue(self, cluster: str, *, again: bool = False) -> ClusterQueue:
        self._called("queue", cluster, *(["again"] if again else []))
        return msgspec.structs.replace(self.cluster_queue, cluster=cluster)

    def why(self, run: RunIdentity) -> WhyReport:
        self._called("why", run.run_id)
        return msgspec.structs.replace(WHY, run=run)

    def preview_lower_memory(self, run_id: str) -> ActionPreview:
        self._called("preview_lower_memory", run_id)
        return LOWER_MEMORY

    def node_report(self, run: RunIdentity, node: str) -> str:
        self._called("node_report", run.run_id, node)
        return f"Node {node} of isambard: GPU memory gave errors\n\n  evidence\n"

    def preview_fix(self, run_id: str) -> ActionPreview:
        self._called("preview_fix", run_id)
        return FIX

    def preview_auto(self, run_id: str) -> ActionPreview:
        self._called("preview_auto", run_id)
        on = self._find(run_id).hands_off != "on"
        title = f"Let {run_id} go on by itself?" if on else f"End hands-off mode of {run_id}?"
        return ActionPreview(run=NOBODYS, title=title, consequences=(), commands=(), switches_on=on)

    def auto(self, run_id: str, *, on: bool) -> str:
        self._called("auto", run_id, "on" if on else "off")
        self.all_runs = tuple(
            msgspec.structs.replace(run, hands_off="on" if on else "off: switched off") if run.run_id == run_id else run
            for run in self.all_runs
        )
        return f"{run_id} goes on by itself" if on else f"{run_id} is left alone"

    def presets(self) -> tuple[PresetSummary, ...]:
        self._called("presets")
        return PRESETS

    def review(
        self, preset: str, overrides: tuple[str, ...] = (), cluster: str = "local", sweep: Sweep = NO_SWEEP
    ) -> LaunchReview:
        self._called("review", preset, *overrides, *sweep.arguments, *([cluster] if cluster != "local" else []))
        if preset.endswith("missing"):
            raise UsageError(f"there is no preset or file {preset!r}")
        known = next((each for each in PRESETS if each.name == preset), None)
        if sweep.words:
            return swept_review(known, overrides, cluster, sweep)
        return review(known, overrides, cluster) if known else script_review(preset, overrides, cluster)

    def outlook(self, preset: str, overrides: tuple[str, ...] = (), cluster: str = "local") -> LaunchOutlook:
        self._called("outlook", preset, *overrides, *([cluster] if cluster != "local" else []))
        changes = tuple(line for word in overrides for line in (f"- {word.split('=')[0]}: 60", f"+ {word}"))
        start = "nothing waits in front of it" if cluster == "local" else "2026-11-25 02:10:00 by the cluster's clock"
        last = f"{preset.split('/')[-1]}-4f2a"
        asked = LaunchOutlook(preset=preset, overrides=overrides, cluster=cluster, taken_at=time.time())
        return msgspec.structs.replace(asked, start=start, last_run=last, changes=changes)

    def layout_file(self, run: RunIdentity) -> str:
        self._called("layout_file", run.run_id)
        return str(resolve("local/grpo-tiny"))

    def fields(self, preset: str, overrides: tuple[str, ...] = ()) -> tuple[Field, ...]:
        self._called("fields", preset, *overrides)
        return read_fields(resolve(preset), overrides)

    def launch(
        self,
        preset: str,
        overrides: tuple[str, ...] = (),
        cluster: str = "local",
        sweep: Sweep = NO_SWEEP,
        auto: bool = False,
    ) -> tuple[RunIdentity, ...]:
        where = [*([cluster] if cluster != "local" else []), *(["hands-off"] if auto else [])]
        self._called("launch", preset, *overrides, *sweep.arguments, *where)
        ids = []
        for _ in points_of(sweep.words):
            ids.append(f"{preset.split('/')[-1]}-new{len(self.all_runs)}")
            new = summary(ids[-1], "queued", "queued", 1, detail="first in line", cluster=cluster)
            self.all_runs = (msgspec.structs.replace(new, sweep="new" if sweep.words else ""), *self.all_runs)
        return tuple(RunIdentity(cluster, run_id) for run_id in ids)

    def open_jobs(self) -> tuple[OpenJob, ...]:
        self._called("open_jobs")
        return self.all_jobs

    def adopt(self, cluster: str, job_id: str) -> str:
        self._called("adopt", cluster, job_id)
        self.all_jobs = tuple(one for one in self.all_jobs if (one.cluster, one.job.job_id) != (cluster, job_id))
        return f"adopted-{job_id}"

    def terminal(self, event: Event) -> str:
        return self.signal

    def tell(self, event: Event) -> str:
        self._called("tell", event.kind, event.run.run_id)
        return ""

    def node_shell(self, run: RunIdentity, node: str = "") -> NodeShell:
        self._called("node_shell", run.run_id, node)
        argv = ["sh", "-c", "echo this is a shell; exec cat"]
        return NodeShell(self._find(run.run_id, run.cluster), Journal(state_dir()), node or "node1", argv)

    def preview(self, ask: Ask) -> ActionPreview:
        run_id = ask.run.run_id
        if ask.action == "signal":
            shown = self.preview_signal(run_id, ask.signal)
        elif ask.action in ("cancel", "fix", "auto", "lower_memory"):
            shown = getattr(self, f"preview_{ask.action}")(run_id)
        else:
            shown = self.preview_resubmit(run_id, ask.overrides, ask.exclude, ask.set_aside)
        return msgspec.structs.replace(shown, run=ask.run)

    def carry_out(self, ask: Ask, shown: ActionPreview) -> str:
        if ask.action == "signal":
            return self.send_signal(ask.run.run_id, ask.signal)
        if ask.action == "auto":
            return self.auto(ask.run.run_id, on=shown.switches_on)
        if ask.action == "cancel":
            return self.cancel(ask.run.run_id)
        return self.resubmit(ask.run.run_id, shown.overrides, shown.exclude, shown.set_aside)

    def preview_cancel(self, run_id: str) -> ActionPreview:
        self._called("preview_cancel", run_id)
        return ActionPreview(
            run=NOBODYS,
            title=f"Cancel {run_id}?",
            consequences=(
                "It has run for 2m14 and is at step 412 of 1000.",
                "Newest checkpoint: step 400; 12 steps will be lost.",
                "It can be resubmitted from that checkpoint.",
            ),
            commands=(f"kill -TERM 20951   # supervisor of {run_id}, attempt 2",),
        )

    def preview_signal(self, run_id: str, name: str) -> ActionPreview:
        self._called("preview_signal", run_id, name)
        return ActionPreview(run=NOBODYS, title=f"Send SIG{name} to {run_id}?", consequences=(), commands=())

    def send_signal(self, run_id: str, name: str) -> str:
        self._called("send_signal", run_id, name)
        return f"SIG{name} was sent to {run_id}"

    def cancel(self, run_id: str) -> str:
        self._called("cancel", run_id)
        return f"{run_id} was asked to save and end"

    def preview_resubmit(
        self, run_id: str, overrides: tuple[str, ...] = (), exclude: tuple[str, ...] = (), set_aside: str = ""
    ) -> ActionPreview:
        self._called("preview_resubmit", run_id, *overrides, *exclude, *filter(None, [set_aside]))
        preview = resubmission(run_id, overrides, exclude, live=self._find(run_id).is_live)
        return msgspec.structs.replace(preview, set_aside=set_aside)

    def resubmit(
        self, run_id: str, overrides: tuple[str, ...] = (), exclude: tuple[str, ...] = (), set_aside: str = ""
    ) -> str:
        self._called("resubmit", run_id, *overrides, *exclude, *filter(None, [set_aside]))
        return f"{run_id} is queued again as attempt 3"
