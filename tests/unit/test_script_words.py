"""Remedies for another system's run: in its own words, and in its command's numbers."""

from __future__ import annotations

import pytest

from rltui.diagnose.fitting import in_own_words
from rltui.diagnose.verdicts import Change, Diagnosis, Remedy

WORDS = {
    "roles.learner.micro_batch": "--micro-batch",
    "roles.rollout.memory_utilization": "engine.share",
    "roles.learner.gradient_checkpointing": "--recompute",
    "roles.rollout.enforce_eager": "engine.eager",
}
HALVED = Change("roles.learner.micro_batch", "times", 0.5, least=1)


@pytest.mark.parametrize(
    ("change", "values", "shown"),
    [
        (HALVED, {"--micro-batch": "4"}, "--micro-batch=2"),
        (HALVED, {}, "--micro-batch ×0.5"),
        (HALVED, {"--micro-batch": "$BATCH"}, "--micro-batch ×0.5"),
        (Change("roles.rollout.memory_utilization", "plus", -0.1), {"engine.share": "0.8"}, "engine.share=0.7"),
        (Change("roles.learner.gradient_checkpointing", "set", True), {}, "--recompute"),
        (Change("roles.rollout.enforce_eager", "set", True), {}, "engine.eager=True"),
        (Change("slurm.exclude", "plus", "node7"), {}, "slurm.exclude=+node7"),
    ],
)
def test_a_change_is_said_as_the_system_says_it(change: Change, values: dict[str, str], shown: str) -> None:
    remedy = Remedy(id="less", summary="Less.", changes=(change,), safe="auto")
    made = in_own_words(Diagnosis(id="x", summary="x", confidence=1.0, remedies=(remedy,)), WORDS, values)
    assert [one.shown for one in made.remedies[0].changes] == [shown]


def test_what_a_system_has_no_word_for_is_advice_without_a_change() -> None:
    remedy = Remedy(id="less", summary="Less.", changes=(Change("train.async_steps", "set", 1),), safe="confirm")
    made = in_own_words(Diagnosis(id="x", summary="x", confidence=1.0, remedies=(remedy,)), WORDS, {})
    assert made.remedies == (Remedy(id="less", summary="Less.", changes=(), safe="confirm"),)


def test_what_is_at_its_bound_is_no_remedy() -> None:
    remedy = Remedy(id="less", summary="Less.", changes=(HALVED,), safe="auto")
    found = Diagnosis(id="x", summary="x", confidence=1.0, remedies=(remedy,))
    assert in_own_words(found, WORDS, {"--micro-batch": "1"}).remedies == ()


@pytest.mark.parametrize(
    ("key", "values", "is_set"),
    [
        ("roles.rollout.enforce_eager", {"engine.eager": "True"}, True),
        ("roles.rollout.enforce_eager", {"engine.eager": "False"}, False),
        ("roles.learner.gradient_checkpointing", {"--recompute": "true"}, True),
        ("roles.learner.gradient_checkpointing", {"--recompute": "--micro-batch"}, True),  # the option behind it
        ("roles.learner.gradient_checkpointing", {"--recompute": "false"}, False),
    ],
)
def test_what_the_command_sets_already_is_no_remedy(key: str, values: dict[str, str], is_set: bool) -> None:
    remedy = Remedy(id="less", summary="Less.", changes=(Change(key, "set", True),), safe="auto")
    found = Diagnosis(id="x", summary="x", confidence=1.0, remedies=(remedy,))
    assert (in_own_words(found, WORDS, values).remedies == ()) == is_set
