"""Slurm's words: states, pending reasons, times, ids, marks."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltui.cluster.jobs import JobSnapshot
from rltui.cluster.slurm.ids import JobId, base_id, checked, comment_of, is_foreign, is_marked, job_name_of, read_id
from rltui.cluster.slurm.reasons import FAMILIES, TABLE, explain_reason
from rltui.cluster.slurm.records import read_duration_s, read_time, write_duration
from rltui.cluster.slurm.states import LONG, SHORT, read_state
from rltui.errors import UsageError
from rltui.service.verb_table import VERBS

UUID = "0f3e9a2b5c7d4e6f8a9b0c1d2e3f4a5b"


@pytest.mark.parametrize(
    ("text", "state", "word"),
    [
        ("RUNNING", "running", "RUNNING"),
        ("R", "running", "RUNNING"),
        ("PD", "pending", "PENDING"),
        ("CONFIGURING", "pending", "CONFIGURING"),
        ("CG", "completing", "COMPLETING"),
        ("STAGE_OUT", "completing", "STAGE_OUT"),
        ("S", "suspended", "SUSPENDED"),
        ("ST", "suspended", "STOPPED"),
        ("NF", "failed", "NODE_FAIL"),
        ("OOM", "failed", "OUT_OF_MEMORY"),
        ("TO", "failed", "TIMEOUT"),
        ("PR", "failed", "PREEMPTED"),
        ("DL", "failed", "DEADLINE"),
        ("BF", "failed", "BOOT_FAIL"),
        ("CD", "completed", "COMPLETED"),
        ("RV", "cancelled", "REVOKED"),
        ("REQUEUED", "pending", "REQUEUED"),
        ("RH", "pending", "REQUEUE_HOLD"),
        ("SE", "pending", "SPECIAL_EXIT"),
        ("EXPEDITING", "pending", "EXPEDITING"),
        ("running", "running", "RUNNING"),
        ("COMPLETED+COMPLETING", "completing", "COMPLETING"),
        ("PENDING+REQUEUE_HOLD", "pending", "REQUEUE_HOLD"),
        ("RUNNING+CONFIGURING", "pending", "CONFIGURING"),
        ("TIMEOUT,COMPLETING", "completing", "COMPLETING"),
        ("CANCELLED", "cancelled", "CANCELLED"),
        ("TELEPORTED", "unknown", "TELEPORTED"),
        ("", "unknown", ""),
    ],
)
def test_states_are_folded(text: str, state: str, word: str) -> None:
    found = read_state(text)
    assert (found.state, found.word, found.cancelled_by) == (state, word, "")


def test_who_cancelled_is_told() -> None:
    found = read_state("CANCELLED by 2001")
    assert (found.state, found.word, found.cancelled_by) == ("cancelled", "CANCELLED", "2001")


def test_every_short_code_has_a_long_word() -> None:
    assert set(SHORT.values()) <= set(LONG)


@given(st.text(max_size=30))
def test_no_word_for_a_state_crashes(text: str) -> None:
    assert read_state(text).state


@pytest.mark.parametrize(
    ("reason", "kind", "starts"),
    [
        ("Priority", "wait", True),
        ("Resources", "wait", True),
        ("(Resources)", "wait", True),
        ("None", "wait", True),
        ("BeginTime", "own", True),
        ("Dependency", "own", True),
        ("JobArrayTaskLimit", "own", True),
        ("JobHeldUser", "own", False),
        ("JobHeldAdmin", "dead", False),
        ("DependencyNeverSatisfied", "dead", False),
        ("AssocGrpGRES", "shared", True),
        ("AssocGrpGRESMinutes", "shared", True),
        ("AssocGrpGRESRunMinutes", "shared", True),
        ("QOSGrpCpuLimit", "shared", True),
        ("QOSGrpNodeLimit", "shared", True),
        ("MaxGRESPerAccount", "shared", True),
        ("QOSMaxGRESPerUser", "own", True),
        ("QOSMaxJobsPerUserLimit", "own", True),
        ("AssocMaxJobsLimit", "own", True),
        ("QOSMaxGRESPerJob", "never", False),
        ("QOSMaxGRESPerNode", "never", False),
        ("AssocMaxWallDurationPerJobLimit", "never", False),
        ("QOSMinGRES", "never", False),
        ("PartitionTimeLimit", "never", False),
        ("PartitionNodeLimit", "never", False),
        ("BadConstraints", "never", False),
        ("ReqNodeNotAvail, UnavailableNodes:node3", "wait", True),
        ("ReqNodeNotAvail, Reserved for maintenance", "wait", True),
        ("ReqNodeNotAvail(Unavailable:n1)", "wait", True),
        ("launch failed requeued held", "dead", False),
        ("launch_failed_requeued_held", "dead", False),
        ("job requeued in held state", "dead", False),
        ("Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions", "wait", True),
        (
            "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions",
            "wait",
            True,
        ),
        ("Job's account not permitted to use this partition (gpu allows ours not theirs)", "dead", False),
        ("Job's QOS not permitted to use this partition (gpu denies low including low)", "dead", False),
        ("MaxMemPerLimit", "never", False),
        ("PhaseOfTheMoon", "unknown", True),
    ],
)
def test_reasons_are_explained(reason: str, kind: str, starts: bool) -> None:
    found = explain_reason(reason)
    assert (found.kind, found.starts_by_itself) == (kind, starts)
    assert found.sentence.endswith(".")
    assert found.word == reason.strip("()") or "(" in found.word


def test_a_reason_names_the_nodes_it_misses() -> None:
    assert "node[3-4]" in explain_reason("ReqNodeNotAvail, UnavailableNodes:node[3-4]").sentence
    assert "maintenance" in explain_reason("ReqNodeNotAvail, Reserved for maintenance").sentence
    for word in ("PartitionTimeLimit", "ReqNodeNotAvail"):
        assert "`rltui update grpo-1a2b --time " in explain_reason(word, "grpo-1a2b").next_step
    assert "`rltui resubmit grpo-1a2b --cancel " in explain_reason("PartitionNodeLimit", "grpo-1a2b").next_step


def test_an_unknown_reason_is_shown_whole() -> None:
    assert "signal_19)" in explain_reason("NewWord:53(Real-time_signal_19)").sentence


def test_whoever_must_act_is_told_the_command() -> None:
    stuck = [one for one in (*TABLE, *(one for _, one in FAMILIES)) if not one.starts_by_itself]
    helpless = [one.word or one.sentence for one in stuck if not re.search(r"`rltui \w+ \{run\}", one.next_step)]
    assert helpless == ["JobHeldAdmin"]
    for one in stuck:
        for verb in re.findall(r"`rltui ([\w-]+)", one.next_step):
            assert verb in {known.name for known in VERBS}


@given(st.text(max_size=60))
def test_any_reason_is_shown_without_control_characters(text: str) -> None:
    found = explain_reason(text)
    assert (found.word + found.sentence).isprintable()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1-00:00:00", 86400),
        ("2-3", 2 * 86400 + 3 * 3600),
        ("10:00", 600),
        ("1:00:00", 3600),
        ("30", 1800),
        ("20:00:00", 72000),
        ("00:20:00", 1200),
        ("UNLIMITED", None),
        ("Partition_Limit", None),
        ("INVALID", None),
        ("N/A", None),
        ("", None),
        ("²", None),
        ("1:2:3:4", None),
    ],
)
def test_durations_are_read(text: str, seconds: float | None) -> None:
    assert read_duration_s(text) == seconds


@given(st.integers(1, 10**8))
def test_a_duration_that_is_written_is_read_again(seconds: int) -> None:
    assert read_duration_s(write_duration(seconds)) == seconds


@pytest.mark.parametrize("seconds", [0, -5, 1e12, float("inf")])
def test_no_time_limit_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="no time limit"):
        write_duration(seconds)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("1795310241", 1795310241.0),
        ("2026-11-22T01:17:21", 1795310241.0),
        ("N/A", 0.0),
        ("Unknown", 0.0),
        ("0", 0.0),
        ("", 0.0),
        ("4294967294000", 0.0),
        ("2026-13-99T99:99:99", 0.0),
        ("1²", 0.0),
    ],
)
def test_times_are_read(text: str, at: float) -> None:
    assert read_time(text) == at


@pytest.mark.parametrize(
    ("text", "identity"),
    [
        ("88", JobId("88")),
        ("88_3", JobId("88", "3")),
        ("88_[4-10%1]", JobId("88", "[4-10%1]")),
        ("123+1", JobId("123", "", 1)),
        ("", None),
        ("-1", None),
        ("88 99", None),
        ("88\n", None),
        ("٣", None),
    ],
)
def test_ids_are_taken_apart(text: str, identity: JobId | None) -> None:
    assert read_id(text) == identity
    assert base_id(text) == (identity.base if identity else text)


@pytest.mark.parametrize("text", ["", "-1", "1;reboot", "$(id)", "88_[1-3]", "--me", "1,2", "1 2", "9" * 13])
def test_only_one_jobs_id_becomes_a_word_of_a_command(text: str) -> None:
    with pytest.raises(UsageError):
        checked(text)


def test_a_mark_is_found_in_the_comment_or_where_there_is_none_in_the_name() -> None:
    name = job_name_of("grpo 7b/$(id)\n", UUID)
    assert name == "grpo-7b-id-0f3e9a2b"
    assert job_name_of("", UUID) == "rltui-0f3e9a2b"
    assert len(job_name_of("x" * 300, UUID)) < 80
    assert is_marked(JobSnapshot(job_id="1", comment=comment_of(UUID)), UUID)
    assert is_marked(JobSnapshot(job_id="1", name=name), UUID)
    assert is_marked(JobSnapshot(job_id="1", name=name, comment="the site's own"), UUID)
    assert not is_marked(JobSnapshot(job_id="1", name=name, comment=comment_of("other")), UUID)
    assert not is_marked(JobSnapshot(job_id="1", name="mine"), UUID)
    assert not is_marked(JobSnapshot(job_id="1", name="x-"), "")


def test_a_job_with_another_mark_is_foreign() -> None:
    assert is_foreign(JobSnapshot(job_id="1", comment=comment_of("other")), UUID)
    assert not is_foreign(JobSnapshot(job_id="1", comment=comment_of(UUID)), UUID)
    assert not is_foreign(JobSnapshot(job_id="1", comment=""), UUID)
