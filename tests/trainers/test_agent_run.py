"""Runs of the real program with agents that ask the policy over HTTP: they learn, by both engines, kills or not."""

from __future__ import annotations

import importlib.util
import statistics
from collections.abc import Iterator

import pytest
from trainer_support import ROOT, Attempt, killed_behind

pytestmark = [pytest.mark.trainers, pytest.mark.slow]

TINY = ROOT / "layouts" / "local" / "grpo-agent-tiny.yaml"
SAVED, STEPS = 5, 10
WORDS = (
    "data.environment=own_agents:asks_twice", "train.prompts_per_step=16", "train.learning_rate=2.0e-3",
    f"train.steps={STEPS}", f"checkpoint.every={SAVED}", "tracking.wandb=disabled",
)  # fmt: skip
KILLED = killed_behind(SAVED)
OTHER_ENGINE = f"roles.rollout.engine={'vllm' if importlib.util.find_spec('vllm') else 'hf'}"
"""What goes on with the run: agents ask the same policy, whatever samples from it."""
AGENT = '''
def asks_twice(task, policy):
    """Nothing but the reward says what answers are to begin with: the first otherwise than the second."""
    chat = list(task.messages)
    for more in ("0+", ""):
        chat += [policy.chat(chat, max_tokens=4), {"role": "user", "content": more}]
    return [0.5 * chat[-4]["content"].startswith("7"), 0.5 * chat[-2]["content"].startswith("3")]
'''


@pytest.fixture(scope="module")
def attempts(
    ray_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Attempt, Attempt]]:
    """A run that was killed once, and the attempt that went on with it."""
    run = tmp_path_factory.mktemp("killed") / "run-1"
    (run.parent / "own_agents.py").write_text(AGENT)
    here = {**ray_environment, "PYTHONPATH": f"{ray_environment['PYTHONPATH']}:{run.parent}"}
    killed = Attempt(run, 1, WORDS, TINY).start(here, KILLED)
    resumed = Attempt(run, 2, (*WORDS, OTHER_ENGINE), TINY)
    try:
        assert killed.wait() == -9
        assert resumed.start(here).wait() == 0, resumed.log()[-3000:]
        yield killed, resumed
    finally:
        killed.end()
        resumed.end()


def test_a_policy_learns_what_agents_pay_for_and_goes_on_after_a_kill(attempts: tuple[Attempt, Attempt]) -> None:
    killed, resumed = attempts
    assert resumed.events("checkpoint")[0] == f"resumed from step {SAVED}"
    assert len(resumed.column("loss")) == STEPS - SAVED
    assert killed.column("reward")[0] < 0.4
    assert statistics.fmean(resumed.column("reward")[-3:]) > 0.6
    for attempt in attempts:
        assert max(attempt.column("environment_failures")) == 0.0
        assert set(attempt.column("turns")) == {2.0}
        assert min(attempt.column("environment_length")) > 1.0
        assert max(attempt.column("parity_max_abs")) < 1e-4
        assert set(attempt.column("sequences")) == {1.0}
