"""The client of Ray's Jobs API on a real Ray head that wants a token."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from tls_front import HOST, front

from forks import server_of_session, workers_asked
from free_ports import free_ports
from rltui.cluster.cluster import SubmitRefusedError, SubmitUnknownError
from rltui.cluster.local_transport import LocalTransport
from rltui.cluster.profile import Profile
from rltui.cluster.ray_cluster import RayCluster, RayJobs
from rltui.cluster.relay_client import RelayClient
from rltui.cluster.relay_types import RelayError
from rltui.errors import ClusterError, UsageError
from rltui.onnode import ray_head, ray_process, ray_start, rundir
from rltui.service.cluster_queue import queue_of
from waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from rltui.cluster.jobs import JobSnapshot

pytestmark = [pytest.mark.trainers]

ENDS = """
import json, os, sys
with open(sys.argv[1], "a") as stream:
    stream.write(json.dumps([sys.argv[2:], os.environ["WORD"]]) + "\\n")
print("the last word", flush=True)
sys.exit(int(sys.argv[2]))
"""


@contextmanager
def taking_jobs() -> Iterator[None]:
    """A Ray that starts inside takes jobs, as a standing one does; that of a run has no use for them.

    Its workers are forked.
    """
    start = ray_start.START_OWN.replace("ray_start.leave_out()", "ray_start.HEADS += 'JobHead',; ray_start.leave_out()")
    start = workers_asked(server_of_session()) + start
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray_process, "START_OWN", start)
        yield


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ray_head.RayHead]:
    """A standing Ray, as a site might run it."""
    folder, uuid = tmp_path_factory.mktemp("standing"), uuid4().hex
    spec = ray_process.RaySpec(sys.executable, str(folder), uuid, 2, 0)
    head = ray_head.RayHead(spec, {**os.environ, rundir.ATTEMPT_VARIABLE: uuid})
    with taking_jobs():
        head.start(180, lambda: False)
    yield head
    head.stop()
    head.remove_folder()


@pytest.fixture(scope="module")
def relay() -> Iterator[RelayClient]:
    client = RelayClient(LocalTransport())
    yield client
    client.close()


@pytest.fixture
def jobs(head: ray_head.RayHead, relay: RelayClient) -> RayJobs:
    return RayJobs(relay, head.dashboard, head.token)


def ended(jobs: RayJobs, submission_id: str) -> JobSnapshot:
    return eventually(lambda: job if (job := jobs.status(submission_id)) and job.has_ended else None, "the end")


def test_a_job_is_submitted_once_however_often_it_is_sent(jobs: RayJobs, tmp_path: Path) -> None:
    uuid, path = uuid4().hex, tmp_path / "said"
    assert jobs.status(uuid) is None
    words = ["7", "$(touch /tmp/never)", "a 'b' \"c\"", "; false", "\n-x"]
    for _ in range(3):
        sent = jobs.submit(
            uuid, [sys.executable, "-c", ENDS, str(path), *words], env={"WORD": "$HOME"}, metadata={"name": "run-1"}
        )
        assert sent == uuid
    job = ended(jobs, uuid)
    assert (job.state, job.word, job.exit_code, job.name) == ("failed", "FAILED", 7, "run-1")
    assert job.ending == "Job entrypoint command failed with exit code 7: the last word"
    assert path.read_text().count("\n") == 1
    assert '[["7", "$(touch /tmp/never)", "a \'b\' \\"c\\"", "; false", "\\n-x"], "$HOME"]' in path.read_text()
    assert time.time() - 600 < job.submitted_at <= job.ended_at
    assert jobs.list()[uuid].state == "failed"
    assert jobs.stop(uuid) is False


def test_a_running_job_is_stopped(jobs: RayJobs) -> None:
    uuid = uuid4().hex
    told = {"name": "run-7", "comment": f"rltui:{uuid}"}
    jobs.submit(uuid, [sys.executable, "-c", "import time; time.sleep(600)"], metadata=told)
    eventually(lambda: (job := jobs.status(uuid)) and job.state == "running", "a running job")
    cluster = RayCluster(Profile(name="ray", scheduler="ray", transport="local"), LocalTransport())
    cluster._jobs = jobs
    listed = {one.job_id: one for one in queue_of(cluster).holding}
    assert (listed[uuid].name, listed[uuid].is_mine, listed[uuid].gpus) == ("run-7", True, None)
    assert jobs.stop(uuid) is True
    assert ended(jobs, uuid).state == "cancelled"
    assert uuid not in {one.job_id for one in queue_of(cluster).jobs}
    assert jobs.stop("no-such-job") is False


def test_without_the_token_nothing_is_submitted(head: ray_head.RayHead, relay: RelayClient, jobs: RayJobs) -> None:
    stranger = RayJobs(relay, head.dashboard, "wrong")
    with pytest.raises(SubmitRefusedError) as refused:
        stranger.submit("a-stranger", ["true"])
    assert "token" in refused.value.hint
    with pytest.raises(ClusterError, match="40"):
        stranger.list()
    assert jobs.status("a-stranger") is None
    assert jobs.version()


class ForgetfulRelay:
    """A relay whose answers to submissions are lost after they have arrived."""

    def __init__(self, relay: RelayClient) -> None:
        self._relay = relay

    def http(self, url: str, *, method: str = "GET", **more: object) -> object:
        answer = self._relay.http(url, method=method, **more)  # type: ignore[arg-type]
        if method == "POST":
            raise RelayError("lost", "The relay ended.")
        return answer


def test_a_lost_answer_is_unknown_and_sending_again_is_safe(
    head: ray_head.RayHead, relay: RelayClient, jobs: RayJobs, tmp_path: Path
) -> None:
    uuid, path = uuid4().hex, tmp_path / "said"
    argv = [sys.executable, "-c", ENDS, str(path), "0"]
    forgetful = RayJobs(ForgetfulRelay(relay), head.dashboard, head.token)  # type: ignore[arg-type]
    with pytest.raises(SubmitUnknownError, match="unknown whether"):
        forgetful.submit(uuid, argv, env={"WORD": "x"})
    assert jobs.submit(uuid, argv, env={"WORD": "x"}) == uuid
    assert ended(jobs, uuid).state == "completed"
    assert path.read_text().count("\n") == 1


def test_an_address_where_no_ray_answers_is_a_certain_no(relay: RelayClient) -> None:
    port = free_ports(1)[0]
    nobody = RayJobs(relay, f"http://127.0.0.1:{port}", "")
    with pytest.raises(SubmitRefusedError, match="Nothing was submitted"):
        nobody.submit("x", ["true"])
    with pytest.raises(ClusterError):
        nobody.status("x")
    elsewhere = RayJobs(relay, "http://10.0.0.1:8265")
    with pytest.raises(SubmitRefusedError, match="loopback"):
        elsewhere.submit("x", ["true"])


@pytest.mark.parametrize("submission_id", ["", "../x", "a/b", "a?b", "-x", "a\nb", "x" * 200])
def test_no_strange_id_becomes_part_of_an_address(jobs: RayJobs, submission_id: str) -> None:
    with pytest.raises(UsageError):
        jobs.submit(submission_id, ["true"])
    with pytest.raises(UsageError):
        jobs.status(submission_id)


def test_a_ray_behind_https_is_asked_with_its_token_and_headers_and_nobody_else_is(
    head: ray_head.RayHead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ray").mkdir(mode=0o700)
    (tmp_path / ".ray/auth_token").write_text(head.token)
    headers = tmp_path / "headers"
    headers.write_text("# of our gateway\nX-Team: rl\n")
    port = int(head.dashboard.rpartition(":")[2])
    with front(tmp_path, port, "x-team: rl") as (address, certificate):
        keys = {"name": "far", "scheduler": "ray", "ray_address": address}
        profile = Profile(**keys, ray_headers_file="~/headers", python=sys.executable)
        unverified = RayCluster(profile, LocalTransport())
        headers.chmod(0o644)
        with pytest.raises(ClusterError, match="can be read by others"):
            unverified.ray.version()
        headers.chmod(0o600)
        with pytest.raises(ClusterError, match=r"certificate of 127\.0\.0\.5 is not trusted"):
            unverified.ray.version()
        unverified.close()

        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        cluster = RayCluster(profile, LocalTransport())
        assert cluster.ray.version()
        uuid = uuid4().hex
        cluster.ray.submit(uuid, [sys.executable, "-c", ENDS, str(tmp_path / "said"), "0"], env={"WORD": "far"})
        assert ended(cluster.ray, uuid).state == "completed"
        actors = cluster.client.http(f"{address}/api/v0/actors?limit=1")
        assert actors.status == 200, "what is read off a run's files is answered there too"
        with pytest.raises(ClusterError, match="Only http:// on loopback"):
            cluster.client.http(address.replace(HOST, "127.0.0.6"))
        cluster.close()

        stranger = RayCluster(Profile(**keys), LocalTransport())
        with pytest.raises(SubmitRefusedError, match="403") as refused:
            stranger.ray.submit(uuid4().hex, ["true"])
        assert "ray_headers_file" in refused.value.hint
        stranger.close()
