"""What an attempt's directory says of its submission, and the marks that rltui leaves there."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import Struct

from rltui.cluster.relay_client import RelayClient
from rltui.cluster.relay_types import RelayError
from rltui.errors import ClusterError
from rltui.onnode import rundir

Found = TypeVar("Found")

STARTED_FILES = (rundir.SUPERVISOR, rundir.SLURM, rundir.ADOPTED)
"""Who runs an attempt writes one of these first; whoever adopts a job, the last."""


class Evidence(Struct, frozen=True, kw_only=True):
    """What the directory of one submission says."""

    is_there: bool = False
    """Whether the directory is this submission's."""
    job: str = ""
    """The scheduler's id, as the job itself or rltui wrote it down; empty where neither has: look for the mark."""
    noted: bool = False
    """Whether rltui's note of the id is there."""
    started: bool = False
    ended: bool = False


def read_evidence(client: RelayClient, attempt_path: str, uuid: str) -> Evidence:
    """Read what the attempt's directory says of the submission ``uuid``."""
    names = (rundir.JOB, rundir.SUBMITTED, *STARTED_FILES, rundir.END)
    found = {file.path: parsed(file.text) for file in client.collect(attempt_path, names)}
    if found.get(rundir.JOB, {}).get("uuid") != uuid:
        return Evidence()
    # a start after a requeue has no note of rltui's; the pid of its driver, though, is nobody's job id
    ids = [found.get(name, {}).get("job_id") for name in (rundir.SLURM, rundir.SUBMITTED)]
    return Evidence(
        is_there=True,
        job=next((str(one) for one in ids if one), ""),
        noted=rundir.SUBMITTED in found,
        # a start after a requeue has a directory of its own, and the lock is in the first one's
        started=any(name in found for name in STARTED_FILES) or "requeue_of" in found[rundir.JOB],
        ended=rundir.END in found,
    )


def read_uuid(client: RelayClient, attempt_path: str) -> str:
    """The mark of an attempt.

    Raises:
        ClusterError: Its job file cannot be read.
    """
    uuid = parsed(client.read(f"{attempt_path}/{rundir.JOB}", 0, 1 << 20).data.decode("utf-8", "replace")).get("uuid")
    if not isinstance(uuid, str) or not uuid:
        raise ClusterError(f"{attempt_path}/{rundir.JOB} is damaged.")
    return uuid


def note_submitted(client: RelayClient, attempt_path: str, uuid: str, job_id: str) -> None:
    """Write the scheduler's id beside the attempt, for every other rltui.

    Raises:
        ClusterError: It cannot be written.
    """
    note = {"schema": rundir.SCHEMA, "uuid": uuid, "job_id": job_id, "at": time.time()}
    client.put(f"{attempt_path}/{rundir.SUBMITTED}", json.dumps(note).encode())


def bar_start(client: RelayClient, attempt_path: str, uuid: str) -> bool:
    """Make it impossible that the submission ever starts, by taking the lock that its job would take.

    Returns:
        False where it has started: the lock is the job's.

    Raises:
        ClusterError: Nobody can tell.
    """
    lock = rundir.lock_folder(attempt_path, uuid)
    try:
        # a file where the job would make a folder, so that one sees who took it
        client.put(lock, b"barred by rltui\n", exclusive=True)
    except RelayError as error:
        if error.kind == "missing":
            return True
        if error.kind != "exists":
            raise
        return _is_file(client, lock)
    return True


def write_end(
    client: RelayClient, attempt_path: str, outcome: str, reason: str, at: float | None = None, **details: object
) -> None:
    """Write ``end.json`` for an attempt whose own processes cannot any more; one that is there stays.

    Args:
        client: The relay.
        attempt_path: The attempt's directory.
        outcome: One of ``rundir.OUTCOMES``.
        reason: In a few words.
        at: When, epoch seconds; None: now.
        details: Further keys of it.

    Raises:
        ClusterError: It cannot be written.
    """
    when = time.time() if at is None else at
    end = {"schema": rundir.SCHEMA, "outcome": outcome, "exit_code": None, "reason": reason, "at": when, **details}
    try:
        client.put(f"{attempt_path}/{rundir.END}", json.dumps(end).encode(), exclusive=True)
    except RelayError as error:
        if error.kind != "exists":
            raise


def settle_unstarted(client: RelayClient, path: str, uuid: str, outcome: str, reason: str) -> bool:
    """Bar the submission from ever starting, and write down how it ended; False where it has started.

    Raises:
        ClusterError: The cluster cannot be reached, so nothing is settled.
    """
    evidence = read_evidence(client, path, uuid)
    if not evidence.is_there:
        return True
    if evidence.started or not bar_start(client, path, uuid):
        return False
    write_end(client, path, outcome, reason)
    return True


def withdraw(client: RelayClient, path: str, uuid: str, reason: str) -> bool:
    """Bar a submission that the scheduler refused, and take its attempt away, with the run that it was to begin.

    A run that never was one is not listed as failed. False where it has started after all.

    Raises:
        ClusterError: The cluster cannot be reached, so nothing is settled.
    """
    if not settle_unstarted(client, path, uuid, "failed", reason):
        return False
    if read_evidence(client, path, uuid).is_there:
        attempts = path.rpartition("/")[0]
        others = [entry.name for entry in client.list(attempts) if entry.name != path.rpartition("/")[2]]
        client.run(["rm", "-rf", "--", path if others else attempts.rpartition("/")[0]], timeout_s=60)
    return True


def _is_file(client: RelayClient, path: str) -> bool:
    try:
        client.read(path, 0, 64)
    except RelayError as error:
        if error.kind == "not-a-file":
            return False
        raise
    return True


def if_there(read: Callable[[], Found]) -> Found | None:
    """What ``read`` finds through a relay; None where there is no such file or folder."""
    try:
        return read()
    except RelayError as error:
        if error.kind != "missing":
            raise
        return None


def parsed(text: str | None) -> dict[str, Any]:
    """The object in a small file of an attempt; an empty one where the file is missing, or torn."""
    try:
        value = json.loads(text or "")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
