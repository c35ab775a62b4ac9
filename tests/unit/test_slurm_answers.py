"""What Slurm's tools answer: recorded on 22.05.8, and as releases from 20.11 to 25 and sites with plug-ins write it."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltui.cluster.cluster import SubmitRefusedError, SubmitUnknownError
from rltui.cluster.jobs import JobSnapshot
from rltui.cluster.relay_types import Completed
from rltui.cluster.slurm.queries import (
    ACCOUNTING_FIELDS,
    QUEUE_FIELDS,
    Place,
    by_id,
    is_same_job,
    read_accounting,
    read_exit,
    read_pending,
    read_queue,
    read_status,
    told_apart,
)
from rltui.cluster.slurm.records import new_mark, split_records
from rltui.cluster.slurm.replies import SlurmUnansweredError, read_submission, read_trouble
from rltui.cluster.slurm.submitting import read_answer, read_test, submit_argv
from rltui.errors import UsageError

MARK = "^c0ffee^"
ESCAPES = "\x1b]0;owned\x07\x1b[31mred\x1b[0m"
MUNGE_DEAD = (
    "sbatch: error: If munged is up, restart with --num-threads=10\n"
    'sbatch: error: Munge encode failed: Failed to access "/run/munge/munge.socket.2": No such file or directory\n'
    "sbatch: error: slurm_send_node_msg: auth_g_create: REQUEST_SUBMIT_BATCH_JOB has authentication error\n"
    "sbatch: error: Batch job submission failed: Protocol authentication error\n"
)

SUBMITTED = [
    ("4242\n", "4242"),
    ("4242;alpha\n", "4242"),
    ("Submitted batch job 4242\n", "4242"),
    ("Submitted batch job 4242 on cluster alpha\n", "4242"),
    ("sbatch: lua: Submitted job to partition gpu\n4242\n", "4242"),
    ("\x1b[32m4242\x1b[0m\n", "4242"),
    ("Welcome to alpha, 12 nodes are down\n\n4242\r\n", "4242"),
    ("4242", "4242"),
    (" 4242;alpha-2.x \n\n", "4242"),
    ("You have used 80 % of 1000 hours\nSubmitted batch job 67043327\n", "67043327"),
    ("", None),
    ("0\n", None),
    ("-1\n", None),
    ("4242 4243\n", None),
    ("Job 4242 to start at 2026-11-22T01:48:22\n", None),
    ("error 13\n", None),
    ("４２\n", None),
    ("4242;$(id)\n", None),
]

REFUSED = [
    (1, "sbatch: error: Batch job submission failed: Invalid partition name specified", "Invalid partition name"),
    (
        1,
        "sbatch: error: invalid partition specified: nosuch\n"
        "sbatch: error: Batch job submission failed: Invalid partition name specified\n",
        "nosuch",
    ),
    (
        1,
        "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
        "acc",
    ),
    (1, "sbatch: error: Batch job submission failed: Invalid qos specification", "qos"),
    (1, "sbatch: error: Batch job submission failed: Requested node configuration is not available", "configuration"),
    (1, "sbatch: error: Invalid generic resource (gres) specification", "gres"),
    (1, "sbatch: error: Batch job submission failed: Invalid feature specification", "feature"),
    (1, "sbatch: error: Batch job submission failed: Invalid node name specified", "node name"),
    (1, "sbatch: error: Unable to open file /nope.sh", "/nope.sh"),
    (255, "sbatch: unrecognized option '--frob'\nTry \"sbatch --help\" for more information\n", "--frob"),
    (255, "sbatch: error: Invalid --time specification", "--time"),
    (1, "sbatch: error: 'x' can't be reached now, or it is an invalid entry for --cluster.", "--cluster"),
    (
        1,
        "sbatch: error: This does not look like a batch script.  The first\nsbatch: error: line must start with #!",
        "#!",
    ),
    (
        1,
        "sbatch: error: QOSMaxWallDurationPerJobLimit\n"
        "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size "
        "and/or time limits)\n",
        "QOSMaxWallDurationPerJobLimit",
    ),
    (
        1,
        "sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Batch job submission failed: Job violates accounting/QOS"
        " policy (job submit limit, user's size and/or time limits)\n",
        "AssocMaxSubmitJobLimit",
    ),
    (
        1,
        "sbatch: error: lua: please give --account; see https://site.example/accounts\n"
        "sbatch: error: Batch job submission failed: Unspecified error\n",
        "please give --account",
    ),
    (
        1,
        "sbatch: error: Batch job submission failed: Requested time limit is invalid (missing or exceeds some limit)",
        "tim",
    ),
    (1, "sbatch: error: Batch job submission failed: Node count specification invalid", "Node count"),
    (1, "sbatch: error: Batch job submission failed: User's group not permitted to use this partition", "group"),
    (1, "sbatch: error: Batch job submission failed: Access/permission denied", "denied"),
    (1, "\x1b[31msbatch: error: Batch job submission failed: Invalid qos specification\x1b[0m", "Invalid qos"),
    (1, "sbatch: error: Batch job submission failed: Rate limit exceeded, please retry momentarily", "Rate limit"),
    (
        1,
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
        "connect failure",
    ),
    (1, MUNGE_DEAD, "Munge encode failed"),
    (127, "env: 'sbatch': No such file or directory", "cannot be run here"),
    (1, "sbatch: error: no project given\nsbatch: error: cli_filter plugin terminated with error", "no project given"),
    (
        1,
        "sbatch: error: fetch_config: DNS SRV lookup failed\nsbatch: fatal: Could not establish a configuration source",
        "configuration source",
    ),
]

UNKNOWN = [
    (1, "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"),
    (1, "sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received"),
    (1, "sbatch: error: Batch job submission failed: Unable to contact slurm controller (receive failure)"),
    (1, "sbatch: error: Batch job submission failed: Unable to contact slurm controller (send failure)"),
    (1, "sbatch: error: Batch job submission failed: Unable to contact slurm controller (shutdown failure)"),
    (1, "sbatch: error: Batch job submission failed: Unexpected message received"),
    (1, "sbatch: error: Batch job submission failed: Protocol authentication error"),
    (1, "sbatch: error: Batch job submission failed: Connection reset by peer"),
    (1, "Slurm temporarily unable to accept job, retrying\nUnable to contact slurm controller (connect failure)"),
    (1, "the site's wrapper is down for lunch"),
    (1, ""),
    (-9, ""),
    (-15, "sbatch: error: Batch job submission failed: Invalid qos specification"),
    (-9, "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)"),
    (3, "Bus error"),
]


@pytest.mark.parametrize(("out", "job_id"), SUBMITTED)
def test_the_id_is_found_in_what_sbatch_writes(out: str, job_id: str | None) -> None:
    assert read_submission(out) == job_id


@pytest.mark.parametrize(("rc", "said", "words"), REFUSED)
def test_a_certain_no_is_told_with_its_reason(rc: int, said: str, words: str) -> None:
    with pytest.raises(SubmitRefusedError, match=words) as error:
        read_answer(Completed(rc, "", said))
    assert error.value.message.isprintable()
    assert error.value.exit_code == (3 if re.search("contact|configuration source", said) else 1), (
        "a controller that is away has refused nothing"
    )


@pytest.mark.parametrize(("rc", "said"), UNKNOWN)
def test_whatever_else_goes_wrong_leaves_the_submission_unknown(rc: int, said: str) -> None:
    with pytest.raises(SubmitUnknownError) as error:
        read_answer(Completed(rc, "", said))
    assert "not submitted a second time" in error.value.hint


def test_warnings_beside_an_id_do_not_matter() -> None:
    said = "sbatch: warning: can't honor --ntasks-per-node set to 4\nsbatch: lua: slurm_job_submit: 3 GPUs\n"
    assert read_answer(Completed(0, "4242\n", said)) == "4242"


def test_an_id_with_a_failure_and_a_success_without_an_id_are_unknown() -> None:
    for answer in (Completed(1, "4242\n", "Broken pipe"), Completed(0, "thanks\n", ""), Completed(0, "", "")):
        with pytest.raises(SubmitUnknownError):
            read_answer(answer)


@given(st.integers(-64, 255), st.text(max_size=80), st.text(max_size=200))
def test_any_answer_is_an_id_a_no_or_unknown(rc: int, out: str, said: str) -> None:
    said_of_it = "0"
    try:
        said_of_it = read_answer(Completed(rc, out, said))
    except (SubmitRefusedError, SubmitUnknownError) as error:
        said_of_it = error.message
    assert said_of_it.isprintable()


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", "controller"),
        ("squeue: error: Rate limit exceeded, please retry later", "rate"),
        ("slurm_load_jobs error: Protocol authentication error", "auth"),
        ("slurm_load_jobs error: Invalid job id specified", "gone"),
        ("Job has already finished for job 34\nslurm_suspend error: Job has already finished", "gone"),
        ("Invalid job id specified for job 99999", "gone"),
        ("Access/permission denied for job 34", "refused"),
        ("Invalid user id for job 35\nslurm_suspend error: Invalid user id", "refused"),
        ("Job is no longer pending execution for job 26", "refused"),
        ("sacct: error: Problem talking to the database: Connection refused", "database"),
        (
            "sacct: error: slurm_persist_conn_open_without_init: failed to open persistent connection to ctl: refused",
            "database",
        ),
        ("Slurm accounting storage is disabled", "no-accounting"),
        ("Unexpected message received for job 31", "controller"),
        ("Invalid node name specified for job 8", "refused"),
        ("Requested operation is presently disabled for job 5", "refused"),
        ("something new", "unknown"),
    ],
)
def test_troubles_are_told_apart(said: str, kind: str) -> None:
    assert read_trouble(said, 1, "x").kind == kind


def test_what_is_submitted_is_one_word_each_and_begins_with_no_surprise() -> None:
    argv = submit_argv("/r/job", job_name="-n; $(id)", comment="a\nb", chdir="/r r", extra=["--time=1"])
    assert argv == [
        "sbatch",
        "--parsable",
        "--job-name=-n; $(id)",
        "--comment=a\nb",
        "--chdir=/r r",
        "--time=1",
        "/r/job",
    ]
    for script in ("job", "--wrap=id", ""):
        with pytest.raises(UsageError, match="not absolute"):
            submit_argv(script, job_name="", comment="", chdir="", extra=())
    with pytest.raises(UsageError, match="NUL"):
        submit_argv("/r/job", job_name="a\0b", comment="", chdir="", extra=())


def test_a_dry_run_tells_when_and_where() -> None:
    said = "sbatch: Job 18 to start at 2026-11-22T01:48:22 using 2 processors on nodes node[1-2] in partition gpu\n"
    found = read_test(Completed(0, "", said))
    assert (found.accepted, found.nodes, found.partition) == (True, ("node1", "node2"), "gpu")
    het = read_test(Completed(0, "", "sbatch: Job 1 to start at 2026-11-25T17:31:33 using 8 processors on node[1-2]\n"))
    assert (het.accepted, het.nodes) == (True, ("node1", "node2"))
    refused = read_test(Completed(1, "", "allocation failure: Requested node configuration is not available\n"))
    assert (refused.accepted, "Requested node configuration" in refused.sentence) == (False, True)


def record(fields: dict[str, object], **values: str) -> str:
    """One record as squeue or sacct write it."""
    defaults = {"id": "7", "uid": "2001", "user": "alice", "name": "job", "submit": "1795310241"}
    return "".join(f"{(defaults | values).get(field, '')}{MARK}" for field in fields) + "\n"


def queued(**values: str) -> str:
    return record(QUEUE_FIELDS, **({"state": "RUNNING", "start": "1795310242", "limit": "10:00"} | values))


def accounted(**values: str) -> str:
    return record(ACCOUNTING_FIELDS, **({"state": "COMPLETED", "exit": "0:0", "limit": "00:10:00"} | values))


def test_a_queue_is_read() -> None:
    text = queued(
        id="1", nodes="node[1-2]", count="2", restarts="1", reason="None", comment="rltui:ab", partition="gpu"
    )
    text += queued(id="2", state="PENDING", reason="Resources", start="1795310842", count="3", comment="(null)")
    text += queued(id="3", state="FAILED", status="1792", end="1795310300")
    first, second, third = (job for _, job in read_queue(text, MARK))
    assert (first.state, first.nodes, first.restarts, first.reason) == ("running", ("node1", "node2"), 1, "")
    assert (first.started_at, first.time_limit_s, first.comment) == (1795310242, 600, "rltui:ab")
    assert (second.state, second.reason, second.expected_start_at, second.started_at) == (
        "pending",
        "Resources",
        1795310842,
        0,
    )
    assert (second.comment, second.node_count, second.exit_code) == ("", 3, None)
    assert (third.state, third.exit_code, third.signal, third.ended_at) == ("failed", 7, None, 1795310300)


def test_hostile_names_stay_in_their_field_and_lose_their_teeth() -> None:
    name = f'we|ird\nna"me {ESCAPES} 9|RUNNING| ^|^\0\u202e'
    text = queued(id="1", name=name, comment=f"x\n{ESCAPES}") + queued(id="2")
    (uid, first), (_, second) = read_queue(text, MARK)
    assert (uid, first.job_id, second.job_id) == ("2001", "1", "2")
    assert first.name == 'we|ird na"me red 9|RUNNING| ^|^'
    assert (first.name + first.comment).isprintable()


def test_marks_are_new_for_each_call_and_begin_with_no_digit() -> None:
    marks = {new_mark() for _ in range(100)}
    assert len(marks) == 100
    assert not any(mark[0].isdigit() or mark[0] in ".," or "%" in mark for mark in marks)


def test_a_torn_answer_loses_its_last_record_only() -> None:
    text = queued(id="1") + queued(id="2")
    assert [job.job_id for _, job in read_queue(text[:-8], MARK)] == ["1"]
    assert read_queue("", MARK) == []


def test_lines_in_front_of_a_record_are_no_part_of_it() -> None:
    assert [job.job_id for _, job in read_queue("CLUSTER: alpha\nsome warning\n" + queued(id="1"), MARK)] == ["1"]


def test_shifted_fields_are_not_believed() -> None:
    shifted = queued(id="1").replace(MARK, "", 1)  # a field is missing, as where squeue does not know it
    with pytest.raises(SlurmUnansweredError, match="cannot be read"):
        read_queue((shifted + queued(id="2")) * 20, MARK)


@given(st.text(max_size=300))
def test_any_text_is_an_answer_or_none(text: str) -> None:
    with contextlib.suppress(SlurmUnansweredError):
        read_queue(text.replace("|", MARK), MARK)
    with contextlib.suppress(SlurmUnansweredError):
        read_accounting(text.replace("|", MARK), MARK)
    read_pending(text.replace("|", MARK), MARK)
    assert all(len(row) == 3 for row in split_records(text.replace("|", MARK), MARK, 3))


def test_the_accounting_keeps_the_starts_of_a_requeued_job_apart() -> None:
    text = accounted(state="RUNNING", submit="1795310287", start="1795310293", end="Unknown", comment="")
    text = accounted(state="NODE_FAIL", start="1795310242", end="1795310285", nodes="node1") + text
    text = accounted(state="REQUEUED", submit="1795310200", start="1795310210", end="1795310230") + text
    attempts = told_apart([job for _, job in read_accounting(text, MARK)])
    assert [(job.restarts, job.state, job.word) for job in attempts] == [
        (0, "failed", "REQUEUED"),
        (1, "failed", "NODE_FAIL"),
        (2, "running", "RUNNING"),
    ]
    assert (attempts[0].started_at, attempts[0].ended_at) == (1795310210, 1795310230)
    assert by_id([job for _, job in read_accounting(text, MARK)])["7"].state == "running"


def test_a_cancelled_job_names_who_did_it() -> None:
    ((_, job),) = read_accounting(accounted(state="CANCELLED by 0", exit="0:15"), MARK)
    assert (job.state, job.cancelled_by, job.exit_code, job.signal) == ("cancelled", "0", 0, 15)


@pytest.mark.parametrize(
    ("text", "both"), [("7:0", (7, None)), ("0:125", (0, 125)), ("", (None, None)), ("²", (None, None))]
)
def test_exit_codes_are_read(text: str, both: tuple[int | None, int | None]) -> None:
    assert read_exit(text) == both


@pytest.mark.parametrize(("text", "both"), [("1792", (7, None)), ("9", (0, 9)), ("0", (0, None)), ("7:0", (7, None))])
def test_wait_statuses_are_read(text: str, both: tuple[int | None, int | None]) -> None:
    assert read_status(text) == both


def test_places_in_the_queue_follow_priority_then_age() -> None:
    rows = [
        ("5", "gpu", "10"),
        ("9", "gpu", "20"),
        ("4", "gpu", "10"),
        ("3", "gpu", "0"),
        ("7_[1-3%1]", "low,gpu", "5"),
    ]
    text = "".join(f"{job_id}{MARK}{partition}{MARK}{priority}{MARK}\n" for job_id, partition, priority in rows)
    first = Place(1, 1)  # in "low"; in "gpu" it would be the fourth
    assert read_pending(text, MARK) == {
        "9": Place(1, 4),
        "4": Place(2, 4),
        "5": Place(3, 4),
        "7_[1-3%1]": first,
        "7": first,
    }


def job(job_id: str, state: str, submitted_at: float = 1.0, **values: object) -> JobSnapshot:
    return JobSnapshot(job_id=job_id, state=state, submitted_at=submitted_at, **values)  # type: ignore[arg-type]


def test_parts_of_a_het_job_are_one_job() -> None:
    parts = [job("9+0", "running", nodes=("a",), node_count=1), job("9+1", "completed", nodes=("b", "c"), node_count=2)]
    whole = by_id(parts)["9"]
    assert (whole.state, whole.nodes, whole.node_count) == ("running", ("a", "b", "c"), 3)


def test_an_array_is_over_when_all_its_tasks_are() -> None:
    tasks = [job("8_1", "completed", ended_at=5.0), job("8_2", "failed", ended_at=9.0), job("8_[3-4%1]", "pending")]
    assert by_id(tasks)["8"].state == "pending"
    over = by_id(tasks[:2])["8"]
    assert (over.state, over.ended_at) == ("failed", 9.0)
    assert set(by_id(tasks)) == {"8", "8_1", "8_2", "8_[3-4%1]"}


def test_an_id_that_was_given_out_again_is_another_job() -> None:
    ours = job("5", "running", 100.0, comment="rltui:a", name="run-a")
    assert is_same_job(ours, job("5", "pending", 300.0, comment="rltui:a", name="run-a"))
    assert is_same_job(ours, job("5", "pending", 300.0, name="run-a"))
    assert not is_same_job(ours, job("5", "running", 300.0, comment="rltui:b", name="run-b"))
    assert not is_same_job(ours, job("5", "running", 300.0, name="other"))
    assert not is_same_job(ours, job("5", "completed", 50.0, comment="rltui:a", name="run-a"))
