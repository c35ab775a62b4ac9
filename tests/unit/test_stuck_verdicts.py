"""Which process is named as the one that the others wait for, and when none is."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec import structs

from rltui.diagnose.recent import RunPicture, Step
from rltui.diagnose.stacks import Collective, Observed
from rltui.diagnose.stuck import Evidence, stuck_words
from rltui.watch.snapshots import StageSnapshot

NOW = 10_000.0
PICTURE = RunPicture(
    now=NOW + 5,
    stage=StageSnapshot(stage="training", since=1000.0),
    steps=tuple(Step(NOW - 700 + n, {}) for n in range(5)),
)
SLEEPING = """Process 7: ray::Learner.train

Thread 7 (idle): "MainThread"
    nap (os.py:3)
    Learner.train (trainers/roles/learner.py:108)
"""
FAULTHANDLER = 'Thread 0x7 (most recent call first):\n  File "/x/trainers/roles/learner.py", line 108 in train\n'


def call(
    seq: int, rank: int, *, ended: bool = False, group: str = "group 1", world: int = 2, ago_s: float = 30.0
) -> Collective:
    return Collective(group, seq, "all_reduce", rank, world, 4096, NOW - ago_s, NOW - 1 if ended else 0.0)


def rank(number: int, *calls: Collective, state: str = "S", stack: str = "") -> Observed:
    return Observed(40 + number, "ray::Learner", state, "", stack, calls, f"learner {number}", f"n{number}")


def said(*processes: Observed, picture: RunPicture = PICTURE, gone: tuple[str, ...] = (), at: float = NOW) -> list[str]:
    return stuck_words(Evidence(at, processes, gone), picture)


JUDGES = """Process 9: python -m trainers.rewards.own_worker strict:judge

Thread 9 (idle)
    judge (strict.py:3)
    verdict (trainers/rewards/own_worker.py:75)
    main (trainers/rewards/own_worker.py:100)
"""
TRAINER = """Process 8: python -m trainers.grpo

Thread 8 (idle): "MainThread"
    Future.result (concurrent/futures/_base.py:451)
    Loop.rewards (trainers/loop.py:235)
    Grpo.step (trainers/grpo.py:48)
"""


def test_a_reward_that_hangs_is_named_where_the_trainer_waits_for_it_and_no_rank_for_another() -> None:
    worker = Observed(9, "python -m trainers.rewards.own_worker strict:judge", "S", stack=JUDGES, host="n1")
    idle = Observed(
        7, worker.title, "S", stack=JUDGES.replace("    judge (strict.py:3)\n    verdict", "    x"), host="n1"
    )
    trainer = Observed(8, "python -m trainers.grpo", "S", stack=TRAINER, host="n1")
    ranks = (rank(0, call(8, 0, ended=True)), rank(1, call(8, 1, ended=True)))
    words = ["stuck: reward worker (pid 9 on n1) is in judge (strict.py:3), while the trainer waits for rewards"]
    assert said(*ranks, trainer, worker, idle) == words
    assert said(*ranks, worker, idle) == [], "it is asked for nothing that anybody waits for"
    assert said(rank(0, call(8, 0)), rank(1, call(7, 1, ended=True), state="T"), trainer, worker) != words


WAITS = "learner 0 (pid 40 on n0) waits for it in all_reduce 8 of group 1 (4096 bytes), for 30 s"

NAMED: dict[str, tuple[tuple[Observed, ...], list[str]]] = {
    "has not come, and its stack says what it does": (
        (rank(0, call(8, 0)), rank(1, call(7, 1, ended=True), stack=SLEEPING)),
        [
            "stuck: learner 1 (pid 41 on n1) has not come: it is in nap (os.py:3), from Learner.train "
            f"(trainers/roles/learner.py:108); {WAITS}"
        ],
    ),
    "has not come, faulthandler's stack": (
        (rank(0, call(8, 0)), rank(1, call(7, 1, ended=True), stack=FAULTHANDLER)),
        [f"stuck: learner 1 (pid 41 on n1) has not come: it is in train (roles/learner.py:108); {WAITS}"],
    ),
    "stopped before it came": (
        (rank(0, call(8, 0)), rank(1, call(7, 1, ended=True), state="T")),
        [f"stuck: learner 1 (pid 41 on n1) is stopped (state T: SIGSTOP, or a debugger); {WAITS}"],
    ),
    "stopped within it": (
        (rank(0, call(8, 0)), rank(1, call(8, 1), state="T")),
        [f"stuck: learner 1 (pid 41 on n1) is stopped (state T: SIGSTOP, or a debugger); {WAITS}"],
    ),
    "not seen on any node": ((rank(0, call(8, 0)),), [f"stuck: rank 1 of 2 is on no node that answered; {WAITS}"]),
    "all of them are in it": (
        (rank(0, call(8, 0)), rank(1, call(8, 1))),
        [
            "stuck: learner 0 (pid 40 on n0), learner 1 (pid 41 on n1): all ranks are in all_reduce 8 of group 1 "
            "(4096 bytes), for 30 s, and it does not end"
        ],
    ),
    "stopped within it, where its root has gone on": (
        (rank(0, call(8, 0, ended=True)), rank(1, call(8, 1), state="T")),
        ["stuck: learner 1 (pid 41 on n1) is stopped (state T: SIGSTOP, or a debugger)"],
    ),
    "left behind in it": (
        (rank(0, call(8, 0, ended=True)), rank(1, call(8, 1))),
        [
            "stuck: learner 1 (pid 41 on n1): still in all_reduce 8 of group 1 (4096 bytes), for 30 s, "
            "which the others have ended"
        ],
    ),
    "stopped outside of any": (
        (Observed(9, "ray::EngineActor", "T", role="engine 0", host="n1"),),
        ["stuck: engine 0 (pid 9 on n1) is stopped (state T: SIGSTOP, or a debugger)"],
    ),
    "of a script of another system": (
        (Observed(9, "python train.py", "T", host="n1"), Observed(10, "sh", "Z", host="n1")),
        ["stuck: python (pid 9 on n1) is stopped (state T: SIGSTOP, or a debugger)"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", NAMED)
def test_the_process_that_others_wait_for_is_named(case: str) -> None:
    processes, expected = NAMED[case]
    assert said(*processes) == expected


def test_a_role_whose_process_is_gone_is_named() -> None:
    assert said(gone=("learner 1 (pid 41 on n1)",)) == ["stuck: learner 1 (pid 41 on n1) is gone"]


HEALTHY: dict[str, tuple[Any, ...]] = {
    "no collective is under way": (rank(0, call(7, 0, ended=True)), rank(1, call(7, 1, ended=True))),
    "one has just begun": (rank(0, call(8, 0, ago_s=1.0)), rank(1, call(7, 1, ended=True))),
    "the first has gone on since": (rank(0, call(8, 0, ended=True)), rank(1, call(7, 1, ended=True))),
    "groups are counted apart": (rank(0, call(8, 0, ended=True)), rank(1, call(2, 1, ended=True, group="group 2"))),
}


@pytest.mark.parametrize("case", HEALTHY)
def test_nobody_is_accused_where_nobody_waits(case: str) -> None:
    assert said(*HEALTHY[case]) == []


@pytest.mark.parametrize(
    "picture",
    [
        RunPicture(now=NOW, steps=tuple(Step(NOW - 9 + n, {}) for n in range(5))),  # a step came just before
        RunPicture(now=NOW, steps=tuple(Step(NOW + n, {}) for n in range(5))),  # it got on after
        RunPicture(now=NOW, steps=tuple(Step(NOW - 1500 + 300 * n, {}) for n in range(5))),  # steps are that long
        RunPicture(now=NOW, stage=StageSnapshot(stage="saving", since=NOW + 1)),  # nor a later stage
    ],
)
def test_nobody_is_accused_where_the_run_got_on(picture: RunPicture) -> None:
    stopped = rank(1, call(7, 1, ended=True), state="T")
    assert said(rank(0, call(8, 0)), stopped)
    assert said(rank(0, call(8, 0)), stopped, picture=picture) == []


def test_of_many_that_wait_some_are_named() -> None:
    (line,) = said(*(rank(number, call(8, number, world=9)) for number in range(8)), rank(8, call(7, 8, world=9)))
    assert line.startswith("stuck: learner 8 (pid 48 on n8) has not come; learner 0 (pid 40 on n0), ")
    assert re.search(r"learner 3 \(pid 43 on n3\) and 4 more wait for it in all_reduce 8", line)


def stack(pid: int, *frames: str, thread: str = "MainThread", others: str = "") -> str:
    """What py-spy says of a process."""
    lines = "".join(f"    {frame}\n" for frame in frames)
    return f'Process {pid}: python -u train.py\nPython v3.11.7\n\n{others}Thread {pid} (idle): "{thread}"\n{lines}'


REDUCES = (
    "all_reduce (torch/distributed/distributed_c10d.py:3252)",
    "_exception_logger.<locals>.wrapper (torch/distributed/c10d_logger.py:83)",
    "update (train.py:12)",
    "<module> (train.py:16)",
)
LOADS = ("load_batch (train.py:8)", "<module> (train.py:15)")
READS = ("train_step (trainer.py:88)", "<module> (train.py:16)")
DATA_WORKER = ("get (queue.py:180)", "_worker_loop (torch/utils/data/_utils/worker.py:273)", "<module> (train.py:16)")
IDLE = ("main_loop (ray/_private/worker.py:999)", "<module> (ray/_private/workers/default_worker.py:300)")


def foreign(*stacks: tuple[str, ...], title: str = "python -u train.py --rank {}") -> list[Observed]:
    return [
        Observed(10 + number, title.format(number), "S", stack=stack(10 + number, *frames), host=f"n{number % 2}")
        for number, frames in enumerate(stacks)
    ]


IN_REDUCE = "all_reduce (torch/distributed/distributed_c10d.py:3252), from update (train.py:12)"
BY_STACKS: dict[str, tuple[list[Observed], list[str]]] = {
    "not in the collective": (
        foreign(REDUCES, LOADS, REDUCES),
        [
            "stuck: python (pid 11 on n1) is in load_batch (train.py:8), "
            f"while python (pid 10 on n0), python (pid 12 on n0) are in {IN_REDUCE}"
        ],
    ),
    "one of two": (
        foreign(LOADS, REDUCES),
        [f"stuck: python (pid 10 on n0) is in load_batch (train.py:8), while python (pid 11 on n1) is in {IN_REDUCE}"],
    ),
    "elsewhere than those that wait for a result of NCCL": (
        foreign(READS, READS, LOADS, READS),
        [
            "stuck: python (pid 12 on n0) is in load_batch (train.py:8), while python (pid 10 on n0), "
            "python (pid 11 on n1), python (pid 13 on n1) are in train_step (trainer.py:88)"
        ],
    ),
    "an actor of Ray": (
        foreign(REDUCES, REDUCES, LOADS, title="ray::WorkerDict.step_{}"),
        [
            "stuck: ray::WorkerDict.step_2 (pid 12 on n0) is in load_batch (train.py:8), while "
            f"ray::WorkerDict.step_0 (pid 10 on n0), ray::WorkerDict.step_1 (pid 11 on n1) are in {IN_REDUCE}"
        ],
    ),
}


@pytest.mark.parametrize("case", BY_STACKS)
def test_of_a_program_without_a_record_the_odd_one_is_named(case: str) -> None:
    processes, expected = BY_STACKS[case]
    assert said(*processes) == expected


def test_processes_of_one_number_on_several_nodes_are_kept_apart() -> None:
    same = [structs.replace(one, pid=7, host=f"n{at}") for at, one in enumerate(foreign(READS, READS, LOADS, READS))]
    assert said(*same) == [
        "stuck: python (pid 7 on n2) is in load_batch (train.py:8), while python (pid 7 on n0), "
        "python (pid 7 on n1), python (pid 7 on n3) are in train_step (trainer.py:88)"
    ]
    stopped = Observed(1001, "python x.py", "T", host="n9")
    late = structs.replace(rank(1, call(7, 1, ended=True)), pid=1001, host="n1")
    assert "stuck: python (pid 1001 on n9) is stopped (state T: SIGSTOP, or a debugger)" in said(
        rank(0, call(8, 0)), late, stopped
    )


ALIKE: dict[str, list[Observed]] = {
    "all are in the collective": foreign(REDUCES, REDUCES, REDUCES),
    "workers that load data are no ranks": foreign(REDUCES, REDUCES, DATA_WORKER, DATA_WORKER, DATA_WORKER),
    "as many here as there": foreign(READS, READS, READS, LOADS, LOADS, LOADS),
    "too few to compare": foreign(READS, READS, LOADS),
    "actors without work": foreign(IDLE, IDLE, IDLE, LOADS, title="ray::Engine"),
    "different programs": [*foreign(REDUCES, REDUCES), *foreign(LOADS, title="python serve.py")],
    "most are elsewhere": foreign(REDUCES, LOADS, LOADS),
    "no stacks": [Observed(9, "python train.py", "S", stack="no stack: py-spy is not installed", host="n0")] * 3,
}


@pytest.mark.parametrize("case", ALIKE)
def test_of_a_program_without_a_record_nobody_is_accused_where_all_is_alike(case: str) -> None:
    assert said(*ALIKE[case]) == []


def test_the_stack_is_the_main_threads() -> None:
    beside = 'Thread 99 (idle): "Timer"\n    wait (threading.py:331)\n'
    watched = Observed(10, "python t.py", "S", stack=stack(10, *REDUCES, others=beside), host="n0")
    odd = Observed(11, "python t.py", "S", stack=stack(11, *LOADS, others=beside), host="n0")
    assert len(said(watched, odd)) == 1


def test_where_collectives_are_noted_stacks_accuse_nobody() -> None:
    noted = rank(0, call(7, 0, ended=True))
    assert said(noted, *foreign(REDUCES, LOADS, REDUCES)) == []


def test_an_evaluation_of_some_minutes_is_no_hang() -> None:
    evaluates = foreign(REDUCES, LOADS, REDUCES)
    assert said(*evaluates, picture=RunPicture(now=NOW, steps=tuple(Step(NOW - 500 + n, {}) for n in range(5)))) == []
    first = RunPicture(now=NOW, stage=StageSnapshot(stage="training", since=NOW - 1800), steps=())  # it may compile
    assert said(*evaluates, picture=first) == []
    assert said(*evaluates, picture=RunPicture(now=NOW, stage=StageSnapshot(stage="training", since=NOW - 4000)))
