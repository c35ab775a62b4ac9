"""What ``scontrol show job`` tells of one job, from recorded answers."""

from __future__ import annotations

import pytest

from rltui.cluster.jobs import JobSnapshot
from rltui.cluster.slurm.ids import first_task
from rltui.cluster.slurm.job_details import read_jobs
from rltui.cluster.slurm.queries import by_id, waiting_among

ONE = (
    "JobId=7 JobName=my run UserId=alice(2001) GroupId=alice(2001) MCS_label=N/A Priority=1000 JobState=RUNNING "
    "Reason=None Dependency=(null) Restarts=0 SubmitTime=1795445782 StartTime=1795445783 EndTime=1795449383 "
    "TimeLimit=1-02:00:00 Partition=gpu NodeList=node1 NumNodes=2 NumCPUs=1 ReqTRES=cpu=2,gres/gpu=8,gres/gpu:h100=8 "
    "AllocTRES=cpu=2,gres/gpu=8,gres/gpu:h100=8 Command=/home/alice/my.sh --lr 1e-6 WorkDir=/home/alice "
    "Comment=x StdOut=/etc/shadow y StdErr=/home/alice/%x-%j.err StdIn=/dev/null StdOut=/home/alice/%x-%j.out Power=\n"
)
ARRAY = (
    "JobId=9 ArrayJobId=8 ArrayTaskId=3 JobName=a UserId=alice(2001) JobState=PENDING NumNodes=1-1 "
    "TresPerNode=gres/gpu:a100:4 Command=(null) WorkDir=/x StdErr=/x/%A_%a.out StdIn=/dev/null StdOut=/x/%A_%a.out\n"
)


def test_a_job_with_its_gpus_command_and_logs() -> None:
    (found,) = read_jobs(ONE)
    assert (found.job.job_id, found.job.name, found.uid, found.job.state) == ("7", "my run", "2001", "running")
    assert (found.nodes, found.gpus, found.gpu) == (2, 8, "h100")
    assert (found.command, found.words, found.folder) == ("/home/alice/my.sh", ("--lr", "1e-6"), "/home/alice")
    assert found.job.submitted_at == 1795445782.0
    assert (found.job.time_limit_s, found.job.partition) == (93600.0, "gpu")
    assert found.job.ended_at == 0.0  # it runs: this is when its limit is reached


def test_what_people_write_into_a_comment_names_no_log() -> None:
    (found,) = read_jobs(ONE)
    assert found.logs == ("/home/alice/my run-7.out", "/home/alice/my run-7.err")


def test_a_task_of_an_array_has_its_own_id_and_one_log() -> None:
    (found,) = read_jobs(ARRAY)
    assert (found.job.job_id, found.command, found.logs) == ("8_3", "", ("/x/8_3.out",))
    assert (found.gpus, found.gpu) == (4, "a100")
    (found,) = read_jobs(ARRAY.replace("%A_%a", "%A-%j"))
    assert found.logs == ("/x/8-9.out",)


def test_tasks_of_an_array_that_wait_are_named_by_the_first_of_them() -> None:
    (found,) = read_jobs(ARRAY.replace("ArrayTaskId=3", "ArrayTaskId=4-10%1"))
    assert (found.job.job_id, first_task(found.job.job_id)) == ("8_[4-10%1]", "8_4")
    assert first_task("8_3") == "8_3"


def test_tasks_of_an_array_that_wait_are_found_in_the_one_row_that_squeue_has_of_them() -> None:
    found = by_id([JobSnapshot(job_id=one, state="pending") for one in ("8_1", "8_[3-7:2,9%1]", "9_[1-4]")])
    waiting = waiting_among(found, ["8_1", "8_3", "8_4", "8_5", "8_9", "8", "7_3", "9+1", "x"])
    assert [(one, row.job_id, row.state) for one, row in waiting.items()] == [
        (one, one, "pending") for one in ("8_3", "8_5", "8_9")
    ]


def test_no_job_and_no_output_are_nothing() -> None:
    assert read_jobs("slurm_load_jobs error: Invalid job id specified\n") == ()
    (found,) = read_jobs("JobId=1 UserId=a(1) JobState=RUNNING StdOut=/dev/null StdErr=/dev/null\n")
    assert found.logs == ()


@pytest.mark.parametrize(
    ("asked", "gpus"),
    [
        ("TresPerNode=gres/gpu:h100:4", (8, "h100")),
        ("TresPerNode=gres:gpu:h100:4", (8, "h100")),  # 21.08 to 23.02
        ("TresPerNode=gpu:4", (8, "")),  # before
        ("TresPerJob=gres/gpu:6", (6, "")),
        ("TresPerNode=gres:nvme:1", (0, "")),
    ],
)
def test_gpus_are_known_where_the_site_does_not_count_them(asked: str, gpus: tuple[int, str]) -> None:
    counted = "ReqTRES=cpu=2,gres/gpu=8,gres/gpu:h100=8 AllocTRES=cpu=2,gres/gpu=8,gres/gpu:h100=8"
    assert counted in ONE
    (found,) = read_jobs(ONE.replace(counted, f"TRES=cpu=2,mem=8G,node=2 {asked}"))
    assert (found.gpus, found.gpu) == gpus
