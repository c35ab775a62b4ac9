"""``rltui queues``: queues of a run's trainer and of its scheduler."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from rltui.cli.output import answer
from rltui.cli.run_picture import add_arguments as add_arguments
from rltui.cli.run_picture import nothing_yet, read_run, talk_age
from rltui.watch.node_samples import EngineSample, HostSnapshot
from rltui.watch.pending import pending_words, waiting_job
from rltui.watch.snapshots import RunSnapshot


def run(options: argparse.Namespace) -> int:
    """Print the place in the scheduler's line, the trainer's queues, its engines' and the weight versions."""
    picture = read_run(options)
    about = {"run_id": picture.summary.run_id, "job": picture.summary.job, "status": picture.status}
    told = {**about, "engines": {host.host: host.engines for host in _with_engines(picture)}}
    lines = list(_lines(picture))
    answer(options, told, lines, picture.status.problem or nothing_yet(picture, "the trainer has no queues"))
    if lines and not options.json:
        talk_age(picture, picture.status.noted_at)
    return 0


def _lines(picture: RunSnapshot) -> Iterator[str]:
    job, status = picture.summary.job, picture.status
    if job is not None:
        waiting = waiting_job(picture.summary)
        words = f": {pending_words(waiting, picture.taken_at)}" if waiting is not None else ""
        yield f"job {job.job_id}  {job.state}{words}"
    for queue in status.queues:
        yield f"queue {queue.name}  {queue.current}/{queue.maxsize}"
    if status.learner_weight_version is not None:
        yield f"weights  learner {status.learner_weight_version}"
    for name, version in status.engine_weight_versions.items():
        yield f"weights  {name} {version}"
    for host in _with_engines(picture):
        for engine in host.engines:
            yield f"engine {host.host}:{engine.name}  {_engine_words(engine)}"
    if status.phase:
        yield f"phase {status.phase}"


def _with_engines(picture: RunSnapshot) -> list[HostSnapshot]:
    return [host for host in picture.hosts if host.engines] if picture.summary.is_live else []


def _engine_words(engine: EngineSample) -> str:
    if engine.is_silent:
        return f"has not answered for {engine.silent_s:.0f} s"
    told = (
        (engine.running, "running", 1.0, ""),
        (engine.waiting, "waiting", 1.0, ""),
        (engine.kv_cache_usage, "of KV", 100.0, " %"),
        (engine.tokens_per_second, "tok/s", 1.0, ""),
        (engine.preemptions_total or None, "preemptions", 1.0, ""),
    )
    return ", ".join(f"{scale * value:.0f}{unit} {word}" for value, word, scale, unit in told if value is not None)
