"""Agents beside workers on other nodes: Ray carries what they ask, and a worker's death costs what it played."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
import ray
from agent_support import TINY, Table, tables
from engine_support import PATHS, own_ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from trainer_support import ray_node

from rltui.layout.load import load_layout
from trainers.agent_workers import AgentWorkers
from trainers.placement import process_location
from trainers.rewards import actors
from trainers.roles.calls import Role, RoleError
from trainers.roles.reward_worker import LISTENERS, RewardWorker
from waiting import WAIT_S, eventually

if TYPE_CHECKING:
    from pathlib import Path

    from trainers.roles.completions import Completion

pytestmark = pytest.mark.trainers
WORDS = ("data.environment=own_agents:play", "data.max_turns=4")


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[Role]]]:
    """Two loaded workers, and the folder that they take agents from."""
    folder = tmp_path_factory.mktemp("agents")
    with own_ray():
        yield folder, [Role(f"reward {n}", worker_on(folder)) for n in range(2)]


def worker_on(folder: Path, where: Any = "DEFAULT") -> Any:
    """A worker's actor that takes agents from ``folder``."""
    options = {"max_restarts": -1, "runtime_env": {"env_vars": {"PYTHONPATH": f"{PATHS}:{folder}"}}}
    kind = ray.remote(concurrency_groups={LISTENERS: 8})(RewardWorker)
    return kind.options(scheduling_strategy=where, **options).remote(load_layout(TINY, WORDS).layout)


@pytest.fixture
def table(workers: tuple[Path, list[Role]], monkeypatch: pytest.MonkeyPatch) -> Iterator[Table]:
    """A policy that the test knows, asked by agents beside both workers."""
    folder, roles = workers
    for made in tables(folder, monkeypatch):
        found = made(*WORDS, workers=roles)
        ray.get([role.actor.load.remote() for role in roles], timeout=WAIT_S)  # now their agents are there
        for role in roles:
            role.settle(ray.get(role.actor.__ray_call__.remote(process_location), timeout=WAIT_S))
        yield found


def in_thread(play: Callable[[], Completion]) -> tuple[threading.Thread, list[Completion]]:
    found: list[Completion] = []
    thread = threading.Thread(target=lambda: found.append(play()))
    thread.start()
    return thread, found


def test_agents_beside_workers_are_answered_and_paid_and_their_faults_cost_their_own_samples(
    table: Table, tmp_path: Path
) -> None:
    for kind, reward, failed in (("said", 1.0, False), ("by_turns", 0.75, False), ("raises", 0.0, True)):
        found = table.play(kind)
        assert found.outcome is not None
        assert (found.outcome.reward, found.outcome.failed) == (reward, failed), kind
        assert len(found.sequences) == 1
    cut = table.play("talks_on")  # what the trainer refuses is refused there
    assert cut.outcome is not None
    assert (cut.outcome.turns, cut.outcome.failed, cut.finish_reason) == (2, False, "length")
    told = table.play("told", told=str(tmp_path / "told"))
    assert told.outcome is not None
    assert told.outcome.reward == 1.0  # its key stands in no list of processes
    url, _, key = (tmp_path / "told").read_text().split("\n")
    assert url.startswith("http://127.0.0.1:")
    assert key not in repr(table.events)


def test_what_a_worker_played_that_died_is_played_again_and_it_comes_back(table: Table, tmp_path: Path) -> None:
    place = table.turns._place
    assert isinstance(place, AgentWorkers)
    paths = [tmp_path / name for name in ("one", "other")]
    playing = [in_thread(lambda path=path: table.play("asks_late", go=str(path))) for path in paths]
    starts = [path.with_suffix(".awaited") for path in paths]
    for start in starts:
        eventually(start.exists, "the agent's start", WAIT_S)
        start.unlink()
    assert sorted(place._under_way.values()) == [1, 1]
    os.kill(place._ready[0].pid, signal.SIGKILL)
    eventually(lambda: any(start.exists() for start in starts), "its second start", WAIT_S)
    again = table.play("said")
    assert again.outcome is not None
    assert again.outcome.reward == 1.0
    assert sum(start.exists() for start in starts) == 1  # the other sample was nobody's loss
    for path in paths:
        path.write_text("0.5")
    for thread, _ in playing:
        thread.join(WAIT_S)
    ends = [found[0].outcome for _, found in playing]
    assert [(end.reward, end.failed) for end in ends if end is not None] == [(0.5, False)] * 2
    eventually(lambda: len(place._ready) == 2, "its return", WAIT_S)
    assert ["died beside its agents" in text for _, text in table.events] == [True]


@pytest.mark.slow
def test_agents_go_on_without_a_node_that_is_gone(
    table: Table, workers: tuple[Path, list[Role]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actors, "START_S", 1.0)  # nothing can come back in any time
    folder, [staying, _] = workers
    address = ray.get_runtime_context().gcs_address
    with ExitStack() as there:
        there.enter_context(ray_node({**os.environ, "RAY_ADDRESS": address}, num_cpus=1))
        other = next(one["NodeID"] for one in ray.nodes() if one["NodeID"] != ray.get_runtime_context().get_node_id())
        actor = worker_on(folder, NodeAffinitySchedulingStrategy(other, soft=False))
        leaving = Role("reward 9", actor)
        ray.get(actor.load.remote(), timeout=WAIT_S)
        place = AgentWorkers([leaving, staying], 8, lambda *words: table.events.append(words), lambda: None)
        table.turns._place = place
        assert table.play("said").outcome is not None
        there.close()

        def is_known() -> bool:
            found = table.play("said")
            assert found.outcome is not None
            assert (found.outcome.reward, found.outcome.failed) == (1.0, False)
            return any("agents go on without it" in text for _, text in table.events)

        eventually(is_known, "the loss", WAIT_S)
    assert place._ready == [staying]


def test_without_a_worker_nothing_is_played() -> None:
    with pytest.raises(RoleError, match="no worker is left"):
        AgentWorkers([], 8, lambda *_: None, lambda: None).play({"limit_s": 1.0}, lambda request: request)
