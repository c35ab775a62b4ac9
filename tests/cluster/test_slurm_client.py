"""The Slurm client on a real cluster: slurmctld, slurmdbd, three nodes, and what it does when these fail."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from lab import Lab

from rltui.cluster.cluster import SubmitRefusedError
from rltui.cluster.gather_facts import gather_facts
from rltui.cluster.local_transport import LocalStream
from rltui.cluster.relay_client import RelayClient
from rltui.cluster.relay_program import relay_argv
from rltui.cluster.slurm.client import SlurmClient
from rltui.cluster.slurm.ids import comment_of, job_name_of
from rltui.cluster.slurm.poller import JobPoller
from rltui.cluster.slurm.replies import SlurmRefusedError, SlurmUnansweredError
from rltui.errors import ClusterError
from waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from rltui.cluster.jobs import JobSnapshot

SLEEPS = "#!/bin/bash\nsleep 600 &\nwait\n"
ENDS = "#!/bin/bash\nexit 7\n"
WHOLE_NODE = ("--nodes=1", "--gres=gpu:h100:4", "--time=10")


class LoginNode:
    """The way to the lab's login node, without ssh."""

    place = "the lab"

    def __init__(self, lab: Lab, user: str) -> None:
        self._lab, self._user = lab, user

    def open(self) -> LocalStream:
        said = tempfile.TemporaryFile()  # noqa: SIM115 (kept by the stream)
        argv = self._lab.command("login", relay_argv(sys.executable), self._user)
        pipe = subprocess.PIPE
        process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=said, bufsize=0, start_new_session=True)
        return LocalStream(process, said)


class MovedClock:
    """This machine's clock, put forward by the test."""

    ahead_s = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead_s


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


@pytest.fixture
def client(slurm_cluster: Lab, clock: MovedClock) -> Iterator[SlurmClient]:
    relay = RelayClient(LoginNode(slurm_cluster, "alice"))
    put_scripts(slurm_cluster)
    yield SlurmClient(relay, clock, settle_s=0)
    relay.close()


def put_scripts(lab: Lab) -> None:
    for name, text in (("sleeps", SLEEPS), ("ends", ENDS)):
        lab.exec("login", ["tee", name], input=text)


def submit(client: SlurmClient, *extra: str, script: str = "sleeps", uuid: str = "", name: str = "run") -> str:
    uuid = uuid or uuid4().hex
    return client.submit(
        f"/home/alice/{script}",
        job_name=job_name_of(name, uuid),
        comment=comment_of(uuid),
        chdir="/home/alice",
        extra=extra,
    )


def the_job(client: SlurmClient, job_id: str) -> JobSnapshot:
    ((_, job),) = client.queue([job_id])
    return job


def is_in(client: SlurmClient, job_id: str, *states: str) -> bool:
    return the_job(client, job_id).state in states


def test_a_job_with_a_hostile_name_is_submitted_found_and_cancelled(client: SlurmClient) -> None:
    uuid = uuid4().hex
    assert client.find_by_comment(uuid, client.now()) is None
    hostile = 'we|ird\nna"me $(touch /tmp/owned) \x1b[31m'
    job_id = submit(client, *WHOLE_NODE, uuid=uuid)
    other = client.submit(
        "/home/alice/sleeps", job_name=hostile, comment=hostile, chdir="/home/alice", extra=["--hold"]
    )
    assert client.find_by_comment(uuid, client.now()) == job_id
    eventually(lambda: is_in(client, job_id, "running"))
    job = the_job(client, job_id)
    assert (job.name, job.comment) == (job_name_of("run", uuid), comment_of(uuid))
    assert (job.node_count, len(job.nodes), job.time_limit_s, job.user) == (1, 1, 600, "alice")
    assert abs(job.started_at - time.time()) < 600
    assert the_job(client, other).name.strip() == 'we|ird na"me $(touch /tmp/owned)'
    assert client.cancel(job_id) is True
    eventually(lambda: is_in(client, job_id, "cancelled"))
    assert client.cancel(job_id) is False
    assert client.cancel(other, uuid=uuid) is True  # its comment is no mark, so it is not known to be another's
    assert client.cancel("99999") is False
    eventually(lambda: [one.cancelled_by for one in client.attempts(job_id, client.now())] == ["me"])


REFUSALS = (
    (["--partition=nosuch"], "nosuch"),
    (["--account=nosuch"], "Invalid account"),
    (["--qos=nosuch"], "Invalid qos"),
    (["--gres=gpu:h100:9"], "Requested node configuration"),
    (["--gres=tpu:1"], "gres"),
    (["--constraint=a100"], "Invalid feature"),
    (["--exclude=node9"], "Invalid node name"),
    (["--time=banana"], "--time"),
    (["--frob"], "--frob"),
    (["--nodes=3", "--exclude=node2"], "Requested node configuration"),
)


def test_a_refusal_is_certain_and_says_why(client: SlurmClient) -> None:
    for options, words in REFUSALS:
        with pytest.raises(SubmitRefusedError, match=words):
            submit(client, *options)
    # of some refusals the controller keeps a record, born failed
    assert all(job.has_ended for _, job in client.queue())


def test_a_script_that_is_not_there_is_refused(client: SlurmClient) -> None:
    with pytest.raises(SubmitRefusedError, match="nosuch"):
        submit(client, script="nosuch")


def test_a_dry_run_submits_nothing(client: SlurmClient) -> None:
    fits = client.test_only("/home/alice/sleeps", ["--nodes=2", "--gres=gpu:h100:4"])
    assert fits.accepted
    assert fits.partition == "gpu"
    assert not client.test_only("/home/alice/sleeps", ["--nodes=9"]).accepted
    assert all(job.has_ended for _, job in client.queue())


def test_pending_jobs_are_held_released_and_changed(client: SlurmClient) -> None:
    job_id = submit(client, "--hold", "--exclude=node2")
    assert the_job(client, job_id).reason == "JobHeldUser"
    assert client.set_excluded(job_id, ["node3", "node2"]) == ("node2", "node3")
    assert client.excluded(job_id) == ("node2", "node3")
    client.set_time_limit(job_id, 300)
    assert the_job(client, job_id).time_limit_s == 300
    with pytest.raises(SlurmRefusedError, match="Invalid node name"):
        client.set_excluded(job_id, ["node9"])
    client.release(job_id)
    eventually(lambda: is_in(client, job_id, "running"))
    assert the_job(client, job_id).nodes == ("node1",)
    with pytest.raises(SlurmRefusedError, match="no longer pending"):
        client.set_excluded(job_id, ["node1"])
    with pytest.raises(SlurmRefusedError, match="denied") as refused:
        client.set_time_limit(job_id, 86400)
    assert "cannot raise the limit of a running job" in refused.value.hint
    client.cancel(job_id)
    eventually(lambda: is_in(client, job_id, "cancelled"))
    for change in (client.hold, client.release, client.requeue):
        with pytest.raises(SlurmRefusedError):
            change(job_id)
    assert the_job(client, job_id).state == "cancelled"  # requeueing an ended job would run it once more


def test_the_accounting_has_jobs_that_were_cancelled_before_they_might_start(client: SlurmClient) -> None:
    first = submit(client, "--hold")
    jobs = [first, submit(client, f"--dependency=afterok:{first}"), submit(client, "--begin=now+1hour")]
    for job_id in jobs:
        assert client.cancel(job_id)
    eventually(lambda: {job.job_id for _, job in client.accounting(client.now())} >= set(jobs))


def test_a_strangers_job_is_not_touched(slurm_cluster: Lab, client: SlurmClient) -> None:
    stranger = slurm_cluster.exec("login", ["sbatch", "--parsable", "--wrap=sleep 600"], user="bob").stdout.strip()
    for change in (client.cancel, client.hold, client.requeue):
        with pytest.raises(SlurmRefusedError, match="bob"):
            change(stranger)
    assert stranger not in [job.job_id for _, job in client.queue()]


def test_a_running_job_starts_again_without_a_node(client: SlurmClient) -> None:
    began = client.now()
    job_id = submit(client, *WHOLE_NODE)
    eventually(lambda: is_in(client, job_id, "running"))
    bad = the_job(client, job_id).nodes
    client.requeue_without(job_id, bad)
    eventually(lambda: is_in(client, job_id, "running"))
    job = the_job(client, job_id)
    assert job.restarts == 1
    assert job.nodes != bad
    assert client.excluded(job_id) == bad
    # the accounting lags behind
    eventually(lambda: [one.state for one in client.attempts(job_id, began)][1:] == ["running"])
    first, second = client.attempts(job_id, began)
    assert (first.nodes, first.restarts, first.has_ended) == (bad, 0, True)
    assert (second.nodes, second.restarts, second.state) == (job.nodes, 1, "running")
    assert first.submitted_at < second.submitted_at


def test_a_lost_node_is_never_a_false_end(slurm_cluster: Lab, client: SlurmClient, clock: MovedClock) -> None:
    began = client.now()
    job_id = submit(client, *WHOLE_NODE, "--requeue")
    poller = JobPoller(client, clock)
    eventually(lambda: is_in(client, job_id, "running"))
    (bad,) = the_job(client, job_id).nodes
    slurm_cluster.crash(bad)
    seen: list[str] = []

    def came_back() -> bool:
        clock.ahead_s += 40
        job = poller.jobs([job_id]).jobs[job_id]
        seen.append(job.state)
        return job.restarts == 1 and job.state == "running"

    eventually(came_back)
    assert not {"completed", "failed", "cancelled", "unknown"} & set(seen), seen
    assert the_job(client, job_id).nodes != (bad,)
    eventually(lambda: [one.word for one in client.attempts(job_id, began)][:1] == ["NODE_FAIL"])


def test_a_controller_that_is_down_ends_no_job(slurm_cluster: Lab, client: SlurmClient, clock: MovedClock) -> None:
    job_id = submit(client, *WHOLE_NODE)
    poller = JobPoller(client, clock)
    eventually(lambda: is_in(client, job_id, "running"))
    taken_at = poller.jobs([job_id]).taken_at
    with slurm_cluster.controller_away():
        clock.ahead_s += 60
        picture = poller.jobs([job_id])
        assert picture.jobs[job_id].state == "running"
        assert "Unable to contact slurm controller" in picture.problem
        assert picture.taken_at == taken_at
        with pytest.raises(SubmitRefusedError, match="connect failure"):
            submit(client)
        with pytest.raises(ClusterError):
            client.find_by_comment(uuid4().hex, client.now() - 300)
    clock.ahead_s += 600
    picture = poller.jobs([job_id])
    assert (picture.problem, picture.jobs[job_id].state) == ("", "running")


def test_nobody_says_none_while_the_database_is_down(slurm_cluster: Lab, client: SlurmClient) -> None:
    assert client.find_by_comment(uuid4().hex, client.now() - 300) is None
    slurm_cluster.service("ctl", "slurmdbd", "stop")
    with pytest.raises(SlurmUnansweredError) as error:
        client.find_by_comment(uuid4().hex, client.now() - 300)
    assert error.value.trouble.kind == "database"
    assert gather_facts(client.runner.relay).accounts == ()


def test_dead_authentication_is_named_and_nothing_is_submitted(slurm_cluster: Lab, client: SlurmClient) -> None:
    slurm_cluster.service("login", "munged", "stop")
    with pytest.raises(SlurmUnansweredError) as error:
        client.queue()
    assert error.value.trouble.kind == "auth"
    with pytest.raises(SubmitRefusedError, match=r"[Mm]unge"):
        submit(client)
    slurm_cluster.service("login", "munged", "start")
    assert all(job.has_ended for _, job in client.queue())


def rpcs(lab: Lab) -> int:
    """Calls of alice to slurmctld since it was last asked to forget them."""
    said = lab.exec("ctl", ["sdiag"], user="root").stdout
    by_user = said.partition("statistics by user")[2]
    counts = [line.split("count:")[1].split()[0] for line in by_user.splitlines() if line.split()[:1] == ["alice"]]
    return sum(map(int, counts))


def test_steady_watching_costs_at_most_six_calls_a_minute(
    slurm_cluster: Lab, client: SlurmClient, clock: MovedClock
) -> None:
    minutes = 20
    ids = [submit(client, *WHOLE_NODE) for _ in range(5)]
    poller = JobPoller(client, clock)
    eventually(lambda: [is_in(client, one, "running") for one in ids].count(True) == 3)  # one a node; two wait
    poller.jobs(ids)
    clock.ahead_s += 61  # of bringing it up
    slurm_cluster.exec("ctl", ["sdiag", "--reset"], user="root")
    counted = 0
    for _ in range(minutes * 60 // 5):
        picture = poller.jobs(ids)
        counted = max(counted, poller.rpcs_per_minute())
        clock.ahead_s += 5
    assert rpcs(slurm_cluster) <= 6 * minutes
    assert rpcs(slurm_cluster) >= 3 * minutes  # it did look
    assert counted <= 6
    places = sorted((job.queue_position or 0, job.partition_pending or 0) for job in picture.jobs.values())
    assert places == [(0, 0), (0, 0), (0, 0), (1, 2), (2, 2)]


def test_our_count_of_calls_is_the_controllers(slurm_cluster: Lab, client: SlurmClient) -> None:
    client.uid()
    slurm_cluster.exec("ctl", ["sdiag", "--reset"], user="root")
    before = client.runner.rpcs_per_minute()
    job_id = submit(client, "--hold")
    client.queue()
    client.pending(["gpu"])
    client.set_time_limit(job_id, 60)
    client.set_excluded(job_id, ["node1"])
    client.cancel(job_id)
    gather_facts(client.runner.relay)  # counts for itself: three
    assert client.runner.rpcs_per_minute() - before + 3 == rpcs(slurm_cluster)


def test_what_the_cluster_offers_is_gathered(slurm_cluster: Lab, client: SlurmClient) -> None:
    reason = "GPU 2: Xid 79, State=IDLE fell off"
    drain = ["scontrol", "update", "nodename=node3", "state=drain", f"reason={reason}"]
    slurm_cluster.exec("ctl", drain, user="root")
    job_id = submit(client, "--nodes=1", "--gres=gpu:h100:3", "--nodelist=node1")
    eventually(lambda: is_in(client, job_id, "running"))
    facts = gather_facts(client.runner.relay)
    assert [one.name for one in facts.partitions if one.is_default] == ["gpu"]
    assert {one.name: one.max_time_s for one in facts.partitions}["debug"] == 30 * 60
    assert {one.name: one.max_time_s for one in facts.partitions}["gpu"] == 2 * 86400
    first, second, third = facts.nodes
    assert (first.name, first.gpu, first.gpus, first.gpus_used, first.state) == ("node1", "h100", 4, 3, "mixed")
    assert (second.gpus_used, second.is_usable, second.memory_gib) == (0, True, 62.5)
    assert (third.state, third.flags, third.reason, third.is_usable) == ("idle", ("drain",), reason, False)
    assert set(facts.accounts) == {"rlteam", "small"}
    assert "debug" in first.partitions
    assert "debug" not in second.partitions


def test_without_accounting_a_young_submission_is_found_or_certainly_absent() -> None:
    lab = Lab(compute_nodes=1, accounting=False).start()
    try:
        put_scripts(lab)
        client = SlurmClient(RelayClient(LoginNode(lab, "alice")), settle_s=0)
        uuid = uuid4().hex
        assert client.find_by_comment(uuid, client.now()) is None
        job_id = submit(client, script="ends", uuid=uuid)
        assert client.find_by_comment(uuid, client.now()) == job_id
        with pytest.raises(ClusterError, match="accounting"):
            client.find_by_comment(uuid4().hex, client.now() - 400)
        poller = JobPoller(client)
        eventually(lambda: is_in(client, job_id, "failed"))
        job = poller.jobs([job_id]).jobs[job_id]
        assert (job.state, job.exit_code) == ("failed", 7)
        assert gather_facts(client.runner.relay).accounts == ()
        client.runner.relay.close()
    finally:
        lab.stop()


def test_the_verb_lists_nodes_over_ssh(
    slurm_cluster: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "rltui"
    folder.mkdir()
    (folder / "clusters.yaml").write_text("lab: {scheduler: slurm, transport: paramiko, host: lab}\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("RLTUI_SSH_CONFIG", str(slurm_cluster.ssh_settings().config))
    words = [sys.executable, "-m", "rltui", "nodes"]
    assert subprocess.run([*words, "--json"], check=False, cwd=tmp_path).returncode == 0
    said = json.loads(capfd.readouterr().out)
    assert (said["schema"], said["cluster"], len(said["facts"]["nodes"])) == (1, "lab", 3)
    assert said["groups"] == [
        {
            "nodes": ["node1"],
            "state": "idle",
            "gpu": "h100",
            "gpus": 4,
            "gpus_free": 4,
            "is_usable": True,
            "reason": "",
            "partitions": ["gpu", "debug", "low"],
        },
        {**said["groups"][0], "nodes": ["node2", "node3"], "partitions": ["gpu", "low"]},
    ]
    with slurm_cluster.controller_away():
        assert subprocess.run(words, check=False, cwd=tmp_path).returncode == 3
    assert "Unable to contact slurm controller" in capfd.readouterr().err
