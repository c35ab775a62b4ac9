"""Samplers beside a job that rltui did not start, for a while and only when somebody asks for them."""

from __future__ import annotations

import time
from collections.abc import Sequence

from msgspec import Struct

from rltui.cluster.relay_client import RelayClient
from rltui.errors import RltuiError
from rltui.layout.scalars import CPU
from rltui.onnode import processes, rundir
from rltui.onnode.allocation import step_command
from rltui.onnode.lost_nodes import sampler_file
from rltui.service.context import Context
from rltui.service.read_evidence import sampled
from rltui.service.run_jobs import code_of
from rltui.watch.lines import parse_object
from rltui.watch.snapshots import RunSummary
from rltui.watch.text import plain

FIRST_WORD_S = 30.0
"""How long the samplers may take to write their first line: Slurm has to start a step."""
POLL_S = 0.5
SPEAKS_S = 15.0
"""A sampler that wrote within this time is there."""
LOG = "sampling.log"
# The relay ends what is left in a request's process group. `setsid -f` would return while its child may still be in it.
DETACHED = """setsid -w sh -c '"$@" &' sh "$@" </dev/null >"$0" 2>&1"""


class Sampling(Struct, frozen=True):
    """What samples a run.

    Attributes:
        nodes: Nodes whose samplers have spoken.
        silent: Nodes of the job beyond these.
        blind: Nodes on which the sampler sees no GPU, although the job has some.
    """

    nodes: int
    silent: int
    blind: tuple[str, ...]


def start_sampling(context: Context, run: RunSummary, minutes: int) -> Sampling:
    """Sample every node of an adopted run for ``minutes``; the samplers end with the job, or when it is released.

    Under Slurm it is one step that overlaps what runs in the job: it takes no CPU, memory or GPU away from it.

    Raises:
        RltuiError: It is no adopted run, does not run, is sampled already, or no sampler could be started.
    """
    context.require_own(run)
    if not run.is_adopted:
        raise RltuiError(f"{run.run_id} was started by rltui, so its nodes are sampled anyway.")
    if not run.is_live:  # the id of its process may be another's by now
        raise RltuiError(f"{run.run_id} has ended ({run.state}), so there is nothing to sample.")
    client, attempt = context.cluster.client, rundir.attempt_folder(run.path, run.attempt)
    before = sampled(client, attempt)
    if any(client.hello().time - at < SPEAKS_S for at in before.values()):
        raise RltuiError(f"{run.run_id} is being sampled already.", f"`rltui gpus {run.run_id}` shows it.")
    command, nodes = _command(context, run, attempt, minutes)
    about = {"run": run.run_id, "attempt": run.attempt, "cluster": context.name, "job": run.job_id}
    context.journal.write("sample", "intent", **about)
    done = client.run(["sh", "-c", DETACHED, f"{attempt}/{LOG}", *command], timeout_s=20)
    deadline, spoken = time.monotonic() + FIRST_WORD_S, dict[str, float]()
    while len(spoken) < nodes and time.monotonic() < deadline and not done.rc:
        time.sleep(POLL_S)
        spoken = {host: at for host, at in sampled(client, attempt).items() if at > before.get(host, 0.0)}
        if not spoken and "error" in _said(client, attempt):
            break
    if not spoken:
        why = _said(client, attempt) or done.err.strip()[-300:] or f"nothing was heard for {FIRST_WORD_S:.0f} s"
        raise RltuiError(f"No sampler could be started beside {run.job_id}: {plain(why)}")
    context.journal.note("sample", "done", **about)
    blind = () if run.gpu == CPU else tuple(host for host in spoken if not _sees_gpus(client, attempt, host))
    return Sampling(len(spoken), nodes - len(spoken), blind)


def _command(context: Context, run: RunSummary, attempt: str, minutes: int) -> tuple[Sequence[str], int]:
    """What starts the samplers, and on how many nodes."""
    sampler = ["env", f"PYTHONPATH={code_of(context.cluster, run)}", context.cluster.python, "-m"]
    sampler += ["rltui.onnode.sampler", "--attempt", attempt, "--for", str(60 * minutes)]
    if context.cluster.profile.scheduler == "local":
        pid = int(run.job_id)
        if processes.start_time(pid) is None:
            raise RltuiError(f"Process {pid} has ended.")
        return [*sampler, "--mark", f"pid:{pid}", "--parent", str(pid)], 1
    nodes = run.job.nodes if run.job is not None and run.job.state == "running" else ()
    if not nodes:
        raise RltuiError(f"Job {run.job_id} is not running, so there is nothing to sample.")
    # srun would try for ever where the job's own step holds all of it ("step creation temporarily disabled")
    step = [*step_command(nodes, 1), f"--jobid={run.job_id}", f"--time={minutes}", "--immediate=20"]
    return [*step, *sampler, "--mark", "job"], len(nodes)


def _said(client: RelayClient, attempt: str) -> str:
    """What the step's client complained of."""
    return client.tail(f"{attempt}/{LOG}", 2000).data.decode("utf-8", "replace").strip()[-300:]


def _sees_gpus(client: RelayClient, attempt: str, host: str) -> bool:
    whole = client.tail(f"{attempt}/{sampler_file(host)}", 1 << 16).data.split(b"\n")[:-1]
    return any((parse_object(line) or {}).get("gpus") for line in whole[-1:])
