"""The gate: of published scripts that work, the check calls at most one in twenty wrong, in no framework more."""

from __future__ import annotations

from itertools import groupby

import pytest
from import_scripts import Script, false_errors, scripts

GROUPS = {name: list(rows) for name, rows in groupby(scripts(), key=lambda script: script.framework)}


def test_there_are_tables_of_twelve_frameworks() -> None:
    assert len(GROUPS) == 12
    assert sum(map(len, GROUPS.values())) > 400


@pytest.mark.parametrize("framework", GROUPS)
def test_scripts_that_work_check_clean(framework: str) -> None:
    working = [script for script in GROUPS[framework] if script.works]
    wrong = {script.facts["id"]: found for script in working if (found := false_errors(script))}
    assert len(wrong) <= max(1, 0.05 * len(working)), wrong


def test_a_mistake_is_still_an_error() -> None:
    settings = {
        "trainer.nnodes": "1",
        "trainer.n_gpus_per_node": "8",
        "algorithm.adv_estimator": "grpo",
        "actor_rollout_ref.model.path": "Qwen/Qwen2.5-72B-Instruct",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": "8",
        "actor_rollout_ref.rollout.n": "8",
        "actor_rollout_ref.rollout.tensor_model_parallel_size": "8",
        "data.train_batch_size": "256",
        "data.max_prompt_length": "28000",
        "data.max_response_length": "8192",
    }
    facts = {"program": "verl.trainer.main_ppo", "published": "fits"}
    codes = {error.split()[0] for error in false_errors(Script("verl", facts, settings))}
    assert {"M301", "E313"} <= codes
