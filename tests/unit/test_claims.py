"""What an attempt's directory says of its submission, and the end that is written for one that cannot any more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest
from watch_support import write_json

from rltui.cluster.jobs import JobSnapshot
from rltui.cluster.relay_client import RelayClient
from rltui.onnode.requeue import folder_of_start
from rltui.runs.claims import read_evidence
from rltui.service.context import Context
from rltui.service.resubmit import settle
from rltui.watch.jobs import job_facts
from rltui.watch.snapshots import RunSummary


def test_a_requeued_start_is_known_by_its_job_and_never_by_a_pid(client: RelayClient, tmp_path: Path) -> None:
    first = tmp_path / "attempts/01"
    write_json(first / "job.json", {"uuid": "u", "attempt": 1, "argv": []})
    write_json(first / "submitted.json", {"uuid": "u", "job_id": "7"})
    write_json(first / "slurm.json", {"job_id": 7, "restart": 0})
    again = tmp_path / folder_of_start(str(first), 7, 1)
    write_json(again / "supervisor.json", {"pid": 4242, "uuid": "u"})
    before = read_evidence(client, str(again), "u")
    assert (before.job, before.started, before.noted) == ("7", True, True)
    write_json(again / "slurm.json", {"job_id": 7, "restart": 1, "pid": 4242})
    assert read_evidence(client, str(again), "u").job == "7"
    assert read_evidence(client, str(first), "u").job == "7"
    assert not read_evidence(client, str(again), "another").is_there


class _Place:
    """A cluster of which only the relay is asked."""

    def __init__(self, client: RelayClient) -> None:
        self.cluster = self
        self.client = client


@pytest.mark.parametrize(
    ("state", "word", "outcome"),
    [("failed", "NODE_FAIL", "failed"), ("cancelled", "CANCELLED", "cancelled"), ("completed", "COMPLETED", "lost")],
)
def test_a_dead_attempt_ends_as_the_list_shows_it(
    client: RelayClient, tmp_path: Path, state: str, word: str, outcome: str
) -> None:
    attempt = tmp_path / "r/attempts/01"
    write_json(attempt / "job.json", {"uuid": "u"})
    job = JobSnapshot(job_id="7", state=state, word=word, ended_at=50.0)  # type: ignore[arg-type]
    facts = job_facts(None, None, job)
    run = RunSummary(
        **{"run_id": "r", "name": "r", "algorithm": "grpo", "cluster": "c", "state": facts.state, "attempt": 1},
        **{"created_at": 1.0, "nodes": 1, "gpus_per_node": 1, "gpu": "cpu", "path": str(tmp_path / "r"), "job": job},
    )
    settle(cast("Context", _Place(client)), run)
    end = json.loads((attempt / "end.json").read_text())
    assert (end["outcome"], end["at"]) == (outcome, 50.0)
    assert end["reason"].startswith(facts.sentence)
