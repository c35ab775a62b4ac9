"""What comes of submissions, look-ups and changes whose answers are lost, late or not to be believed."""

from __future__ import annotations

from typing import Any, cast

import pytest
from scripted_slurm import DBD_DOWN, DOWN, UUID, ScriptedSlurm

from rltui.cluster.cluster import SubmitRefusedError, SubmitUnknownError
from rltui.cluster.gather_facts import gather_facts, recent_facts
from rltui.cluster.relay_client import RelayClient
from rltui.cluster.relay_types import FileChunk, RelayError
from rltui.cluster.slurm.client import SlurmClient
from rltui.cluster.slurm.replies import SlurmRefusedError, SlurmUnansweredError
from rltui.cluster.slurm.runner import on_cluster
from rltui.errors import ClusterError


@pytest.fixture
def slurm() -> ScriptedSlurm:
    return ScriptedSlurm()


@pytest.fixture
def client(slurm: ScriptedSlurm) -> SlurmClient:
    return SlurmClient(slurm, slurm.clock)  # type: ignore[arg-type]


def submit(client: SlurmClient) -> str:
    return client.submit("/r/job.sbatch", job_name=f"run-{UUID[:8]}", comment=f"rltui:{UUID}", chdir="/r")


def test_an_unreachable_cluster_is_a_certain_no(slurm: ScriptedSlurm, client: SlurmClient) -> None:
    def away(_: str) -> FileChunk:
        raise RelayError("lost", "The relay on alpha ended.", "")

    slurm.read = away  # type: ignore[method-assign]
    with pytest.raises(SubmitRefusedError, match="Nothing was submitted") as error:
        submit(client)
    assert error.value.exit_code == 3
    assert slurm.count("sbatch") == 0


def test_what_the_script_says_wins_over_variables_of_the_login_shell(slurm: ScriptedSlurm, client: SlurmClient) -> None:
    slurm.script += "#SBATCH --mem=0\n#SBATCH --no-requeue\n"
    submit(client)
    gone = {"SBATCH_TIMELIMIT", "SBATCH_ACCOUNT", "SBATCH_REQUEUE", "SBATCH_MEM_PER_CPU", "SBATCH_EXCLUSIVE"}
    gone |= {"SLURM_CLUSTERS", "SBATCH_CLUSTERS"}
    assert gone <= set(slurm.cleared)
    # what it leaves open may still come from there
    assert not {"SBATCH_PARTITION", "SBATCH_RESERVATION", "SBATCH_EXPORT"} & set(slurm.cleared)
    client.queue()
    assert "SBATCH_ACCOUNT" not in slurm.cleared


def test_a_tool_is_told_its_cluster_and_no_default_of_the_user_counts(slurm: ScriptedSlurm) -> None:
    relay = cast("RelayClient", slurm)
    assert on_cluster(relay, ["squeue", "--me"]) == ["env", "-u", "SLURM_CLUSTERS", "squeue", "--me"]
    slurm.slurm_cluster = "b"
    assert on_cluster(relay, ["squeue", "--me"]) == ["env", "SLURM_CLUSTERS=b", "squeue", "--me"]
    assert on_cluster(relay, ["sacct", "-X"]) == ["env", "SLURM_CLUSTERS=b", "sacct", "--clusters=b", "-X"]


@pytest.mark.parametrize(
    ("kind", "refused"), [("lost", False), ("timeout", False), ("failed", False), ("missing", True)]
)
def test_a_lost_answer_is_unknown_and_nothing_is_sent_twice(
    slurm: ScriptedSlurm, client: SlurmClient, kind: str, refused: bool
) -> None:
    slurm.errors["sbatch"] = RelayError(kind, "It broke.")
    with pytest.raises(SubmitRefusedError if refused else SubmitUnknownError):
        submit(client)
    assert slurm.count("sbatch") == 1


def test_a_job_is_found_by_its_mark_in_the_queue_and_else_in_the_accounting(
    slurm: ScriptedSlurm, client: SlurmClient
) -> None:
    slurm.queue = [{"id": "7", "state": "RUNNING", "comment": f"rltui:{UUID}"}]
    assert client.find_by_comment(UUID, slurm.now) == "7"
    assert slurm.count("sacct") == 0
    slurm.queue, slurm.records = [], [{"id": "8", "state": "FAILED", "name": f"run-{UUID[:8]}"}]
    assert client.find_by_comment(UUID, slurm.now - 900) == "8"
    assert "--starttime=now-1200seconds" in slurm.calls[-1]
    assert client.find_by_comment(UUID, 0.0) == "8"
    assert "--starttime=now-5184000seconds" in slurm.calls[-1]


def test_none_is_said_only_when_both_have_answered_and_a_minute_has_passed(
    slurm: ScriptedSlurm, client: SlurmClient
) -> None:
    with pytest.raises(ClusterError, match="too early"):
        client.find_by_comment(UUID, slurm.now - 59)
    assert client.find_by_comment(UUID, slurm.now - 61) is None
    slurm.failures = {"squeue": DOWN}
    with pytest.raises(ClusterError, match="does not answer"):
        client.find_by_comment(UUID, slurm.now - 61)
    slurm.failures = {"sacct": DBD_DOWN}
    with pytest.raises(ClusterError, match="database"):
        client.find_by_comment(UUID, slurm.now - 61)


def test_without_accounting_the_queue_alone_vouches_for_young_submissions_only(
    slurm: ScriptedSlurm, client: SlurmClient
) -> None:
    slurm.failures = {"sacct": "Slurm accounting storage is disabled"}
    assert client.find_by_comment(UUID, slurm.now - 200) is None
    with pytest.raises(ClusterError):
        client.find_by_comment(UUID, slurm.now - 300)


def test_a_controller_that_forgets_sooner_vouches_for_less(slurm: ScriptedSlurm, client: SlurmClient) -> None:
    slurm.failures = {"sacct": "Slurm accounting storage is disabled"}
    slurm.config = "MinJobAge = 130 sec\n"
    assert client.find_by_comment(UUID, slurm.now - 65) is None
    with pytest.raises(ClusterError):
        client.find_by_comment(UUID, slurm.now - 75)


def test_a_strangers_job_is_not_touched(slurm: ScriptedSlurm, client: SlurmClient) -> None:
    slurm.queue = [{"id": "7", "state": "RUNNING", "uid": "2002", "user": "bob"}]
    for change in (client.cancel, client.hold, client.release, client.requeue):
        with pytest.raises(SlurmRefusedError, match="bob"):
            change("7")
    with pytest.raises(SlurmRefusedError, match="bob"):
        client.set_time_limit("7", 60)
    with pytest.raises(SlurmRefusedError, match="bob"):
        client.set_excluded("7", ["node1"])
    assert client.cancel("7", uuid=UUID) is False
    assert not [words for words in slurm.calls if words[0] in ("scancel", "scontrol")]


def test_a_cancellation_spares_a_job_that_got_the_id_later(slurm: ScriptedSlurm, client: SlurmClient) -> None:
    slurm.queue = [{"id": "7", "state": "RUNNING", "comment": "rltui:another"}]
    assert client.cancel("7", uuid=UUID) is False
    assert slurm.count("scancel") == 0
    assert client.cancel("7", uuid="another") is True


def test_whether_a_cancellation_got_through_is_not_guessed(slurm: ScriptedSlurm, client: SlurmClient) -> None:
    slurm.queue = [{"id": "7", "state": "RUNNING"}]
    slurm.failures["scancel"] = "scancel: error: Kill job error on job id 7: Socket timed out on send/recv operation"
    with pytest.raises(ClusterError, match="unknown whether"):
        client.cancel("7")
    slurm.failures["squeue"] = DOWN
    with pytest.raises(ClusterError):
        client.cancel("7")
    assert slurm.count("scancel") == 1


def test_a_cluster_of_many_thousand_nodes_is_read_whole(slurm: ScriptedSlurm) -> None:
    gather_facts(slurm)  # type: ignore[arg-type]
    # an answer on one node is a thousand bytes
    assert slurm.limits["node"] >= 10_000 * 1000


def test_what_a_verb_wants_to_know_several_times_is_asked_once(
    slurm: ScriptedSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay: Any = slurm
    now = 100.0
    monkeypatch.setattr("rltui.cluster.gather_facts.time.monotonic", lambda: now)
    assert recent_facts(relay) is recent_facts(relay)
    asked = slurm.count("scontrol")
    assert asked
    now += 6.0
    recent_facts(relay)
    assert slurm.count("scontrol") == 2 * asked


def test_accounts_of_other_clusters_in_the_same_database_are_none_here(slurm: ScriptedSlurm) -> None:
    relay: Any = slurm
    slurm.associations = "alps|team\nalps|other\nalps|team\n"
    assert gather_facts(relay).accounts == ("team", "other")
    slurm.associations += "jura|elsewhere\n"
    slurm.config += "ClusterName             = alps\n"
    assert gather_facts(relay).accounts == ("team", "other")


def test_what_slurm_failed_to_tell_of_a_job_is_not_that_there_is_none(
    slurm: ScriptedSlurm, client: SlurmClient
) -> None:
    slurm.failures["scontrol"] = "slurm_load_jobs error: Invalid job id specified"
    assert (client.allocations("7"), client.details("7"), client.batch_script("7")) == ((), (), "")
    slurm.failures["scontrol"] = "slurm_load_jobs error: Unspecified error"
    for ask in (client.allocations, client.details):
        with pytest.raises(SlurmUnansweredError, match="Unspecified error"):
            ask("7")
    assert client.batch_script("7") == ""
