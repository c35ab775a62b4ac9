"""When Slurm is asked, and what is believed when it lags, forgets, gives ids out again, or does not answer.

The answers are scripted where a real cluster cannot be made to give them; see test_slurm_client.py too.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_slurm import DOWN, UUID, ScriptedSlurm

from rltui.cluster.relay_types import Completed
from rltui.cluster.slurm.client import SlurmClient
from rltui.cluster.slurm.poller import JobPoller, Needs, accounting_delay_s, next_look_s
from rltui.cluster.slurm.replies import SlurmUnansweredError, Trouble
from rltui.runs.journal import Journal
from rltui.service import job_changes

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def slurm() -> ScriptedSlurm:
    return ScriptedSlurm()


@pytest.fixture
def client(slurm: ScriptedSlurm) -> SlurmClient:
    return SlurmClient(slurm, slurm.clock)  # type: ignore[arg-type]


@pytest.fixture
def poller(slurm: ScriptedSlurm, client: SlurmClient) -> JobPoller:
    return JobPoller(client, slurm.clock, lambda: 0.5)


@pytest.mark.parametrize(
    ("needs", "delay"),
    [
        (Needs(), 30),
        (Needs(asked_for_places=True), 45),
        (Needs(is_watched=False), 60),
        (Needs(is_active=False), 120),
        (Needs(changed_ago_s=5), 10),
        (Needs(changed_ago_s=120), 10),
        (Needs(changed_ago_s=121), 30),
        (Needs(changed_ago_s=-3600), 30),
        (Needs(failures=1), 60),
        (Needs(failures=2, changed_ago_s=5), 120),
        (Needs(failures=4), 300),
        (Needs(failures=10**6), 300),
    ],
)
def test_the_pause_is_that_of_the_policy(needs: Needs, delay: float) -> None:
    assert next_look_s(needs, 0.0) == delay
    assert next_look_s(needs, 1.0) == pytest.approx(delay * 1.2)


@given(
    st.integers(0, 50),
    st.booleans(),
    st.booleans(),
    st.none() | st.floats(-1e6, 1e6),
    st.floats(0, 1, exclude_max=True),
)
def test_no_pause_is_shorter_than_ten_seconds_or_longer_than_six_minutes(
    failures: int, watched: bool, active: bool, changed: float | None, chance: float
) -> None:
    needs = Needs(failures=failures, is_watched=watched, is_active=active, changed_ago_s=changed)
    assert 10 <= next_look_s(needs, chance) <= 360


def test_the_accounting_is_asked_ever_more_rarely_and_at_last_no_more() -> None:
    delays = [accounting_delay_s(tries) for tries in range(1, 14)]
    assert delays[:3] == [40, 50, 60]
    assert delays == sorted(delays)
    assert max(delay for delay in delays if delay < math.inf) <= 180
    assert delays[-1] == math.inf


def test_one_question_serves_all_jobs_until_the_next_is_due(slurm: ScriptedSlurm, poller: JobPoller) -> None:
    slurm.queue = [{"id": str(number), "state": "RUNNING"} for number in range(1, 201)]
    ids = [row["id"] for row in slurm.queue]
    for _ in range(500):
        picture = poller.jobs(ids)
        slurm.now += 0.05
    assert len(picture.jobs) == 200
    assert slurm.count("squeue") == 1
    slurm.now += 33
    poller.jobs(ids)
    assert slurm.count("squeue") == 2


def test_steady_watching_makes_at_most_six_calls_to_the_controller_in_any_minute(
    slurm: ScriptedSlurm, client: SlurmClient
) -> None:
    slurm.queue = [{"id": "1", "state": "RUNNING"}, {"id": "2", "state": "PENDING", "reason": "Resources"}]
    poller = JobPoller(client, slurm.clock, lambda: 0.0)
    poller.jobs(["1", "2"])
    busiest, total = 0, len(slurm.calls)
    for _ in range(3600):
        slurm.now += 1
        poller.jobs(["1", "2"])
        busiest = max(busiest, poller.rpcs_per_minute() if slurm.now > 1_800_000_060 else 0)
    assert busiest <= 6
    assert len(slurm.calls) - total <= 3600 / 60 * 3
    assert poller.jobs(["2"]).jobs["2"].queue_position == 1


def test_a_running_job_that_a_list_leaves_out_is_asked_for_by_its_id(
    slurm: ScriptedSlurm, poller: JobPoller, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm.queue = [{"id": "1", "state": "RUNNING"}, {"id": "2", "state": "PENDING"}]
    poller.jobs(["1", "2"])
    monkeypatch.setattr(slurm, "asked", lambda words: slurm.queue[:1] if "--jobs=1" in words else [])
    slurm.now += 60
    found = poller.jobs(["1", "2"]).jobs
    assert (found["1"].state, found["2"].state) == ("running", "unknown")


def test_a_change_brings_looks_forward_for_two_minutes(slurm: ScriptedSlurm, poller: JobPoller) -> None:
    slurm.queue = [{"id": "1", "state": "RUNNING"}]
    poller.jobs(["1"])
    slurm.now += 5
    poller.changed()
    before = slurm.count("squeue")
    for _ in range(120):
        slurm.now += 1
        poller.jobs(["1"])
    assert 9 <= slurm.count("squeue") - before <= 13
    for _ in range(120):
        slurm.now += 1
        poller.jobs(["1"])
    assert slurm.count("squeue") - before <= 13 + 4


@pytest.mark.parametrize("change", [job_changes.hold, job_changes.release, job_changes.requeue])
def test_a_job_that_was_changed_is_looked_at_within_two_seconds(
    change: Callable[..., str],
    slurm: ScriptedSlurm,
    client: SlurmClient,
    poller: JobPoller,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slurm.queue = [{"id": "1", "state": "PENDING"}]
    poller.jobs(["1"])
    before = slurm.count("squeue")
    for name in ("hold", "release", "requeue"):
        monkeypatch.setattr(client, name, lambda job_id: None)
    cluster = SimpleNamespace(slurm=client, poller=poller)
    monkeypatch.setattr(job_changes, "_slurm_cluster", lambda *_: cluster)
    run = SimpleNamespace(run_id="grpo-1", attempt=1, job_id="1")
    change(SimpleNamespace(name="lab", journal=Journal(tmp_path)), run)
    slurm.now += 2
    poller.jobs(["1"])
    assert slurm.count("squeue") == before + 1


def test_a_controller_that_is_down_leaves_the_old_picture_with_its_age(slurm: ScriptedSlurm, poller: JobPoller) -> None:
    slurm.queue = [{"id": "1", "state": "RUNNING"}]
    taken_at = poller.jobs(["1"]).taken_at
    slurm.failures["squeue"] = DOWN
    before = len(slurm.calls)
    for _ in range(900):
        slurm.now += 1
        picture = poller.jobs(["1"])
        assert picture.jobs["1"].state == "running"
    assert "connect failure" in picture.problem
    assert picture.taken_at == taken_at
    assert len(slurm.calls) - before <= 15 / 1  # fewer than one a minute
    del slurm.failures["squeue"]
    slurm.now += 400
    assert poller.jobs(["1"]).problem == ""


def test_a_rate_limit_slows_down_and_says_so(slurm: ScriptedSlurm, poller: JobPoller) -> None:
    slurm.failures["squeue"] = "squeue: error: Rate limit exceeded, please retry later"
    assert "Rate limit" in poller.jobs(["1"]).problem
    slurm.now += 61
    poller.jobs(["1"])
    assert slurm.count("squeue") == 1  # 60 s and a tenth of it
    slurm.now += 10
    poller.jobs(["1"])
    assert slurm.count("squeue") == 2


def test_a_job_that_vanished_ends_only_by_the_word_of_the_accounting(slurm: ScriptedSlurm, poller: JobPoller) -> None:
    slurm.queue = [{"id": "1", "state": "RUNNING", "nodes": "node1"}]
    poller.jobs(["1"])
    slurm.queue = []
    slurm.now += 40
    assert poller.jobs(["1"]).jobs["1"].state == "unknown"
    slurm.records = [{"id": "1", "state": "RUNNING"}]  # slurmdbd lags
    slurm.now += 50
    assert poller.jobs(["1"]).jobs["1"].state == "unknown"
    slurm.records = [{"id": "1", "state": "OUT_OF_MEMORY", "exit": "0:125", "end": "1800000100"}]
    slurm.now += 70
    job = poller.jobs(["1"]).jobs["1"]
    assert (job.state, job.word, job.signal) == ("failed", "OUT_OF_MEMORY", 125)
    asked = slurm.count("sacct")
    slurm.now += 1000
    assert poller.jobs(["1"]).jobs["1"].state == "failed"
    assert slurm.count("sacct") == asked


def test_who_cancelled_a_job_is_asked_of_the_accounting_while_the_queue_still_lists_it(
    slurm: ScriptedSlurm, poller: JobPoller
) -> None:
    slurm.queue = [{"id": "1", "state": "CANCELLED"}]
    assert poller.jobs(["1"]).jobs["1"].cancelled_by == ""
    assert poller.jobs(["1"]).jobs["1"].state == "cancelled", "the accounting lags"
    slurm.records = [{"id": "1", "state": "CANCELLED by 0", "end": "1800000100"}]
    for _ in range(3):
        slurm.now += 150
        assert (poller.jobs(["1"]).jobs["1"].state, poller.jobs(["1"]).jobs["1"].cancelled_by) == ("cancelled", "0")
    assert slurm.count("sacct") == 2, "and no more once it has told"
    slurm.queue, slurm.records = [{"id": "2", "state": "CANCELLED"}], []
    for _ in range(60):
        slurm.now += 150
        assert poller.jobs(["2"]).jobs["2"].state == "cancelled"
    assert slurm.count("sacct") <= 20, "nor where it never tells"


def test_without_accounting_nobody_claims_an_end(slurm: ScriptedSlurm, poller: JobPoller) -> None:
    slurm.queue = [{"id": "1", "state": "RUNNING"}]
    poller.jobs(["1"])
    slurm.queue, slurm.failures["sacct"] = [], "Slurm accounting storage is disabled"
    for _ in range(100):
        slurm.now += 60
        picture = poller.jobs(["1", "2"])
        assert picture.jobs["1"].state == "unknown"
        assert "2" not in picture.jobs
        assert picture.problem == ""
    assert slurm.count("sacct") <= 25  # and not for ever
    assert len(slurm.calls) < 90


def test_a_job_that_vanished_for_a_moment_is_taken_back(slurm: ScriptedSlurm, poller: JobPoller) -> None:
    slurm.queue = [{"id": "1", "state": "RUNNING"}]
    poller.jobs(["1"])
    rows, slurm.queue = slurm.queue, []
    slurm.now += 40
    poller.jobs(["1"])
    slurm.queue = rows
    slurm.now += 40
    assert poller.jobs(["1"]).jobs["1"].state == "running"


def test_many_vanished_jobs_are_one_question(slurm: ScriptedSlurm, poller: JobPoller) -> None:
    slurm.records = [{"id": str(number), "state": "COMPLETED", "end": "1800000001"} for number in range(1, 51)]
    picture = poller.jobs([str(number) for number in range(1, 51)])
    assert len(picture.jobs) == 50
    assert slurm.count("sacct") == 1
    assert [word for words in slurm.calls for word in words if word.startswith("--jobs=")] == [
        f"--jobs={','.join(str(number) for number in range(1, 51))}"
    ]


def test_a_requeue_is_followed_and_a_reused_id_is_not(slurm: ScriptedSlurm, poller: JobPoller) -> None:
    mark = f"rltui:{UUID}"
    slurm.queue = [{"id": "1", "state": "RUNNING", "comment": mark}]
    poller.jobs(["1"])
    slurm.queue = [{"id": "1", "state": "PENDING", "comment": mark, "submit": "1800000100", "restarts": "1"}]
    slurm.now += 40
    job = poller.jobs(["1"]).jobs["1"]
    assert (job.state, job.restarts, job.submitted_at) == ("pending", 1, 1800000100)
    slurm.queue = [{"id": "1", "state": "FAILED", "comment": mark, "submit": "1800000100", "restarts": "1"}]
    slurm.now += 100
    assert poller.jobs(["1"]).jobs["1"].state == "failed"
    slurm.queue = [{"id": "1", "state": "RUNNING", "comment": "rltui:another", "submit": "1800009000"}]
    slurm.now += 200
    assert poller.jobs(["1"]).jobs["1"].state == "failed"


def test_an_older_squeue_is_asked_in_its_own_words(slurm: ScriptedSlurm, poller: JobPoller) -> None:
    slurm.knows_long_format = False
    slurm.queue = [{"id": "1", "state": "RUNNING"}]
    assert poller.jobs(["1"]).jobs["1"].state == "running"
    slurm.now += 40
    poller.jobs(["1"])
    formats = [words[-1].partition("=")[0] for words in slurm.calls if words[0] == "squeue"]
    assert formats == ["--Format", "--format", "--format"]


def test_a_clock_that_is_set_back_does_not_stop_the_looks(slurm: ScriptedSlurm, poller: JobPoller) -> None:
    poller.jobs(["1"])
    before = slurm.count("squeue")
    slurm.now -= 36_000
    poller.jobs(["1"])
    assert slurm.count("squeue") == before + 1


def test_threads_do_not_wait_for_a_look_of_another(slurm: ScriptedSlurm, poller: JobPoller) -> None:
    slurm.queue = [{"id": "1", "state": "RUNNING"}]
    poller.jobs(["1"])
    slurm.now += 100
    entered, go_on, answer = threading.Event(), threading.Event(), slurm.answer

    def slow(tool: str, words: list[str]) -> Completed:
        entered.set()
        assert go_on.wait(60)
        return answer(tool, words)

    slurm.answer = slow  # type: ignore[method-assign]
    looker = threading.Thread(target=poller.jobs, args=(["1"],))
    looker.start()
    assert entered.wait(60)
    assert poller.jobs(["1"]).jobs["1"].state == "running"
    go_on.set()
    looker.join(60)
    assert slurm.count("squeue") == 2


def test_where_jobs_are_private_no_place_in_the_queue_is_claimed(slurm: ScriptedSlurm, poller: JobPoller) -> None:
    slurm.config = "PrivateData = accounts,jobs\n"
    slurm.queue = [{"id": "1", "state": "PENDING", "reason": "Priority"}]
    assert poller.jobs(["1"]).jobs["1"].queue_position is None


def test_jobs_are_of_now_where_their_places_in_the_queue_cannot_be_told(
    slurm: ScriptedSlurm, client: SlurmClient, poller: JobPoller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_: object) -> None:
        raise SlurmUnansweredError(Trouble("controller", "squeue did not answer within 25 s"))

    monkeypatch.setattr(client, "pending", away)
    slurm.queue = [{"id": "1", "state": "PENDING", "reason": "Priority"}]
    picture = poller.jobs(["1"])
    assert (picture.problem, picture.taken_at, picture.jobs["1"].reason) == ("", slurm.now, "Priority")
