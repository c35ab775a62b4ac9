"""On a Ray cluster that somebody else has started, through its Jobs API: a run of the real trainer, and faults."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from night import Here, Night, spend
from night_faults import FOR_A_PERSON
from night_report import report
from test_ray_jobs import taking_jobs
from workstation import FEW_ANSWERS

from forks import server_of_session, write_forking_python
from free_ports import free_ports
from rltui.cluster.local_transport import LocalTransport
from rltui.cluster.profile import Profile
from rltui.cluster.ray_cluster import RayCluster
from rltui.cluster.trusted_server import TOKEN_FILE
from rltui.errors import ClusterError
from rltui.onnode import processes, ray_head, ray_process, rundir
from rltui.onnode.ask_http import ask
from rltui.onnode.sampler import host_name
from rltui.onnode.server_notes import NODES
from rltui.runs.journal import Journal
from rltui.service.actions import cancel
from rltui.service.context import Context
from rltui.service.describe import newest_checkpoint_step
from rltui.service.launch import launch
from rltui.service.resubmit import resubmit
from rltui.watch.run_watcher import RunWatcher
from waiting import eventually

if TYPE_CHECKING:
    from rltui.watch.snapshots import RunSummary

pytestmark = [pytest.mark.trainers, pytest.mark.slow, pytest.mark.timeout(1200)]


ELSEWHERE = """#!/bin/sh
exec unshare --uts sh -c 'hostname second && exec "$0" "$@"' {python} "$@"
"""
"""Another host as far as its name goes; changing that takes root."""

TWO_NODES = ["hardware.nodes=2", "hardware.gpus_per_node=1", "roles.learner.gpus=[1]", "tracking.wandb=disabled",
             *FEW_ANSWERS]  # fmt: skip
"""One learner, and one engine on another node."""

STRANGER = """
import ray
ray.init(log_to_driver=False)
@ray.remote(num_cpus=0)
class Stranger:
    def here(self): return 1
one = Stranger.remote()
ray.get(one.here.remote())
print("up", flush=True)
input()
"""


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ray_head.RayHead]:
    """A standing Ray of two nodes with three CPUs each, whose token lies where Ray looks for it."""
    home, uuid = tmp_path_factory.mktemp("standing"), uuid4().hex
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        yield from started(home, uuid)


def started(home: Path, uuid: str) -> Iterator[ray_head.RayHead]:
    """It runs, until what uses it is done."""
    spec = ray_process.RaySpec(sys.executable, str(home), uuid, 3, 0)
    environment = {**os.environ, rundir.ATTEMPT_VARIABLE: uuid}
    head = ray_head.RayHead(spec, environment)
    python = home / "python"
    python.write_text(ELSEWHERE.format(python=sys.executable))
    python.chmod(0o700)
    spec = spec._replace(python=str(python), address="127.0.0.3", folder=f"{head.folder}-2", log="ray-second.log")
    second = ray_process.RayProcess(spec, environment)
    try:
        with taking_jobs():
            head.start(180, lambda: False)
            agent, metrics = free_ports(2)
            ports = [f"--dashboard-agent-listen-port={agent}", f"--metrics-export-port={metrics}"]
            second.launch([f"--address={head.address}", *ports])
        nodes = functools.partial(ask, head.dashboard + NODES, head.token, 10)
        eventually(lambda: second.death() or "second" in str(nodes().value), "the second node", saw=nodes)
        assert not second.death(), second.last_words()
        token = home / TOKEN_FILE
        token.parent.mkdir(mode=0o700)
        token.write_text(head.token)
        yield head
    finally:
        for one in (second, head):
            one.stop()
            one.remove_folder()


@pytest.fixture
def stranger(head: ray_head.RayHead) -> Iterator[None]:
    """Somebody else's program with an actor on the same Ray."""
    environment = {**os.environ, **head.client_environment(), "RAY_ADDRESS": head.address}
    with subprocess.Popen(
        [sys.executable, "-c", STRANGER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"up\n"
        yield
        program.kill()


def look(context: Context, run_id: str) -> RunSummary | None:
    """The run, or None while Ray's dashboard does not answer, as a busy one may not for a moment."""
    try:
        return context.find(run_id)
    except ClusterError:
        return None


@pytest.mark.skipif(os.geteuid() != 0, reason="a second host needs root")
@pytest.mark.usefixtures("stranger")
def test_a_run_is_launched_cancelled_and_resubmitted_on_a_standing_ray(head: ray_head.RayHead, tmp_path: Path) -> None:
    python = str(tmp_path / "python")
    write_forking_python(Path(python), server_of_session())
    profile = Profile(
        name="standing", scheduler="ray", ray_address=head.dashboard, python=python, run_root=f"{tmp_path}/runs"
    )
    context = Context(cluster=RayCluster(profile, LocalTransport()), journal=Journal(tmp_path / "state"))
    run_id = launch(context, "local/grpo-tiny", ["train.steps=100000", *TWO_NODES]).run_id
    eventually(lambda: (seen := look(context, run_id)) and ((seen.stage.step or 0) > 1 or seen.end), "a step")
    run = eventually(lambda: look(context, run_id), "the run")
    assert (run.state, run.cluster) == ("running", "standing")
    # Ray is asked every five seconds, and what it said last may be of the time before the run began
    run = eventually(
        lambda: (seen := look(context, run_id)) and seen.job and seen.job.state == "running" and seen, "Ray's word"
    )
    assert run.job is not None
    mark = run.job.job_id
    watcher = RunWatcher(context.cluster.client, run.path)
    here = host_name()
    eventually(lambda: {host.host for host in watcher.snapshot().hosts} == {here, "second"}, "samples of both nodes")
    # a dashboard that is too busy to answer is asked ever less, down to once in 30 s
    both = {here, "second"}

    def seen() -> tuple[list[str], str]:
        shown = watcher.snapshot()
        return [f"{actor.name} {actor.state} on {actor.node}" for actor in shown.actors], shown.actors_problem

    eventually(lambda: {actor.node for actor in watcher.snapshot().actors} == both, "actors on both nodes", saw=seen)
    assert not any(actor.class_name == "Stranger" for actor in watcher.snapshot().actors)
    cancel(context, run)
    eventually(lambda: (seen := look(context, run_id)) and seen.state == "cancelled", "the end")
    eventually(lambda: not processes.by_attempt(mark), "the end of its processes, samplers too")
    run = eventually(lambda: look(context, run_id), "the run")
    saved = newest_checkpoint_step(context, run) or 0
    fewer = ["hardware.nodes=1", "hardware.gpus_per_node=2"]
    assert resubmit(context, run, [f"train.steps={saved + 2}", *fewer]).attempt == 2
    eventually(lambda: (seen := look(context, run_id)) and seen.state == "finished", "the end of all steps")
    run = eventually(lambda: look(context, run_id), "the run")
    assert (run.nodes, run.gpus_per_node) == (1, 2)
    context.close()


class OnRay(Here):
    """A standing Ray, by its Jobs API."""

    def __init__(self, folder: Path, address: str) -> None:
        super().__init__(folder)
        profile = f"{{scheduler: ray, ray_address: '{address}', python: {sys.executable}, run_root: {folder}/runs"
        scaled = f"env: {{RLTUI_DEADLINE_SCALE: '{self.scale}'}}}}"
        (folder / "config/clusters.yaml").write_text(f"standing: {profile}, {scaled}\n")

    def launch(self) -> str:
        words = ("--nodes", "1", "--gpus-per-node", "0", "--folder", str(self.home), "--cluster", "standing", "--auto")
        return self.rltui("launch", "--script", "night.sh", *words).split()[-1]


def test_faults_on_a_standing_ray_end_without_a_person_or_with_one_told(head: ray_head.RayHead, tmp_path: Path) -> None:
    night = Night(OnRay(tmp_path, head.dashboard), seed=5)
    faults = ["trainer killed", "supervisor killed", "collective timed out", "module missing", "trainer stopped"]
    spend(night, faults)
    print("\n".join(report(night.outcomes, night.wrong, FOR_A_PERSON)))
    assert night.wrong == []
    alone = {one.fault for one in night.outcomes if one.submitted_s is not None}
    assert alone == {fault for fault in faults if fault not in FOR_A_PERSON}
