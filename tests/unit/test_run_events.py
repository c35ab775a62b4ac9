"""What happens to runs, found by comparing pictures: starts, ends and stalls, each once, and nothing else."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from rltui.onnode.progress import FIRST_STEPS_S, STALL_S
from rltui.service.run_events import UNWATCHED_S, Event, RunEvents
from rltui.watch.snapshots import EndSnapshot, RunsSnapshot, RunSummary, StageSnapshot

RUN = RunSummary(
    run_id="grpo-1a2b",
    name="grpo",
    algorithm="grpo",
    cluster="alps",
    state="queued",
    attempt=1,
    created_at=0.0,
    nodes=1,
    gpus_per_node=4,
    gpu="cpu",
    stage=StageSnapshot(stage="queued"),
)
LOST = structs.replace(RUN, state="lost", end=EndSnapshot(outcome="lost", reason="the node vanished"))


def training(step: int | None, attempt: int = 1, stage: str = "training", **changes: Any) -> RunSummary:
    return structs.replace(
        RUN, state="running", attempt=attempt, stage=StageSnapshot(stage=stage, step=step, steps=100, **changes)
    )


class Looker:
    """Looks again and again, as the cockpit does."""

    def __init__(self) -> None:
        self.events = RunEvents()
        self.now_s = 1000.0

    def look(self, *runs: RunSummary, after_s: float = 1.0) -> list[Event]:
        self.now_s += after_s
        return self.events.look(RunsSnapshot(runs=runs), self.now_s)

    def wait(self, run: RunSummary, seconds: float) -> list[Event]:
        """Look at the same picture every minute for so long."""
        return [event for _ in range(int(seconds // 60)) for event in self.look(run, after_s=60.0)]


def kinds(events: list[Event]) -> list[str]:
    return [event.kind for event in events]


def test_a_life_is_a_start_and_an_end_for_each_attempt() -> None:
    looker = Looker()
    told = [
        kinds(looker.look(run))
        for run in (
            RUN,
            training(None, stage="loading"),
            training(0),
            training(3),
            training(3, stage="saving"),
            training(4),
            LOST,
            LOST,
            training(4, attempt=2),
            structs.replace(LOST, attempt=2, state="finished"),
        )
    ]
    assert told == [[], [], ["started"], [], [], [], ["ended"], [], ["started"], ["ended"]]


def test_the_words_of_an_end() -> None:
    looker = Looker()
    looker.look(training(7))
    [event] = looker.look(structs.replace(LOST, stage=StageSnapshot(stage="ended", step=7, steps=100)))
    message = event.message()
    assert message["title"] == "grpo-1a2b: lost"
    assert message["text"] == "the node vanished\nattempt 1 on alps, step 7 of 100"
    assert (message["kind"], message["cluster"], message["run"]) == ("ended", "alps", "grpo-1a2b")


def test_what_was_over_before_somebody_looked_is_no_news() -> None:
    looker = Looker()
    assert looker.look(LOST, structs.replace(RUN, run_id="other")) == []
    assert looker.look(LOST, structs.replace(LOST, run_id="new")) == []


def test_a_cluster_that_is_away_tells_nothing_and_its_end_is_told_when_it_is_back() -> None:
    looker = Looker()
    looker.look(training(3))
    assert looker.look(structs.replace(LOST, as_of=5.0)) == []
    assert looker.look() == []
    assert kinds(looker.look(LOST)) == ["ended"]


def stepping() -> Looker:
    looker = Looker()
    for step in range(6):
        assert looker.look(training(step), after_s=30.0) == []
    return looker


def test_a_stall_is_told_once_and_not_before_its_time() -> None:
    looker = stepping()
    assert looker.wait(training(5), STALL_S) == []
    [event] = looker.wait(training(5), 3600.0)
    assert event.kind == "stalled"
    assert event.text == "no step for 11 min, usually 30.0 s"
    assert kinds(looker.look(LOST)) == ["ended"]


def test_a_slow_run_is_given_its_own_time() -> None:
    looker = Looker()
    for step in range(5):
        looker.wait(training(step), 420.0)
    assert looker.wait(training(4), 4 * 420.0 - 420.0) == []
    assert kinds(looker.wait(training(4), 180.0)) == ["stalled"]


def test_first_steps_saving_and_evaluating_are_no_stalls() -> None:
    looker = Looker()
    assert looker.wait(training(0), FIRST_STEPS_S) == []
    for other in (training(5, stage="saving"), training(5, detail="evaluating 3/8")):
        looker = stepping()
        looker.wait(other, 4 * 3600.0)
        assert looker.wait(training(5), STALL_S) == []


def test_a_machine_that_slept_knows_of_no_stall() -> None:
    looker = stepping()
    assert looker.look(training(5), after_s=8 * 3600.0) == []
    assert looker.wait(training(5), STALL_S) == []
    assert kinds(looker.wait(training(5), 60.0)) == ["stalled"]
    assert UNWATCHED_S < STALL_S


def test_two_runs_of_one_id_on_two_clusters_are_told_apart() -> None:
    looker, over = Looker(), structs.replace(LOST, cluster="eiger")
    assert looker.look(over, training(1)) == []
    assert looker.look(over, training(2)) == []
    assert kinds(looker.look(over, LOST)) == ["ended"]


def test_steps_of_which_nobody_knows_the_number_are_none_of_none() -> None:
    run = structs.replace(RUN, stage=StageSnapshot(stage="training", step=5))
    assert Event(kind="stalled", run=run).message()["text"] == "attempt 1 on alps, step 5"
