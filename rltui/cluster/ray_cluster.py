"""A standing Ray cluster as a place that runs attempts, by its Jobs API."""

from __future__ import annotations

import json
import re
import shlex
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from rltui.cluster.cluster import Attempt, SubmitRefusedError, SubmitUnknownError
from rltui.cluster.jobs import JobSnapshot, JobsSnapshot, JobState
from rltui.cluster.plain_text import plain
from rltui.cluster.profile import Profile, job_variables
from rltui.cluster.relay_client import RelayClient
from rltui.cluster.relay_types import HttpAnswer, RelayError
from rltui.cluster.remote_paths import RemoteRoot
from rltui.cluster.transport import Transport
from rltui.cluster.trusted_server import TOKEN_FILE, trust_ray
from rltui.errors import ClusterError, RltuiError, UsageError
from rltui.onnode import rundir
from rltui.onnode.environment import ENV_FILE_VARIABLE
from rltui.onnode.standing_job import ACTORS_VARIABLE, DASHBOARD_VARIABLE

ASK_TIMEOUT_S = 10.0
SUBMIT_TIMEOUT_S = 60.0
"""Ray waits for an agent on a node before it answers."""

STATES: dict[str, JobState] = {
    "PENDING": "pending",
    "RUNNING": "running",
    "STOPPED": "cancelled",
    "SUCCEEDED": "completed",
    "FAILED": "failed",
}

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class _Details(Struct, frozen=True):
    """What Ray says of a job, as far as it is of use; times are milliseconds."""

    type: str = ""
    """SUBMISSION, or DRIVER: somebody's program that only connected."""
    submission_id: str | None = None
    status: str = ""
    message: str | None = None
    start_time: float | None = None
    end_time: float | None = None
    metadata: dict[str, Any] | None = None
    driver_exit_code: int | None = None


class RayJobs:
    """Submits jobs to one Ray cluster, asks for them and stops them.

    Args:
        relay: The relay, on a host that reaches Ray's dashboard.
        address: The dashboard as that host sees it, ``http://127.0.0.1:8265``; beyond loopback only what it trusts.
        token: The cluster's token where it wants one that the relay does not know.
    """

    def __init__(self, relay: RelayClient, address: str, token: str = "") -> None:
        self._relay = relay
        self._address = address.rstrip("/")
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    def version(self) -> str:
        """Ray's version.

        Raises:
            ClusterError: It does not answer, or not as Ray does.
        """
        answer = self._good(self._ask("GET", "/api/version"))
        return plain(str(_object(answer).get("ray_version", "")))[:40]

    def submit(
        self,
        submission_id: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
        cpus: float = 0,
    ) -> str:
        """Submit a job, once however often this is called with the same id; returns that id.

        Args:
            submission_id: The attempt's uuid.
            argv: The command; Ray gives it to a shell, so it is quoted.
            env: Plain variables. Everybody who may look at the dashboard can read them, so no secret is one.
            metadata: Words to find it by.
            cpus: CPU slots that the command itself holds.

        Raises:
            SubmitRefusedError: Certainly nothing was submitted.
            SubmitUnknownError: Nobody can tell; to submit it again with the same id is safe.
        """
        body = {
            "submission_id": _checked(submission_id),
            # not as env_vars of the runtime environment: Ray would expand every $NAME in their values
            "entrypoint": shlex.join(["env", *_assignments(env or {}), *argv]),
            "metadata": dict(metadata or {}),
            "entrypoint_num_cpus": cpus,
        }
        try:  # a gateway that wants another header may break off a request with a body before it says so
            self.version()
        except ClusterError as error:
            raise SubmitRefusedError(f"Nothing was submitted: {error.message}", error.hint) from error
        try:
            answer = self._ask("POST", "/api/jobs/", json.dumps(body).encode(), SUBMIT_TIMEOUT_S)
        except RelayError as error:
            if error.kind in ("refused", "unreachable", "bad-request"):
                raise SubmitRefusedError(f"Nothing was submitted: {error.message}", error.hint) from error
            raise self._unknown(submission_id, error.message) from error
        if answer.status == 200 or self._is_there(submission_id, answer):
            return submission_id
        if 400 <= answer.status < 500:
            raise SubmitRefusedError(f"Ray did not take the job: {_complaint(answer)}.", _hint(answer.status))
        raise self._unknown(submission_id, _complaint(answer))

    def status(self, submission_id: str) -> JobSnapshot | None:
        """What Ray says of a job; None where it certainly has none with this id.

        Raises:
            ClusterError: It cannot be asked.
        """
        answer = self._ask("GET", f"/api/jobs/{_checked(submission_id)}")
        # a gateway has a 404 of its own, which says nothing of the job
        if answer.status == 404 and b"does not exist" in answer.body:
            return None
        return _snapshot(_details(self._good(answer)))

    def list(self) -> dict[str, JobSnapshot]:
        """All submitted jobs that Ray remembers, by id: one request for any number of jobs.

        Raises:
            ClusterError: It cannot be asked.
        """
        answer = self._good(self._ask("GET", "/api/jobs/"))
        try:
            found = msgspec.json.decode(answer.body, type=list[_Details], strict=False)
        except msgspec.MsgspecError as error:
            raise _no_ray(self._address) from error
        snapshots = (_snapshot(one) for one in found if one.submission_id and one.type != "DRIVER")
        return {job.job_id: job for job in snapshots}

    def stop(self, submission_id: str) -> bool:
        """Ask Ray to end a job (SIGTERM, three seconds later SIGKILL); False where it has ended or is not there.

        Raises:
            ClusterError: It is unknown whether the word got through.
        """
        before = self.status(submission_id)
        if before is None or before.has_ended:
            return False
        answer = self._good(self._ask("POST", f"/api/jobs/{_checked(submission_id)}/stop"))
        return bool(_object(answer).get("stopped"))

    def _is_there(self, submission_id: str, answer: HttpAnswer) -> bool:
        """Whether a submission that was not accepted is there: it was sent before, or Ray failed only afterwards."""
        if answer.status < 500 and b"already exists" not in answer.body:
            return False
        try:
            return self.status(submission_id) is not None
        except ClusterError:
            return False

    def _unknown(self, submission_id: str, why: str) -> SubmitUnknownError:
        return SubmitUnknownError(
            f"It is unknown whether Ray took the job: {why.rstrip('.')}.",
            f"Submitting {submission_id} again is safe: Ray takes an id only once.",
        )

    def _good(self, answer: HttpAnswer) -> HttpAnswer:
        if answer.status != 200:
            said = _complaint(answer)
            raise ClusterError(f"Ray at {self._address} answers {answer.status}: {said}.", _hint(answer.status))
        return answer

    def _ask(self, method: str, path: str, body: bytes = b"", timeout_s: float = ASK_TIMEOUT_S) -> HttpAnswer:
        url = self._address + path
        try:
            return self._relay.http(url, method=method, headers=self._headers, body=body, timeout_s=timeout_s)
        except RelayError as error:
            raise RelayError(error.kind, f"Ray at {self._address}: {error.message}", error.hint) from error


def _checked(submission_id: str) -> str:
    if not _ID.match(submission_id):
        raise UsageError(f"{plain(submission_id)[:40]!r} is no id of a Ray job.")
    return submission_id


def _assignments(env: Mapping[str, str]) -> list[str]:
    strange = next((name for name in env if not _VARIABLE.match(name)), None)
    if strange is not None:
        raise UsageError(f"{plain(strange)[:40]!r} is no name of a variable.")
    return [f"{name}={value}" for name, value in env.items()]


def _details(answer: HttpAnswer) -> _Details:
    try:
        return msgspec.json.decode(answer.body, type=_Details, strict=False)
    except msgspec.MsgspecError as error:
        raise _no_ray("this address") from error


def _object(answer: HttpAnswer) -> dict[str, Any]:
    try:
        found = json.loads(answer.body)
    except ValueError:
        found = None
    if answer.status != 200 or not isinstance(found, dict):
        raise ClusterError(f"Ray answers {answer.status}: {_complaint(answer)}.", _hint(answer.status))
    return found


def _snapshot(found: _Details) -> JobSnapshot:
    metadata = found.metadata or {}
    state = STATES.get(found.status, "unknown")
    started_at = (found.start_time or 0) / 1000
    return JobSnapshot(
        job_id=plain(found.submission_id or ""),
        state=state,
        word=plain(found.status),
        name=plain(str(metadata.get("name", ""))),
        comment=plain(str(metadata.get("comment", ""))),
        reason=plain(found.message or "")[:300] if state == "pending" else "",
        ending=_ending(found.message or "") if state == "failed" else "",
        submitted_at=started_at,  # Ray notes one time only: when the job was handed in
        started_at=0.0 if state == "pending" else started_at,
        ended_at=(found.end_time or 0) / 1000,
        exit_code=found.driver_exit_code,
    )


def _ending(message: str) -> str:
    """Ray's sentence, and the last line of the log that it appends to it: that one says why."""
    first, _, log = message.partition("\n")
    sentence = plain(first).split(", last available logs")[0].rstrip(". ")[:200]
    lines = [line for line in log.splitlines() if line.strip()]
    return f"{sentence}: {plain(lines[-1]).strip()[:300]}" if lines else f"{sentence}."


def _complaint(answer: HttpAnswer) -> str:
    lines = [line for line in answer.body[:20_000].decode("utf-8", "replace").splitlines() if line.strip()]
    return plain(lines[-1]).strip().rstrip(".")[:300] if lines else f"status {answer.status}"


def _hint(status: int) -> str:
    if status not in (401, 403):
        return ""
    return f"Its token belongs into ~/{TOKEN_FILE} there; other headers into the file that ray_headers_file: names."


def _no_ray(address: str) -> ClusterError:
    return ClusterError(f"What answers at {address} is no dashboard of Ray.")


LOOK_EVERY_S = 5.0


class RayCluster:
    """Submits attempts to Ray's Jobs API and stops them.

    A job's id is the attempt's mark, and Ray takes an id only once: a submission cannot be doubled.

    Args:
        profile: The cluster.
        transport: The way to the host of its dashboard.

    Attributes:
        profile: The cluster.
        name: Its name.
        python: The interpreter on its nodes.
        client: The relay on the host of its dashboard.
    """

    def __init__(self, profile: Profile, transport: Transport) -> None:
        self.profile = profile
        self.name = profile.name
        self.python = profile.python
        self.client = RelayClient(transport)
        trust_ray(self.client, profile)
        self._jobs: RayJobs | None = None
        self._root = RemoteRoot(self.client, profile)
        self._lock = threading.Lock()
        self._last = JobsSnapshot()
        self._look_at = 0.0

    @property
    def ray(self) -> RayJobs:
        """The client of its Jobs API."""
        if self._jobs is None:
            self._jobs = RayJobs(self.client, self.profile.ray_address)
        return self._jobs

    @property
    def run_root(self) -> str:
        """Folder of the runs; see ``Cluster``."""
        return self._root.path

    def submit(self, attempt: Attempt, after_job: str = "", hold_s: float = 0.0) -> str:  # noqa: ARG002 (Slurm's)
        """Hand the attempt to Ray; see ``Cluster``."""
        self._look_at = 0.0
        variables = job_variables(self.profile)
        environment = {"PYTHONPATH": attempt.code, DASHBOARD_VARIABLE: self.profile.ray_address, **variables}
        environment[ACTORS_VARIABLE] = ",".join(name for name in variables if name != ENV_FILE_VARIABLE)
        argv = [self.python, "-m", "rltui.onnode.standing_job", "--attempt", attempt.path]
        return self.ray.submit(
            attempt.uuid, argv, env=environment, metadata={"name": attempt.run_id, "comment": f"rltui:{attempt.uuid}"}
        )

    def find_submission(self, uuid: str, since: float) -> str | None:  # noqa: ARG002 (the mark is the id)
        """The job with this mark; see ``Cluster``."""
        return uuid if self.ray.status(uuid) is not None else None

    def cancel(self, attempt_path: str, job_id: str) -> bool:
        """Stop the attempt's job; see ``Cluster``."""
        text = self.client.read(f"{attempt_path}/{rundir.JOB}", 0, 1 << 20).data
        self._look_at = 0.0
        return json.loads(text).get("uuid") == job_id and self.ray.stop(job_id)

    def signal(self, attempt_path: str, job_id: str, name: str) -> bool:  # noqa: ARG002 (the protocol's)
        """Ray can only stop a job; see ``Cluster``."""
        run_id = rundir.run_id_of(attempt_path)
        raise RltuiError(
            f"Ray has no way to send SIG{name} to a job.", f"`rltui cancel {run_id}` lets it save and end."
        )

    def jobs(self, job_ids: Sequence[str]) -> JobsSnapshot:
        """What Ray says of these jobs; see ``Cluster``."""
        with self._lock:
            if time.monotonic() >= self._look_at:
                self._look_at = time.monotonic() + LOOK_EVERY_S
                self._last = self._asked()
        found = {one: self._last.jobs[one] for one in job_ids if one in self._last.jobs}
        return JobsSnapshot(jobs=found, taken_at=self._last.taken_at, problem=self._last.problem)

    def close(self) -> None:
        """End the relay; the jobs that Ray has go on."""
        self.client.close()

    def _asked(self) -> JobsSnapshot:
        try:
            return JobsSnapshot(jobs=self.ray.list(), taken_at=time.time())
        except ClusterError as error:
            return JobsSnapshot(jobs=self._last.jobs, taken_at=self._last.taken_at, problem=error.message)
