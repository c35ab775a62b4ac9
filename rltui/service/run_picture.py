"""What is known of an attempt besides its logs, read through the relay: tails only, so that a list of runs can ask."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import structs

from rltui.cluster.relay_client import RelayClient
from rltui.cluster.relay_types import RelayError
from rltui.diagnose.engine_lines import engine_counters
from rltui.diagnose.recent import EARLY_STEPS, EngineCounters, GpuRecord, Planned, RunPicture, Step
from rltui.diagnose.slow_rules import slow_gpus
from rltui.errors import RltuiError
from rltui.onnode import rundir
from rltui.onnode.lost_nodes import is_sampler_file
from rltui.onnode.progress import in_order
from rltui.paths import state_dir
from rltui.watch.actors import ActorsReader
from rltui.watch.hosts import HostState, SamplerLine
from rltui.watch.lines import decode, tail_of
from rltui.watch.metrics import parse_metrics
from rltui.watch.node_samples import GpuSample, HostSnapshot
from rltui.watch.notes import parse_actors_note
from rltui.watch.owners import ROLE_NAMES, ActorSnapshot, Owners, owners_of, patterns_of
from rltui.watch.run_facts import STARTING_STAGES, RayFile
from rltui.watch.silence import SPEAKING, silent_nodes, silent_s
from rltui.watch.snapshots import RunSnapshot, RunSummary
from rltui.watch.text import plain

METRICS_BYTES = 1 << 18
FIRST_BYTES = 1 << 16
"""Of the first steps: what the newest are compared with."""

SAMPLER_BYTES = 1 << 16
MOST_HOSTS = 64
PREFLIGHT_BYTES = 1 << 20
LAYOUT_BYTES = 1 << 20
ACTORS_BYTES = 1 << 20
WITHOUT_A_PLACE = frozenset({"PENDING_CREATION", "DEPENDENCIES_UNREADY"})
ENGINE_BYTES = 1 << 18
"""End of the attempt's own log in which engines are looked for: they speak every few seconds."""


def read_picture(client: RelayClient, run: RunSummary, names: Sequence[str]) -> RunPicture:
    """Return the picture of the newest attempt of ``run``; ``names`` are the files of its folder.

    What cannot be read is left out: what else there is may tell enough.
    """
    attempt = rundir.attempt_folder(run.path, run.attempt)
    samplers = [name for name in names if is_sampler_file(name)][:MOST_HOSTS]
    owners = Owners((), patterns_of(run.algorithm))
    ends = (tail_of(client, f"{attempt}/{name}", SAMPLER_BYTES) for name in samplers)
    nodes = [node for end in ends if (node := _node_of(end, owners)) is not None]
    now = client.disk_time(attempt)
    silent: dict[str, float] = {}
    if run.is_live:  # what a node said before its sampler fell silent is of the past
        silent = silent_s([node.host for node in nodes], now)
        nodes = [node for node in nodes if node.host.host not in silent]
    asked = tuple(engine for node in nodes for engine in node.engines) if run.is_live else ()
    logged = tail_of(client, f"{attempt}/{rundir.OUT_LOG}", ENGINE_BYTES) if run.is_live and not asked else b""
    first, steps = _steps(client, f"{attempt}/{rundir.METRICS}") if rundir.METRICS in names else ((), ())
    return RunPicture(
        now=now,
        stage=run.stage,
        tells_steps=run.algorithm != rundir.GENERIC,
        end=run.end,
        job=run.job,
        bad_nodes=_bad_nodes(tail_of(client, f"{attempt}/{rundir.PREFLIGHT}", PREFLIGHT_BYTES))
        if rundir.PREFLIGHT in names
        else {},
        steps=steps,
        first=first,
        planned=_behind_plan(client, attempt, steps) if run.is_live and rundir.LAYOUT in names else (),
        hosts=tuple(node.host for node in nodes),
        silent=silent if run.state in SPEAKING else {},
        gpus=tuple(record for node in nodes for record in node.gpus) if run.is_live else (),
        waiting_actors=_waiting_actors(client, attempt, names) if run.stage.stage in STARTING_STAGES else (),
        engines=asked or engine_counters(plain(line) for line in logged.decode("utf-8", "replace").splitlines()),
    )


def _behind_plan(client: RelayClient, attempt: str, steps: Sequence[Step]) -> tuple[Planned, ...]:
    """What of a run of the bundled trainers is far behind ``rltui plan``; nothing where plan cannot say."""
    from rltui.layout.load import load_text
    from rltui.plan.behind import behind_plan
    from rltui.plan.rates import read_calibration

    try:
        layout = load_text(tail_of(client, f"{attempt}/{rundir.LAYOUT}", LAYOUT_BYTES).decode(), rundir.LAYOUT).layout
        known = read_calibration(state_dir())
    except (RltuiError, ValueError):  # another's version of it, or a calibration that plan itself will speak of
        return ()
    names = {name for step in steps for name in step.values}
    series = {name: [step.values.get(name, math.nan) for step in steps] for name in names}
    return tuple(map(Planned._make, behind_plan(layout, series, known)))


def _waiting_actors(client: RelayClient, attempt: str, names: Sequence[str]) -> tuple[str, ...]:
    """Classes of the actors that Ray has not placed, as noted on the run's head node, or as Ray itself says."""
    actors: tuple[ActorSnapshot, ...] = ()
    if rundir.ACTORS in names:
        text = tail_of(client, f"{attempt}/{rundir.ACTORS}", ACTORS_BYTES).decode("utf-8", "replace")
        actors = parse_actors_note(text).actors
    elif rundir.RAY_ENDPOINT in names:
        known = decode(tail_of(client, f"{attempt}/{rundir.RAY_ENDPOINT}", ACTORS_BYTES), RayFile)
        reader = ActorsReader(client)
        endpoint = known.endpoint if known is not None else None
        if endpoint is not None and endpoint.is_on(client.hello().host):  # its token is for nobody else's loopback
            reader.read(endpoint)
        actors = reader.actors
    return tuple(actor.class_name for actor in actors if actor.state in WITHOUT_A_PLACE)


def steps_of(lines: Iterable[Mapping[str, float]]) -> tuple[Step, ...]:
    """Lines of metrics by canonical name as steps; those that do not say when they were done are left out."""
    return tuple(Step(values["time"], dict(values)) for values in lines if "time" in values)


def _bad_nodes(text: bytes) -> dict[str, str]:
    try:
        report = json.loads(text or b"{}")
    except ValueError:
        return {}
    bad = report.get("bad_nodes") if isinstance(report, dict) else None
    return {plain(str(node)): plain(str(why)) for node, why in bad.items()} if isinstance(bad, dict) else {}


def _steps(client: RelayClient, path: str) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """An attempt's first steps, and its newest."""
    try:
        newest = client.tail(path, METRICS_BYTES)
        first = client.read(path, 0, FIRST_BYTES).data if newest.offset else newest.data
    except RelayError:
        return (), ()
    return first_and_newest(first, newest.data)


def first_and_newest(first: bytes, newest: bytes) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """The first steps in the beginning of an attempt's metrics, and all in their end."""
    return _parsed(first)[:EARLY_STEPS], _parsed(newest)


def _parsed(text: bytes) -> tuple[Step, ...]:
    lines = (parse_metrics(line) for line in text.splitlines())
    return steps_of(values for _, values in in_order(filter(None, lines)))


class _Node(NamedTuple):
    """One node's newest picture, and its GPUs and engines over all lines that were read."""

    host: HostSnapshot
    gpus: tuple[GpuRecord, ...]
    engines: tuple[EngineCounters, ...]


def _node_of(text: bytes, owners: Owners) -> _Node | None:
    lines, state = text.splitlines(), HostState()
    state.take(lines)
    host = state.snapshot()
    if host is None:
        return None
    read = [line for each in lines if (line := decode(each, SamplerLine)) is not None]
    return _Node(host, tuple(_gpu_records(host, read, owners)), tuple(_engine_records(host, read)))


def gpus_at_work(ends: Iterable[bytes], run: RunSummary, now: float) -> tuple[GpuRecord, ...]:
    """The GPUs of a live run by the ends of its samplers' files, without those of nodes that fell silent."""
    owners = Owners((), patterns_of(run.algorithm))
    nodes = [node for text in ends if (node := _node_of(text, owners)) is not None]
    silent = silent_s([node.host for node in nodes], now)
    return tuple(record for node in nodes if node.host.host not in silent for record in node.gpus)


def _engine_records(host: HostSnapshot, read: Sequence[SamplerLine]) -> Iterator[EngineCounters]:
    """What engines told that were asked, on the mean: one look may fall into the moment between two batches."""
    for engine in host.engines:
        said = [one for line in read for one in line.engines or () if one.name == engine.name]
        running, waiting = _mean(one.running for one in said), _mean(one.waiting for one in said)
        if running is not None and waiting is not None:
            yield EngineCounters(
                name=f"engine {engine.name} of {host.host}",
                running=running,
                waiting=waiting,
                kv_share=_mean(one.kv_cache_usage for one in said),
                tokens_per_second=_mean(one.tokens_per_second for one in said),
            )


def _mean(values: Iterable[float | None]) -> float | None:
    told = [value for value in values if value is not None]
    return statistics.fmean(told) if told else None


def _gpu_records(host: HostSnapshot, read: Sequence[SamplerLine], owners: Owners) -> Iterator[GpuRecord]:
    for gpu in host.gpus:
        said = [one for line in read for one in line.gpus if one.i == gpu.index]
        power = [one.w for one in said if one.w is not None]
        busy = [one.util for one in said if one.util is not None]
        if not power or not busy:
            continue
        yield _record(
            host,
            gpu,
            owners,
            utilization_percent=statistics.fmean(busy),
            power_w=statistics.fmean(power),
            clock_mhz=_mean(one.mhz[0] for one in said if one.mhz is not None),
            held_back=_mostly([one.held_back for one in said if one.held_back is not None]),
        )


def _record(host: HostSnapshot, gpu: GpuSample, owners: Owners, **measured: Any) -> GpuRecord:
    """A GPU with what was ``measured`` over a while in place of its newest numbers, and whose it is."""
    role = ROLE_NAMES.get(owners.of(host, gpu.pids).letter, "")
    known = {**structs.asdict(gpu), **measured}
    return GpuRecord(**known, host=host.host, role=role, program=_program(host, gpu.pids))


def _program(host: HostSnapshot, pids: Sequence[int]) -> str:
    """What the first of ``pids`` that the node shows runs: the first two words of its command that are no flags."""
    titles = [one.title for pid in pids for one in host.processes if one.pid == pid]
    return " ".join([word for word in titles[0].split() if not word.startswith("-")][:2]) if titles else ""


def _mostly(said: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """The words that at least half of all lines have."""
    words = dict.fromkeys(word for line in said for word in line)
    return tuple(word for word in words if 2 * sum(word in line for line in said) >= len(said))


def stragglers_of(picture: RunSnapshot) -> frozenset[tuple[str, int]]:
    """Node and index of the cards that their peers wait for, by the rule of the verdict ``straggler``."""
    owners, silent = owners_of(picture.actors, picture.role_patterns), silent_nodes(picture)
    records = [
        _record(host, gpu, owners, utilization_percent=statistics.fmean(used), power_w=gpu.recent_w)
        for host in picture.hosts
        if host.host not in silent
        for gpu, used in zip(host.gpus, host.gpu_history, strict=False)
        if gpu.recent_w is not None and gpu.pids and used
    ]
    return frozenset((one.host, one.index) for one, _ in slow_gpus(records))
