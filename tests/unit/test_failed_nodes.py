"""Which node failed under a job: from the times at which its nodes fell silent, and from what Slurm says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from watch_support import append, write_json

from rltui.cluster.facts import NodeFacts
from rltui.cluster.jobs import JobSnapshot
from rltui.cluster.relay_client import RelayClient
from rltui.diagnose.diagnose import diagnose
from rltui.diagnose.recent import RunPicture
from rltui.diagnose.run_words import words_of
from rltui.diagnose.sources import Source
from rltui.onnode import keep_away
from rltui.onnode.allocation import Allocation, Part, not_answering
from rltui.onnode.lost_nodes import last_time, lost_here, named_by_srun, silent_first
from rltui.service.attempts import endings
from rltui.service.run_jobs import down_among, with_failed_nodes
from rltui.watch.jobs import job_facts
from rltui.watch.snapshots import RunSummary


@pytest.mark.parametrize(
    ("last_words", "silent"),
    [
        ({}, []),
        ({"a": 100.0}, []),
        ({"a": 100.0, "b": 100.5, "c": 70.0}, ["c"]),
        ({"a": 100.0, "b": 92.0}, ["b"]),
        ({"a": 100.0, "b": 92.1}, []),
        # a switch took two; the head was ended a little before the last
        ({"a": 100.0, "b": 70.0, "c": 71.0, "d": 91.0}, ["b", "c"]),
        # one after the other: nothing is clear
        ({"a": 100.0, "b": 93.0, "c": 86.0}, []),
    ],
)
def test_the_node_that_fell_silent_first(last_words: dict[str, float], silent: list[str]) -> None:
    assert silent_first(last_words) == silent


def test_a_torn_line_is_no_last_word() -> None:
    assert last_time(b'{"t":5.0,"host":"a"}\n{"t":6.25,"host":"a"}\n{"t":7') == 6.25
    assert last_time(b'{"t":7') == last_time(b"") == 0.0


def run_of_three(root: Path) -> RunSummary:
    attempt = root / "r/attempts/01"
    write_json(attempt / "job.json", {"uuid": "u"})
    for host, last in (("n1", 400.0), ("n2", 99.0), ("n3", 401.0)):
        lines = [f'{{"t":{at},"host":"{host}"}}\n'.encode() for at in (last - 1, last)]
        append(attempt / f"gpu-{host}.jsonl", *lines)
    about: dict[str, Any] = {"algorithm": "grpo", "cluster": "c", "state": "failed", "attempt": 1, "created_at": 1.0}
    return RunSummary(run_id="r", name="r", nodes=3, gpus_per_node=1, gpu="cpu", path=str(root / "r"), **about)


def test_a_job_that_slurm_ended_for_a_node_names_it_and_the_remedy_keeps_away(
    client: RelayClient, tmp_path: Path
) -> None:
    run, known = run_of_three(tmp_path), dict[str, tuple[str, ...]]()
    job = JobSnapshot(
        job_id="7", state="failed", word="NODE_FAIL", nodes=("n1.site", "n2.site", "n3.site"), ended_at=402.0
    )
    named = with_failed_nodes(client, known, run, job, 410.0)
    assert named.failed_nodes == ("n2.site",)
    assert lost_here(str(tmp_path / "r/attempts/01"), job.nodes) == ["n2.site"]
    facts = job_facts(None, None, named)
    assert (facts.state, facts.sentence) == ("failed", "Node failure on n2.site ended the job.")
    assert "n2.site" in facts.next_step
    lines = "\n".join(words_of(RunPicture(now=410.0, job=named))["scheduler"]).encode()
    [found] = diagnose([Source("scheduler", (lines,), has_lines=False)])
    assert (found.id, "n2.site" in found.summary) == ("slurm_node_fail", True)
    assert any("n2.site" in command for remedy in found.remedies for command in remedy.commands)
    append(tmp_path / "r/attempts/01/nodes.log", b"srun: error: Node failure on n3.site\n")
    assert lost_here(str(tmp_path / "r/attempts/01"), job.nodes) == ["n3.site"]
    # found out once
    for file in (tmp_path / "r/attempts/01").glob("gpu-*"):
        file.unlink()
    assert with_failed_nodes(client, known, run, job, 411.0).failed_nodes == ("n2.site",)


def test_a_job_that_waits_again_names_the_node_that_its_start_before_lost(
    client: RelayClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = structs.replace(run_of_three(tmp_path), job_restart=0)
    job = JobSnapshot(job_id="7", state="pending", word="PENDING", restarts=1)
    attempt = tmp_path / "r/attempts/01"
    write_json(attempt / "end.json", {"outcome": "failed", "reason": "lost", "bad_nodes": {"n2": "node failure"}})
    assert with_failed_nodes(client, {}, run, job, 500.0).failed_nodes == ("n2",)
    [before] = endings(client, structs.replace(run, job=job, last_attempt=1))
    assert (before.attempt, before.reason) == (1, "lost"), "the newest attempt's, as its job's next start has none yet"
    # the driver was on that node and left no word; Slurm still calls it down
    write_json(attempt / "end.json", {"outcome": "failed", "reason": "preempted", "bad_nodes": {}})
    write_json(attempt / "slurm.json", {"job_id": 7, "nodes": ["n1", "n2"]})
    nodes = (NodeFacts(name="n1", state="down"), NodeFacts(name="n2", state="idle"), NodeFacts(name="n9", state="down"))
    monkeypatch.setattr("rltui.cluster.gather_facts.node_facts", lambda _: nodes)
    assert with_failed_nodes(client, {}, run, job, 500.0).failed_nodes == ("n1",)


def test_the_node_on_which_slurm_says_so_is_not_the_one_that_failed() -> None:
    said = b"slurmstepd-n1: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-20T10:00:00 DUE TO NODE FAILURE, SEE LOG ***\n"
    [found] = diagnose([Source("slurm-7.out", (said,))])
    assert found.id == "slurm_node_fail"
    assert not any(one.node for one in found.evidence)
    assert not any("n1" in command for remedy in found.remedies for command in remedy.commands)


def test_other_ends_name_no_node(client: RelayClient, tmp_path: Path) -> None:
    job = JobSnapshot(job_id="7", state="failed", word="FAILED", nodes=("n1", "n2"), ended_at=402.0)
    run = run_of_three(tmp_path)
    assert with_failed_nodes(client, {}, run, job, 500.0).failed_nodes == ()


def test_nodes_that_slurm_calls_down() -> None:
    facts = [
        NodeFacts(name="n1", state="idle"),
        NodeFacts(name="n2", state="down"),
        NodeFacts(name="n3", state="idle", flags=("not_responding",)),
        NodeFacts(name="n4", state="down"),
    ]
    assert down_among(("n1", "n2", "n3"), facts) == ("n2", "n3")
    assert down_among(("n2", "n4"), facts) == ()
    assert down_among(("n2",), facts) == ("n2",)


STEP_ENDED = """\
srun: error: Node failure on node2
srun: Job step aborted: Waiting up to 32 seconds for job step to finish.
slurmstepd: error: *** STEP 5.1 ON node2 CANCELLED AT 2026-11-22T01:02:03 DUE TO NODE FAILURE, SEE SLURMCTLD LOG ***
srun: error: node3: task 1: Killed
"""


def test_a_step_that_slurm_killed_for_another_node_names_that_one() -> None:
    assert named_by_srun(STEP_ENDED.splitlines(), ["node2", "node3"]) == ["node2"]
    assert named_by_srun(["srun: error: node3: task 1: Killed"], ["node2", "node3"]) == []


def test_nodes_that_do_not_answer_in_the_words_of_sinfo() -> None:
    answer = "node1 allocated\nnode2 allocated*\nnode3 down*\nnode4 down\nnode5 mixed\n"
    assert not_answering(answer, ["node5", "node3", "node2", "node4"]) == ["node3", "node2", "node4"]
    assert not_answering("", ["node1"]) == []


H100 = "gpu:h100:4|h100,ib"
NODES = "\n".join(
    [f"n{number}|{state}|{H100}" for number, state in enumerate(("down*", "allocated", "idle", "mixed$", "drained"))]
    + [f"n5|idle*|{H100}", "n6|idle|gpu:a100:4|a100", "n2|idle|gpu:h100:4|h100,ib", "Slurm is slow today", ""]
)


@pytest.mark.parametrize(
    ("of_job", "excluded", "at_once", "trouble"),
    [
        (["n0", "n1"], [], False, ""),
        (["n0", "n1", "n2"], [], False, ""),
        (["n0", "n1", "n2"], ["n3"], False, "2 other nodes like it are left, 3 are needed"),
        (["n0", "n1", "n2", "n3"], [], False, "3 other nodes like it are left, 4 are needed"),
        (["n0", "n1", "n3"], [], True, ""),
        (["n0"], ["n2"], True, "0 other nodes like it are free, 1 are needed"),
    ],
)
def test_a_requeued_job_does_without_a_lost_node_where_enough_like_it_are_left(
    of_job: list[str], excluded: list[str], at_once: bool, trouble: str
) -> None:
    assert keep_away.why_not(keep_away.Group(of_job, "gpu"), ["n0"], excluded, NODES, at_once) == trouble


def test_a_het_job_does_without_a_node_by_the_partition_of_its_component() -> None:
    parts = (Part(["n0"], 8), Part(["n1", "n2"], 8))
    environment = {"SLURM_JOB_PARTITION": "gpu", "SLURM_JOB_PARTITION_HET_GROUP_1": "big"}
    found = keep_away.groups(Allocation(7, 0, ["n0", "n1", "n2"], 8, None, parts), environment)
    assert found == [keep_away.Group(["n0"], "gpu"), keep_away.Group(["n1", "n2"], "big")]
    assert keep_away.groups(Allocation(7, 0, ["n0"], 8, None), environment) == [keep_away.Group(["n0"], "gpu")]
