"""In what order engines and the roles on their cards fall asleep, make room and wake up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from trainer_support import LAYOUT

from rltui.layout.load import load_layout
from trainers.placement import planned_roles
from trainers.roles import sleep
from trainers.roles.calls import Role, RoleDiedError, RoleHungError
from trainers.roles.sleep import EngineSleep, kinds_that_load_first, plan_engine_sleep

pytestmark = pytest.mark.trainers

POOLED = ["pools={all: {gpus: [2]}}", "roles.learner.gpus=[]", "roles.learner.pool=all", "roles.rollout.pool=all"]
POOLED += ["roles.rollout.engines=0", "roles.reference={}", "roles.rollout.sleep_while_training=true"]


class Actor:
    """Notes what is asked of it, with its name."""

    def __init__(self, name: str, asked: list[str]) -> None:
        self._name, self._asked = name, asked

    def __getattr__(self, method: str) -> Any:
        return SimpleNamespace(remote=lambda *words: self._asked.append(" ".join([self._name, method, *words])))


def cast(*words: str) -> tuple[EngineSleep, list[str], list[Role]]:
    layout = load_layout(LAYOUT, [*POOLED, *words]).layout
    asked: list[str] = []
    planned = planned_roles(layout)
    roles = [Role(plan.name, Actor(plan.name, asked), kind=plan.role) for plan in planned]
    return plan_engine_sleep(layout, planned, roles, 1.0), asked, roles


@pytest.fixture(autouse=True)
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sleep, "call_all", lambda calls, *_: [None for _ in calls])


def test_weights_wake_after_the_others_made_room_and_the_cache_after_they_did_again() -> None:
    found, asked, _ = cast()
    found.end("weights")
    assert not asked  # nobody sleeps yet
    found.begin()
    found.begin()
    assert asked == ["engine 0 sleep", "engine 1 sleep"]
    room = ["learner 0 release_card", "learner 1 release_card", "reference 0 release_card", "reference 1 release_card"]
    asked.clear()
    found.end("weights")
    assert asked == [*room, "engine 0 wake weights", "engine 1 wake weights"]
    assert found.asleep
    asked.clear()
    found.end("cache")
    assert asked == [*room, "engine 0 wake cache", "engine 1 wake cache"]
    assert not found.asleep
    assert found.take_waking_s() > 0 == found.take_waking_s()


def test_room_is_made_for_an_engine_that_is_started_again_beside_roles_that_work() -> None:
    found, asked, _ = cast()
    assert not found.make_room()
    room = ["learner 0 release_card", "learner 1 release_card", "reference 0 release_card", "reference 1 release_card"]
    assert asked == room
    assert not found.asleep
    alone, asked, _ = cast("roles.rollout.sleep_while_training=false")
    assert not alone.make_room()
    assert not asked


@pytest.mark.parametrize(
    "words",
    [
        ["roles.rollout.sleep_while_training=false"],
        ["roles.rollout.pool=", "roles.rollout.engines=1", "hardware.gpus_per_node=3"],
    ],
    ids=["not asked for", "cards of their own"],
)
def test_nobody_sleeps_for_nobody(words: list[str]) -> None:
    found, asked, _ = cast(*words)
    assert not found.is_used
    found.begin()
    assert not found.asleep
    assert not asked


def test_an_engine_that_died_asleep_is_handed_over_to_be_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _, roles = cast()
    found.begin()
    engine = next(role for role in roles if role.name == "engine 1")

    def die(calls: Any, _deadline_s: float, doing: str) -> None:
        if doing == "waking up":
            raise RoleDiedError(engine, "engine 1 died while waking up")

    monkeypatch.setattr(sleep, "call_all", die)
    assert [death.role for death in found.end("weights")] == [engine]
    assert found.asleep


def test_neighbours_that_died_are_handed_over_and_no_engine_is_woken_beside_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, asked, roles = cast()
    found.begin()
    asked.clear()
    first, second = (role for role in roles if role.kind == "reference")

    def die(calls: Any, _deadline_s: float, doing: str) -> None:
        raise RoleHungError(first, "no answer", [RoleHungError(second, "no answer")])

    monkeypatch.setattr(sleep, "call_all", die)
    assert [death.role for death in found.end("weights")] == [first, second]
    assert found.asleep
    assert not any("wake" in each for each in asked)


JUDGE = "roles.judge={model: builtin/tiny-qwen3, pool: all, engine: vllm}"
TEACHER = "roles.teacher={model: builtin/tiny-qwen3, pool: all, engine: hf}"


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ([], ["engine"]),  # it must have left the card before the learner comes
        (["roles.rollout.engine=vllm", JUDGE], ["engine", "judge"]),
        (["roles.rollout.sleep_while_training=false", JUDGE, TEACHER], ["judge"]),
        (["roles.rollout.engine=vllm", "roles.rollout.sleep_while_training=false"], ["engine"]),
        (["roles.rollout={engine: vllm, engines: 1}", "hardware.gpus_per_node=3"], []),
    ],
)
def test_what_measures_a_shared_card_loads_alone(words: list[str], first: list[str]) -> None:
    layout = load_layout(LAYOUT, [*POOLED, *words]).layout
    assert kinds_that_load_first(layout, engines_sleep=layout.roles.rollout.sleep_while_training) == first
