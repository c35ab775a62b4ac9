"""A canned queue of a cluster: other people's jobs, one's own, one with a hostile name."""

from __future__ import annotations

from canned_runs import NOW, RUNS

from rltui.cluster.queue_facts import QueuedJob
from rltui.service.cluster_queue import ClusterQueue
from rltui.service.nodes import NodeGroup

MINE = next(run for run in RUNS if run.cluster == "isambard" and run.state == "running")


def waiting(number: int, **more: object) -> QueuedJob:
    known: dict[str, object] = {
        "job_id": str(4712000 + number),
        "state": "pending",
        "user": "bob",
        "name": f"sweep-{number}",
        "partition": "gpu",
        "reason": "Priority",
        "gpus": 8,
        "node_count": 2,
        "position": number,
        "waiting": 5,
        "expected_start_at": NOW + 3600.0 * number,
    }
    return QueuedJob(**(known | more))


def running(number: int, **more: object) -> QueuedJob:
    known: dict[str, object] = {
        "job_id": str(4711000 + number),
        "state": "running",
        "user": "carol",
        "name": f"pretrain-{number}",
        "partition": "gpu",
        "gpus": 4,
        "nodes": (f"nid01070{number}",),
        "left_s": 1800.0 * number,
    }
    return QueuedJob(**(known | more))


HOSTILE = "\x1b]0;owned\x07\x1b[31m[bold]evil[/]\u202eabc\n" + "x" * 300

QUEUE = ClusterQueue(
    cluster="isambard",
    jobs=(
        waiting(1),
        waiting(2, user="mallory\x1b[2J", name=HOSTILE, reason="Resources"),
        waiting(3, user="ada", is_mine=True, name="grpo-7b-1a2b3c4d"),
        waiting(4, partition="debug", gpus=1, node_count=1, position=1, waiting=1, expected_start_at=0.0),
        waiting(5, reason="JobHeldUser", position=None, waiting=None, expected_start_at=0.0),
        running(1),
        running(2, user="ada", is_mine=True, job_id="4711198", name=f"{MINE.run_id}-91c0ffee", gpus=8),
        running(3, left_s=None, gpus=None),
    ),
    groups=(
        NodeGroup(
            nodes=("nid010705", "nid010706"),
            state="idle",
            gpu="h100",
            gpus=4,
            gpus_free=4,
            is_usable=True,
            reason="",
            partitions=("gpu",),
        ),
        NodeGroup(
            nodes=("nid010707",),
            state="mixed",
            gpu="a100",
            gpus=8,
            gpus_free=3,
            is_usable=True,
            reason="",
            partitions=("debug", "gpu"),
        ),
        NodeGroup(
            nodes=("nid010798",),
            state="drained",
            gpu="h100",
            gpus=4,
            gpus_free=4,
            is_usable=False,
            reason="Xid 79",
            partitions=("gpu",),
        ),
    ),
    taken_at=NOW - 12.0,
)
