"""What is known of an attempt besides its logs, read through the relay: tails only, so that a list of runs can ask."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from rltui.cluster.relay_types import RelayError
from rltui.diagnose.recent import Step
from rltui.diagnose.run_words import RunPicture
from rltui.onnode import rundir
from rltui.watch.hosts import HostState
from rltui.watch.metrics import parse_metrics
from rltui.watch.text import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltui.cluster.relay_client import RelayClient
    from rltui.watch.snapshots import HostSnapshot, RunSummary

METRICS_BYTES = 1 << 18
SAMPLER_BYTES = 1 << 16
MOST_HOSTS = 64
PREFLIGHT_BYTES = 1 << 20


def read_picture(client: RelayClient, run: RunSummary, names: Sequence[str], now: float | None = None) -> RunPicture:
    """Return the picture of the newest attempt of ``run``; ``names`` are the files of its folder.

    What cannot be read is left out: what else there is may tell enough.
    """
    attempt = rundir.attempt_folder(run.path, run.attempt)
    samplers = [name for name in names if name.startswith("gpu-") and name.endswith(".jsonl")][:MOST_HOSTS]
    hosts = (_host(client, f"{attempt}/{name}") for name in samplers)
    return RunPicture(
        now=time.time() if now is None else now,
        stage=run.stage,
        end=run.end,
        job=run.job,
        bad_nodes=_bad_nodes(_tail(client, f"{attempt}/{rundir.PREFLIGHT}", PREFLIGHT_BYTES))
        if rundir.PREFLIGHT in names
        else {},
        steps=_steps(_tail(client, f"{attempt}/{rundir.METRICS}", METRICS_BYTES)) if rundir.METRICS in names else (),
        hosts=tuple(host for host in hosts if host is not None),
    )


def _tail(client: RelayClient, path: str, size: int) -> bytes:
    try:
        return client.tail(path, size).data
    except RelayError:
        return b""


def _bad_nodes(text: bytes) -> dict[str, str]:
    try:
        report = json.loads(text or b"{}")
    except ValueError:
        return {}
    bad = report.get("bad_nodes") if isinstance(report, dict) else None
    return {plain(str(node)): plain(str(why)) for node, why in bad.items()} if isinstance(bad, dict) else {}


def _steps(text: bytes) -> tuple[Step, ...]:
    parsed = (parse_metrics(line) for line in text.splitlines())
    return tuple(Step(values["time"], values) for _, values in filter(None, parsed) if "time" in values)


def _host(client: RelayClient, path: str) -> HostSnapshot | None:
    state = HostState()
    state.take(_tail(client, path, SAMPLER_BYTES).splitlines())
    return state.snapshot()
